"""Predictions of the kernel's sched domains, sched groups, NUMA type and hazards."""
