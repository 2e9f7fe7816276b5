"""Kernels that were built elsewhere: a bzImage, a vmlinux, or a distribution's package.

Their drivers may be modules. An initramfs then loads those that a guest needs, from the module tree
of the package, or from the tree that the kernel's installation left.
"""

import re
import struct
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

from numalab.artifact.builder import Artifact, Work
from numalab.artifact.digest import digest_of, hash_file, remembered
from numalab.artifact.program_artifact import FLAGS
from numalab.errors import UserError
from numalab.files import open_regular, reading
from numalab.kernel.config_fragment import parse_config
from numalab.kernel.initramfs import choose_modules, init_source, make_initramfs
from numalab.kernel.kernel_artifact import KERNELS, BuiltKernel
from numalab.kernel.kernel_specs import KernelSpec
from numalab.process import CommandFailed, find_program, run
from numalab.progress import Progress
from numalab.source.debian_packages import check_unchanged, fetch_packages, fetched_packages

FORMAT = 2  # raise it when the entry of the same files changes
_SETUP_SECTORS, _PROTECTED_PARAGRAPHS = 0x1F1, 0x1F4  # sectors of 512 bytes, paragraphs of 16
_MAGIC = 0x202
_VERSION = 0x20E
_PT_NOTE = 4
_PVH_ENTRY = 18  # XEN_ELFNOTE_PHYS32_ENTRY
# The options of the drivers that a guest needs (`initramfs.NEEDED`).
_DRIVERS = ("CONFIG_ACPI_NFIT", "CONFIG_BLK_DEV_PMEM", "CONFIG_EROFS_FS", "CONFIG_EXT4_FS")
_BANNER = re.compile(rb"Linux version ([0-9][!-~]{0,64}) \(")


@dataclass(frozen=True)
class _KernelFiles:
    """The files of a kernel: image, configuration and module tree, the last two if present."""

    image: Path
    release: str
    config: Path | None
    modules: Path | None


class NoKernel(Exception):
    """The bytes are no kernel that QEMU can boot."""


@dataclass(frozen=True)
class KernelImage:
    """A kernel image: its format and the output of `uname -r`."""

    format: Literal["bzImage", "vmlinux"]
    release: str


def fetch_prebuilt(spec: KernelSpec, tell: Progress) -> None:
    """Fetch the package of a prebuilt kernel, if it is in one and the cache does not have it."""
    if spec.package is not None:
        fetch_packages(spec.package, tell)


def prebuilt_artifact(spec: KernelSpec) -> Artifact[BuiltKernel]:
    """Describe a prebuilt kernel with its initramfs to the builder.

    Raises UserError for a file that is no kernel and for a kernel without the drivers that a guest
    needs, NotFetched for a package that is not in the cache.
    """
    digest = _digest(spec)
    make = partial(_make_entry, spec, digest)
    return Artifact(KERNELS, spec.name, KERNELS.entry(digest), make, partial(_read, spec))


def _read(spec: KernelSpec, entry: Path) -> BuiltKernel | None:
    """Read an entry; None also where a kernel that is a file has another configuration now.

    That is no part of the digest, by which results name the kernel.
    """
    built = KERNELS.read(entry, spec_name=spec.name)
    path = Path(spec.source)
    if built is None or spec.package is not None or _is_package(path):
        return built
    config = _files_beside(path, built.release).config
    return built if built.config_hash == (hash_file(config) if config else "") else None


def _make_entry(spec: KernelSpec, digest: str, work: Work) -> None:
    with _kernel_files(spec, work.tell) as files:
        modules = choose_modules(files.modules, spec.source) if files.modules else ()
        initrd = None
        if modules:
            work.tell("packing its initramfs", None)
            initrd = work.entry.with_name("initrd")
            initrd.write_bytes(make_initramfs(modules))
        elif files.config is not None:
            _check_built_in(files.config, files.release, spec.source)
        kernel = BuiltKernel(
            spec_name=spec.name,
            bzimage=files.image,
            release=files.release,
            config=files.config,
            config_hash=hash_file(files.config) if files.config else "",
            digest=digest,
            series=(),
            source_version=files.release,
            seconds=0.0,
            compiler="built elsewhere",
            bzimage_sha256=hash_file(files.image),
            initrd=initrd,
        )
        KERNELS.write(work.entry, kernel)


def _check_built_in(config: Path, release: str, kernel: str) -> None:
    """Raise UserError if a driver that a guest needs is a module, of which there is none."""
    values = parse_config(config.read_text(encoding="utf-8", errors="replace"))
    if names := ", ".join(option for option in _DRIVERS if values.get(option) == "m"):
        raise UserError(
            f"needs modules for {names}, and there is no lib/modules/{release}; its configuration"
            f" is {config}",
            file=kernel,
        )


def _digest(spec: KernelSpec) -> str:
    ours = [FORMAT, hash_file(init_source()), *FLAGS]
    if spec.package is not None:
        return digest_of([*ours, fetched_packages(spec.package).digest])
    path = Path(spec.source)
    if not path.is_file():
        raise UserError("no such file", file=path)
    image = remembered(path, lambda _: {})["sha256"]
    if _is_package(path):
        return digest_of([*ours, image])
    tree = _files_beside(path, _release(path)).modules
    modules = choose_modules(tree, spec.source) if tree else ()
    return digest_of([*ours, image, [hash_file(module) for module in modules]])


@contextmanager
def _kernel_files(spec: KernelSpec, tell: Progress) -> Iterator[_KernelFiles]:
    """Yield the files of a kernel; those of a package are temporary."""
    if spec.package is not None:
        fetched = fetched_packages(spec.package)
        check_unchanged(fetched)
        packages = fetched.files
    elif _is_package(Path(spec.source)):
        packages = (Path(spec.source),)
    else:
        path = Path(spec.source)
        yield _files_beside(path, _release(path))
        return
    with tempfile.TemporaryDirectory(prefix="numalab-kernel-") as scratch:
        tell("unpacking its package", None)
        root = Path(scratch)
        for package in packages:
            _extract(package, root)
        images = sorted(root.glob("boot/vmlinuz-*")) or sorted(
            root.glob("usr/lib/modules/*/vmlinuz")
        )
        if not images:
            raise UserError("holds no kernel: there is no /boot/vmlinuz-* in it", file=spec.source)
        yield _files_beside(images[0], _release(images[0]), root)


def _extract(package: Path, root: Path) -> None:
    try:
        run([find_program("dpkg-deb", "dpkg"), "--extract", package, root])
    except CommandFailed as failed:
        raise UserError(
            f"cannot be unpacked: {failed.completed.stderr.strip()[-300:]}", file=package
        ) from None


def _files_beside(image: Path, release: str, root: Path | None = None) -> _KernelFiles:
    """Find configuration and modules of a kernel image, in its package or beside it.

    An image in the root of another system (ROOT/boot) has its modules there.
    """
    roots = [root] if root is not None else [image.resolve().parent.parent, Path("/")]
    trees = [base / up / release for base in roots for up in ("lib/modules", "usr/lib/modules")]
    configs = [image.with_name(f"config-{release}"), *(tree / "config" for tree in trees)]
    return _KernelFiles(
        image,
        release,
        next((path for path in configs if path.is_file() and path.stat().st_size), None),
        next((path for path in trees if (path / "kernel").is_dir()), None),
    )


def _release(image: Path) -> str:
    with reading(image):
        data = image.read_bytes()
    try:
        return parse_kernel_image(data).release
    except NoKernel as error:
        raise UserError(str(error), file=image) from None


def _is_package(path: Path) -> bool:
    with open_regular(path) as file:
        return file.read(8) == b"!<arch>\n"


def parse_kernel_image(data: bytes) -> KernelImage:
    """Recognise a kernel image. Raises NoKernel."""
    try:
        return _parse(data)
    except struct.error:
        raise NoKernel("it is cut short") from None


def _parse(data: bytes) -> KernelImage:
    if data[_MAGIC : _MAGIC + 4] == b"HdrS":
        _check_length(data)
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


def _check_length(data: bytes) -> None:
    """Raise NoKernel for an image that ends before its end (Documentation/arch/x86/boot.rst)."""
    sectors = data[_SETUP_SECTORS] or 4
    (paragraphs,) = struct.unpack_from("<I", data, _PROTECTED_PARAGRAPHS)
    length = 512 * (sectors + 1) + 16 * paragraphs
    if paragraphs and len(data) < length:
        raise NoKernel(f"it is cut short: {len(data)} of {length} bytes")


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
