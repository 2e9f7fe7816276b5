"""The header of a bzImage and the notes of a vmlinux. Pure.

Formats: Documentation/arch/x86/boot.rst, Linux 6.12; the ELF specification; for the PVH entry
include/xen/interface/elfnote.h.
"""

import re
import struct
from dataclasses import dataclass
from typing import Literal

_MAGIC = 0x202
_VERSION = 0x20E
_PT_NOTE = 4
_PVH_ENTRY = 18  # XEN_ELFNOTE_PHYS32_ENTRY
_BANNER = re.compile(rb"Linux version ([0-9][!-~]{0,64}) \(")


class NoKernel(Exception):
    """The bytes are no kernel that QEMU can boot."""


@dataclass(frozen=True)
class KernelImage:
    """A kernel image: its format and the output of `uname -r`."""

    format: Literal["bzImage", "vmlinux"]
    release: str


def parse_kernel_image(data: bytes) -> KernelImage:
    """Recognise a kernel image. Raises NoKernel."""
    try:
        return _parse(data)
    except struct.error:
        raise NoKernel("it is cut short") from None


def _parse(data: bytes) -> KernelImage:
    if data[_MAGIC : _MAGIC + 4] == b"HdrS":
        return KernelImage("bzImage", _bzimage_release(data))
    if data[:6] == b"\x7fELF\x02\x01":
        if data[18:20] != b"\x3e\x00":
            raise NoKernel("it is not for x86-64")
        if not _has_pvh_entry(data):
            raise NoKernel("it has no PVH entry (CONFIG_PVH), without which QEMU boots no vmlinux")
        banner = _BANNER.search(data)
        if banner is None:
            raise NoKernel("its version is unknown")
        return KernelImage("vmlinux", banner[1].decode())
    raise NoKernel("it is neither a bzImage nor a vmlinux")


def _bzimage_release(data: bytes) -> str:
    (offset,) = struct.unpack_from("<H", data, _VERSION)
    text = data[offset + 0x200 : offset + 0x200 + 256].partition(b"\0")[0]
    version = re.match(rb"[0-9][!-~]{0,64}", text)
    if not offset or version is None:
        raise NoKernel("its header has no version")
    return version[0].decode()


def _has_pvh_entry(data: bytes) -> bool:
    (table,) = struct.unpack_from("<Q", data, 32)
    size, count = struct.unpack_from("<HH", data, 54)
    for number in range(count):
        at = table + number * size
        if at + 56 > len(data):
            return False
        kind, begin, length = struct.unpack_from("<I4xQ16xQ", data, at)
        if kind == _PT_NOTE and _PVH_ENTRY in _xen_notes(data[begin : begin + length]):
            return True
    return False


def _xen_notes(notes: bytes) -> set[int]:
    """Return the types of the notes whose owner is Xen."""
    types, at = set(), 0
    while at + 12 <= len(notes):
        owner, length, kind = struct.unpack_from("<III", notes, at)
        if notes[at + 12 : at + 12 + owner] == b"Xen\0":
            types.add(kind)
        at += 12 + (owner + 3) // 4 * 4 + (length + 3) // 4 * 4
    return types
