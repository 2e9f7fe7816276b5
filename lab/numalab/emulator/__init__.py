"""QEMU as this lab builds it: the distribution's source and a series of ours."""
