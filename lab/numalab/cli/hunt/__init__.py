"""Commands of `numalab hunt`, and of what goes on with its cases."""
