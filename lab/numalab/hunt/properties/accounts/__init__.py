"""What the kernel tells about tasks, cgroups and root domains, beside the trace."""
