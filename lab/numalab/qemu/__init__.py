"""libvirt and QEMU: the domain, its command line, its job disk and its memory."""
