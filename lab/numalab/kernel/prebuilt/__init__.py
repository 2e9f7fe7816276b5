"""Kernels that somebody else built: what is in their files, and an initramfs with their modules."""
