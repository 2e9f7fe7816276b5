"""NUMA machines: their files, shapes and distances, and predictions for the kernel."""
