"""What the kernel will make of a machine: sched domains, sched groups, NUMA type, hazards."""
