"""A file that passes for a kernel until it is booted."""

import struct

RELEASE = "6.1.0-9-amd64"


def bzimage(release: str = RELEASE) -> bytes:
    """A file with the header of a bzImage, as Documentation/arch/x86/boot.rst has it."""
    data = bytearray(2048)
    data[0x202:0x206] = b"HdrS"
    struct.pack_into("<H", data, 0x20E, 0x400)
    text = f"{release} (somebody@somewhere) #1 SMP\0".encode()
    data[0x600 : 0x600 + len(text)] = text
    return bytes(data)
