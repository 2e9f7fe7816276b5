"""Kernels that were built elsewhere: a bzImage, a vmlinux, or a distribution's package.

Their drivers may be modules. Then an initramfs is made that loads the few a guest needs, from the
module tree of the package, or from the one that lies where the kernel's own installation put it.
"""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from numalab.artifact.c_program import FLAGS
from numalab.artifact.digest import digest_of, hash_file, remembered
from numalab.errors import UserError
from numalab.files import reading
from numalab.kernel.kernel_artifact import BuiltKernel, load_built, store_built
from numalab.kernel.kernel_specs import KernelSpec
from numalab.kernel.prebuilt.image_header import NoKernel, parse_kernel_image
from numalab.kernel.prebuilt.initramfs import choose_modules, init_source, make_initramfs
from numalab.process import CommandFailed, find_program, run
from numalab.progress import Progress
from numalab.source.debian_packages import (
    NotFetched,
    check_unchanged,
    fetch_packages,
    fetched_packages,
)

FORMAT = 2  # raise it when what is made of the same files changes


@dataclass(frozen=True)
class _Found:
    """The files of a kernel: image, configuration and module tree, the latter two if known."""

    image: Path
    release: str
    config: Path | None
    modules: Path | None


def find_prebuilt(spec: KernelSpec) -> BuiltKernel | None:
    """Return a prebuilt kernel from the cache; None when it has not been taken in yet."""
    try:
        return load_built(spec.name, _digest(spec))
    except NotFetched:
        return None


def take_prebuilt(spec: KernelSpec, tell: Progress) -> BuiltKernel:
    """Take a prebuilt kernel into the cache, with its initramfs, unless it is there.

    Raises UserError for a file that is no kernel and for a kernel that lacks what a guest needs,
    HostError for a package that cannot be fetched.
    """
    if spec.package is not None:
        fetch_packages(spec.package, tell)
    digest = _digest(spec)
    if (built := load_built(spec.name, digest)) is not None:
        return built
    with _kernel_files(spec, tell) as found, tempfile.TemporaryDirectory() as scratch:
        modules = choose_modules(found.modules, spec.source) if found.modules else ()
        initrd = None
        if modules:
            tell("packing its initramfs", None)
            initrd = Path(scratch) / "initrd"
            initrd.write_bytes(make_initramfs(modules))
        return store_built(
            BuiltKernel(
                spec_name=spec.name,
                bzimage=found.image,
                release=found.release,
                config=found.config,
                config_hash=hash_file(found.config) if found.config else "",
                digest=digest,
                series=(),
                source_version=found.release,
                seconds=0.0,
                compiler="built elsewhere",
                bzimage_sha256=hash_file(found.image),
                initrd=initrd,
            )
        )


def _digest(spec: KernelSpec) -> str:
    """Name what a prebuilt kernel is made of. Raises NotFetched, UserError."""
    ours = [FORMAT, hash_file(init_source()), *FLAGS]
    if spec.package is not None:
        return digest_of([*ours, fetched_packages(spec.package).digest])
    path = Path(spec.source)
    if not path.is_file():
        raise UserError("no such file", file=path)
    image = remembered(path, lambda _: {})["sha256"]
    if _is_package(path):
        return digest_of([*ours, image])
    found = _beside(path, _release(path))
    modules = choose_modules(found.modules, spec.source) if found.modules else ()
    return digest_of([*ours, image, [hash_file(module) for module in modules]])


@contextmanager
def _kernel_files(spec: KernelSpec, tell: Progress) -> Iterator[_Found]:
    """Give the files of a kernel; those of a package are unpacked for as long as the block."""
    if spec.package is not None:
        fetched = fetched_packages(spec.package)
        check_unchanged(fetched)
        packages = fetched.files
    elif _is_package(Path(spec.source)):
        packages = (Path(spec.source),)
    else:
        path = Path(spec.source)
        yield _beside(path, _release(path))
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
        yield _beside(images[0], _release(images[0]), root)


def _extract(package: Path, root: Path) -> None:
    try:
        run([find_program("dpkg-deb", "dpkg"), "--extract", package, root])
    except CommandFailed as failed:
        raise UserError(
            f"cannot be unpacked: {failed.completed.stderr.strip()[-300:]}", file=package
        ) from None


def _beside(image: Path, release: str, root: Path | None = None) -> _Found:
    """Find configuration and modules of a kernel image: in its package, or where it is installed.

    An image that lies in the root of another system (ROOT/boot) has its modules there.
    """
    roots = [root] if root is not None else [image.resolve().parent.parent, Path("/")]
    trees = [base / up / release for base in roots for up in ("lib/modules", "usr/lib/modules")]
    configs = [image.with_name(f"config-{release}"), *(tree / "config" for tree in trees)]
    return _Found(
        image,
        release,
        next((path for path in configs if path.is_file()), None),
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
    with path.open("rb") as file:
        return file.read(8) == b"!<arch>\n"
