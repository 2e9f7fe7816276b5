"""The kernel of the test bed's host: Debian's own. Building one takes ten minutes of CPU time;
fetching this one and packing an initramfs with KVM's modules takes a quarter of a minute."""

import hashlib
import lzma
import struct
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from numalab.files import replacing
from numalab.kernel.initramfs import NEEDED, init_source, load_order, make_initramfs, read_index
from numalab.source.debian_packages import fetch_packages

_PACKAGE = "linux-image-amd64"
_MODULES = (*NEEDED, "kvm_amd")


@dataclass(frozen=True)
class HostKernel:
    """An unpacked kernel, and its initramfs, which loads what a host of guests needs."""

    image: Path
    initrd: Path


def host_kernel(cache: Path) -> HostKernel:
    """Return the host's kernel; fetched and packed where `cache` lacks it.

    Raises HostError where apt has no mirror, and AssertionError for a kernel without KVM for AMD.
    """
    fetched = fetch_packages(_PACKAGE, lambda _what, _share: None)
    inputs = f"2 {_MODULES} {fetched.digest} {init_source().read_text()}"
    folder = cache / f"kernel-{hashlib.sha256(inputs.encode()).hexdigest()[:32]}"
    kernel = HostKernel(folder / "vmlinux", folder / "initrd")
    if not folder.exists():
        with replacing(folder) as new, tempfile.TemporaryDirectory() as scratch:
            root = Path(scratch)
            new.mkdir()
            for package in fetched.files:
                subprocess.run(["dpkg-deb", "--extract", package, root], check=True)
            (image,) = root.glob("boot/vmlinuz-*")
            (tree,) = root.glob("lib/modules/*")
            order, missing = load_order(read_index(tree), _MODULES)
            assert not missing, missing
            modules = [tree / path for path in order]
            # Signatures and types, which the kernel would check and read for seconds.
            subprocess.run(
                ["strip", "--strip-debug", "--remove-section=.BTF*", *modules], check=True
            )
            (new / "initrd").write_bytes(make_initramfs(modules))
            (new / "vmlinux").write_bytes(_unpacked(image.read_bytes()))
    return kernel


def _unpacked(image: bytes) -> bytes:
    """Return the ELF file in a bzImage that is packed with xz.

    Fields of its header: Documentation/arch/x86/boot.rst, Linux 6.12.
    """
    setup_sectors = image[0x1F1]
    offset, length = struct.unpack_from("<II", image, 0x248)
    start = (setup_sectors + 1) * 512 + offset
    return lzma.LZMADecompressor().decompress(image[start : start + length])
