"""Placement, domain XML, the hypervisor, the running guest, and the proof of placement."""
