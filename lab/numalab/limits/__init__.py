"""Room: what this process may use of the host."""
