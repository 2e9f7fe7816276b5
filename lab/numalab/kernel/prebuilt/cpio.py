"""A cpio archive in memory, the same for the same files. Pure.

Format "newc": Documentation/driver-api/early-userspace/buffer-format.rst, Linux 6.12.
"""

from collections.abc import Mapping
from pathlib import PurePosixPath

_DIRECTORY, _FILE, _DEVICE = 0o040755, 0o100755, 0o020600
_END = "TRAILER!!!"


def pack_cpio(files: Mapping[str, bytes], devices: Mapping[str, tuple[int, int]]) -> bytes:
    """Pack files and character devices (major, minor), with the folders above them.

    Names are relative, such as `dev/console`. All belong to root; time stamps are zero.
    """
    names = {*files, *devices}
    folders = {str(up) for name in names for up in PurePosixPath(name).parents} - {"."}
    archive = bytearray()
    for inode, name in enumerate(sorted(folders | names), 1):
        if name in folders:
            archive += _entry(inode, name, _DIRECTORY, links=2)
        elif name in devices:
            archive += _entry(inode, name, _DEVICE, device=devices[name])
        else:
            archive += _entry(inode, name, _FILE, data=files[name])
    return bytes(archive + _entry(0, _END, 0))


def _entry(
    inode: int,
    name: str,
    mode: int,
    *,
    links: int = 1,
    data: bytes = b"",
    device: tuple[int, int] = (0, 0),
) -> bytes:
    path = name.encode() + b"\0"
    numbers = (inode, mode, 0, 0, links, 0, len(data), 0, 0, *device, len(path), 0)
    header = b"070701" + b"".join(b"%08X" % number for number in numbers) + path
    return _padded(header) + _padded(data)


def _padded(data: bytes) -> bytes:
    return data + b"\0" * (-len(data) % 4)
