"""The commands about guests and the host that they run on."""
