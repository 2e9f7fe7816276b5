"""The commands about studies and their results."""
