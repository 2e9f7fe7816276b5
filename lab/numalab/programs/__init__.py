"""Programs of the host on virtual machines, for Python, pytest and the command line."""
