"""Kernels that were built elsewhere: recognised, taken in, and given an initramfs."""

import lzma
import os
import shutil
import struct
import subprocess
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from numalab.errors import HostError, UserError
from numalab.kernel import prebuilt_kernel
from numalab.kernel.initramfs import load_order, pack_cpio, parse_index
from numalab.kernel.kernel_build import built_kernel, ensure_kernel
from numalab.kernel.kernel_specs import KernelSpec
from numalab.kernel.patched_kernel import find_kernel
from numalab.kernel.prebuilt_kernel import KernelImage, NoKernel, parse_kernel_image
from numalab.source.debian_packages import Fetched
from support.kernel_image import RELEASE, bzimage

DEP = """\
kernel/crypto/crc32c_generic.ko.xz:
kernel/crypto/crc32c_intel.ko.xz:
kernel/lib/libcrc32c.ko.xz:
kernel/drivers/nvdimm/libnvdimm.ko.xz:
kernel/drivers/nvdimm/nd_btt.ko.xz: kernel/drivers/nvdimm/libnvdimm.ko.xz
kernel/drivers/nvdimm/nd_pmem.ko.xz: kernel/drivers/nvdimm/nd_btt.ko.xz \
kernel/drivers/nvdimm/libnvdimm.ko.xz
kernel/drivers/acpi/nfit/nfit.ko.xz: kernel/drivers/nvdimm/libnvdimm.ko.xz
kernel/fs/erofs/erofs.ko.xz: kernel/lib/libcrc32c.ko.xz
kernel/drivers/misc/pvpanic/pvpanic-mmio.ko.xz:
"""
SOFT = "# a comment\nsoftdep libcrc32c pre: crc32c\nsoftdep erofs pre: nothing post: other\n"
ALIAS = "alias crc32c crc32c_intel\nalias crc32c crc32c_generic\nalias pci:v1 other\n"
BUILTIN = "kernel/fs/ext4/ext4.ko\n"


def vmlinux(note: int = 18, machine: int = 0x3E) -> bytes:
    """An ELF file with one note segment that holds one note of Xen's."""
    notes = struct.pack("<III", 4, 8, note) + b"Xen\0" + bytes(8)
    header = b"\x7fELF\x02\x01\x01" + bytes(9) + struct.pack("<HHI", 2, machine, 1)
    header += struct.pack("<QQQIHHHHHH", 0, 64, 0, 0, 64, 56, 1, 0, 0, 0)
    segment = struct.pack("<IIQQQQQQ", 4, 4, 120, 0, 0, len(notes), len(notes), 4)
    return header + segment + notes + f"Linux version {RELEASE} (x) ".encode()


@pytest.fixture
def installed(project: Path) -> Path:
    """A kernel as a distribution installs it, in a root of its own; gives its image."""
    root = project.parent / "root"
    modules = root / "lib/modules" / RELEASE
    for line in DEP.splitlines():
        path = modules / line.partition(":")[0]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(lzma.compress(f"module {path.name}".encode()))
    for name, text in (("dep", DEP), ("softdep", SOFT), ("alias", ALIAS), ("builtin", BUILTIN)):
        (modules / f"modules.{name}").write_text(text)
    image = root / "boot" / f"vmlinuz-{RELEASE}"
    image.parent.mkdir()
    image.write_bytes(bzimage())
    image.with_name(f"config-{RELEASE}").write_text("CONFIG_NUMA=y\n")
    return image


def unpack(archive: bytes, folder: Path) -> list[str]:
    folder.mkdir()
    done = subprocess.run(
        ["cpio", "--extract", "--make-directories", "--quiet", "--list"],
        input=archive, capture_output=True, check=True,
    )  # fmt: skip
    subprocess.run(
        ["cpio", "--extract", "--make-directories", "--quiet", "--nonmatching", "dev/*"],
        input=archive, capture_output=True, check=True, cwd=folder,
    )  # fmt: skip
    return done.stdout.decode().split()


def test_a_copy_that_was_cut_short_is_no_kernel() -> None:
    whole = bytearray(bzimage())
    whole[0x1F1] = 1
    struct.pack_into("<I", whole, 0x1F4, (len(whole) - 1024) // 16)
    assert parse_kernel_image(bytes(whole)).release == RELEASE
    with pytest.raises(NoKernel, match="it is cut short: 2047 of 2048 bytes"):
        parse_kernel_image(bytes(whole[:-1]))


def test_a_kernel_is_taken_in_with_the_modules_a_guest_needs(
    installed: Path, tmp_path: Path
) -> None:
    spec = find_kernel(str(installed))
    assert spec.is_prebuilt
    assert built_kernel(spec) is None
    built = ensure_kernel(spec)
    assert (built.release, built.spec_name, built.series) == (RELEASE, str(installed), ())
    assert not built.keeps_trace  # it is older than 6.12
    assert built.bzimage.read_bytes() == installed.read_bytes()
    assert built.config is not None
    assert built.config.read_text() == "CONFIG_NUMA=y\n"
    assert built.initrd is not None
    names = unpack(built.initrd.read_bytes(), tmp_path / "initrd")
    assert {"init", "modules", "root", "dev/console"} <= set(names)
    listed = (tmp_path / "initrd/modules").read_text().split()
    assert [name.partition("-")[2].removesuffix(".ko") for name in listed] == [
        "libnvdimm", "nfit", "nd_btt", "nd_pmem", "crc32c_generic", "libcrc32c", "erofs",
        "pvpanic_mmio",
    ]  # fmt: skip
    for name in listed:
        module = (tmp_path / "initrd" / name.lstrip("/")).read_text()
        assert module.replace("-", "_").startswith(f"module {name.partition('-')[2]}")
    assert built_kernel(spec) == built
    assert ensure_kernel(spec) == built


def test_the_initramfs_is_the_same_for_the_same_modules(installed: Path) -> None:
    spec = find_kernel(str(installed))
    first = ensure_kernel(spec)
    assert first.initrd is not None
    before = first.initrd.read_bytes()
    shutil.rmtree(first.bzimage.parent)
    for path in installed.parents[1].rglob("*"):
        os.utime(path, (1, 1))
    again = ensure_kernel(spec)
    assert again.initrd is not None
    assert (again.digest, again.initrd.read_bytes()) == (first.digest, before)
    module = installed.parents[1] / f"lib/modules/{RELEASE}/kernel/fs/erofs/erofs.ko.xz"
    module.write_bytes(lzma.compress(b"another"))
    assert ensure_kernel(spec).digest != first.digest


def test_a_kernel_without_what_a_guest_needs_is_refused(installed: Path) -> None:
    tree = installed.parents[1] / "lib/modules" / RELEASE
    (tree / "modules.builtin").write_text("")
    with pytest.raises(UserError, match="has no ext4, neither built in nor as a module in"):
        ensure_kernel(find_kernel(str(installed)))


def test_a_kernel_without_modules_needs_no_initramfs(project: Path) -> None:
    image = project.parent / "bzImage"
    image.write_bytes(bzimage("6.12.1"))
    built = ensure_kernel(find_kernel(str(image)))
    assert (built.initrd, built.config, built.config_hash) == (None, None, "")
    assert built.keeps_trace


def test_a_kernel_with_modules_that_are_not_here_is_refused(project: Path) -> None:
    image = project.parent / "bzImage"
    image.write_bytes(bzimage("6.12.1"))
    config = image.with_name("config-6.12.1")
    config.write_text("CONFIG_EROFS_FS=m\nCONFIG_EXT4_FS=y\n")
    with pytest.raises(UserError, match=r"modules for CONFIG_EROFS_FS, and there is no lib/mod"):
        ensure_kernel(find_kernel(str(image)))
    config.write_text("CONFIG_EROFS_FS=y\n")
    assert ensure_kernel(find_kernel(str(image))).initrd is None


def test_another_configuration_beside_a_kernel_makes_its_entry_again(project: Path) -> None:
    """Its digest stays: results hold it. An empty file is none."""
    image = project.parent / "bzImage"
    image.write_bytes(bzimage("6.12.1"))
    spec = find_kernel(str(image))
    digest = ensure_kernel(spec).digest
    for text in ("CONFIG_EROFS_FS=y\nCONFIG_SMP=y\n", "CONFIG_EROFS_FS=y\n", ""):
        image.with_name("config-6.12.1").write_text(text)
        assert built_kernel(spec) is None
        built = ensure_kernel(spec)
        assert (built.config.read_text() if built.config else "") == text
        assert built.digest == digest
        assert built_kernel(spec) == built


def test_a_package_file_is_unpacked(installed: Path, project: Path) -> None:
    root = installed.parents[1]
    (root / "DEBIAN").mkdir()
    (root / "DEBIAN/control").write_text(
        "Package: linux-image-x\nVersion: 1\nArchitecture: all\nMaintainer: x\nDescription: x\n"
    )
    (root / f"lib/modules/{RELEASE}/modules.dep").unlink()  # depmod makes it
    package = project.parent / "linux-image.deb"
    subprocess.run(
        ["dpkg-deb", "-Znone", "--root-owner-group", "--build", root, package],
        check=True, capture_output=True,
    )  # fmt: skip
    shutil.rmtree(root)
    built = ensure_kernel(find_kernel(str(package)))
    assert built.release == RELEASE
    assert built.initrd is not None
    assert b"module erofs.ko" in built.initrd.read_bytes()
    package.write_bytes(package.read_bytes()[:2000])
    with pytest.raises(UserError, match=r"linux-image\.deb: cannot be unpacked"):
        ensure_kernel(find_kernel(str(package)))


def test_a_fetched_package_that_changes_in_the_cache_is_not_unpacked(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = project.parent / "linux-image.deb"
    package.write_bytes(b"what apt did not verify")
    fetched = Fetched((package,), ("linux-image-x=1",), "5" * 64)
    monkeypatch.setattr(prebuilt_kernel, "fetch_packages", lambda *_: fetched)
    monkeypatch.setattr(prebuilt_kernel, "fetched_packages", lambda *_: fetched)
    with pytest.raises(HostError, match="linux-image-x=1 changed after they were fetched"):
        ensure_kernel(find_kernel("deb:linux-image-x"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("no words", "it is neither a bzImage nor a vmlinux"),
        ("", "it is neither a bzImage nor a vmlinux"),
    ],
)
def test_a_file_that_is_no_kernel(project: Path, text: str, message: str) -> None:
    file = project.parent / "file"
    file.write_text(text)
    with pytest.raises(UserError, match=message):
        ensure_kernel(find_kernel(str(file)))


def test_what_the_catalogue_says_of_prebuilt_kernels(
    project: Path, pack: Callable[..., Path]
) -> None:
    file = project / "kernel-configs/kernels.toml"
    more = '[kernel.theirs]\nsummary = "x"\nsource = "deb:linux-image-amd64/sid"\n'
    file.write_text(file.read_text() + more)
    assert find_kernel("theirs").is_prebuilt
    assert find_kernel("deb:linux-image-amd64").source == "deb:linux-image-amd64"
    assert built_kernel(find_kernel("theirs")) is None
    text = file.read_text()
    file.write_text(text + 'series = ["change"]\n')
    with pytest.raises(UserError, match="theirs: a prebuilt kernel takes no fragm"):
        find_kernel("theirs")
    file.write_text(text)
    with pytest.raises(UserError, match="no such file or folder"):
        find_kernel("/no/such/kernel")
    with pytest.raises(UserError, match="no kernel is called 'vmlinuz'"):
        find_kernel("vmlinuz")
    # A source without fragments would be taken for a kernel that is built.
    file.write_text('[kernel.bare]\nsummary = "x"\nsource = "linux-source-9.9"\n')
    with pytest.raises(UserError, match=r"kernel\.bare: names no fragments \(valid: guest\)"):
        find_kernel("bare")


def test_headers_are_recognised() -> None:
    assert parse_kernel_image(bzimage()) == KernelImage("bzImage", RELEASE)
    assert parse_kernel_image(vmlinux()) == KernelImage("vmlinux", RELEASE)
    for data, why in (
        (vmlinux(note=1), "no PVH entry"),
        (vmlinux(machine=0xB7), "not for x86-64"),
        (vmlinux()[:-30], "its version is unknown"),
        (bzimage(""), "its header has no version"),
    ):
        with pytest.raises(NoKernel, match=why):
            parse_kernel_image(data)


@given(st.binary(max_size=300), st.sampled_from([b"", b"\x7fELF\x02\x01", bzimage(), vmlinux()]))
def test_any_bytes_are_a_kernel_or_not(data: bytes, begin: bytes) -> None:
    with suppress(NoKernel):
        parse_kernel_image(begin[: len(data) * 9] + data)


def test_modules_come_after_what_they_need() -> None:
    index = parse_index(DEP, SOFT, ALIAS, BUILTIN)
    order, missing = load_order(index, ("nfit", "nd_pmem", "erofs", "ext4", "xfs"))
    assert missing == ("xfs",)
    for place, path in enumerate(order):
        assert all(need in order[:place] for need in index.needs[path])
    circle = parse_index("a.ko: b.ko\nb.ko: a.ko\n", "", "", "")
    assert load_order(circle, ("a",)) == (("b.ko", "a.ko"), ())


FILES = st.dictionaries(st.from_regex(r"[a-z]{1,8}(/[a-z]{1,8})?", fullmatch=True), st.binary())


@given(FILES)
def test_cpio_reads_back_what_was_packed(files: dict[str, bytes]) -> None:
    names = set(files)
    files = {name: data for name, data in files.items() if not any(
        other.startswith(f"{name}/") for other in names)}  # fmt: skip
    archive = pack_cpio(files, {})
    prebuilt = {}
    at = 0
    while True:
        fields = [int(archive[at + 6 + 8 * i : at + 14 + 8 * i], 16) for i in range(13)]
        name = archive[at + 110 : at + 110 + fields[11] - 1].decode()
        if name == "TRAILER!!!":
            break
        begin = at + (110 + fields[11] + 3) // 4 * 4
        if fields[1] & 0o170000 == 0o100000:
            prebuilt[name] = archive[begin : begin + fields[6]]
        at = begin + (fields[6] + 3) // 4 * 4
    assert prebuilt == files
    assert pack_cpio(dict(reversed(files.items())), {}) == archive


def test_a_missing_kernel_is_named() -> None:
    spec = KernelSpec("gone", "", "/no/such/vmlinuz")
    with pytest.raises(UserError, match="/no/such/vmlinuz: no such file"):
        ensure_kernel(spec)
