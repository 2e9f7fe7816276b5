"""What to do about an error of libvirt's, where we know it. Pure."""

from collections.abc import Mapping

_INSTALL = "apt-get install libvirt-daemon-system qemu-system-x86"

_HINTS: Mapping[str, str] = {
    "Failed to parse user": _INSTALL,
    "no connection driver": _INSTALL,
    "Cannot find suitable emulator": _INSTALL,
    "No such file or directory: '/usr/bin/qemu": _INSTALL,
    "virtlogd-sock": "systemctl start virtlogd.socket",
    "Failed to connect socket": "systemctl start libvirtd, or leave out --connect",
    "Cannot allocate memory": "free memory on this host, or ask for a smaller topology",
    "/dev/kvm": "leave out --mode kvm, or load kvm_intel or kvm_amd",
}


def hint_for(message: str) -> str | None:
    """Return the command that fixes what a message of libvirt's complains of, or None."""
    return next((hint for sign, hint in _HINTS.items() if sign in message), None)
