"""Reach: which lines of a patch a guest executed, how often, and on which CPUs."""
