"""numalab: a hardware-in-the-loop NUMA topology lab for Linux scheduler developers."""
