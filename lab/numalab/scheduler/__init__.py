"""Schedulers that are BPF programs (sched_ext): description, build, and their part of a guest."""
