"""Events and counters into measures, and measures into comparisons."""
