"""Which host CPU runs each vCPU, and which host node backs each node of the guest."""
