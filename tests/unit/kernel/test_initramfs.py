"""What an initramfs holds: init, and modules unpacked, in the order in which they are loaded."""

import gzip
import lzma
import subprocess
from pathlib import Path

import pytest

from numalab.errors import UserError
from numalab.kernel.initramfs import NEEDED, choose_modules, make_initramfs

EXT4 = "kernel/ext4.ko\n"


def unpacked(archive: bytes, folder: Path) -> Path:
    folder.mkdir()
    subprocess.run(
        ["cpio", "--extract", "--make-directories", "--quiet", "--nonmatching", "dev/*"],
        input=archive, capture_output=True, check=True, cwd=folder,
    )  # fmt: skip
    return folder


def test_modules_are_unpacked_and_numbered_as_they_are_loaded(tmp_path: Path) -> None:
    plain, packed, zipped = (tmp_path / f"{name}.ko{end}" for name, end in (
        ("zeta", ""), ("nd-pmem", ".xz"), ("alpha", ".gz")))  # fmt: skip
    plain.write_bytes(b"zeta")
    packed.write_bytes(lzma.compress(b"pmem"))
    zipped.write_bytes(gzip.compress(b"alpha"))
    (tmp_path / "one.ko").write_bytes(b"one")
    subprocess.run(["zstd", "--quiet", tmp_path / "one.ko"], check=True)
    gcc = unpacked(
        make_initramfs([plain, packed, zipped, tmp_path / "one.ko.zst"]), tmp_path / "root"
    )
    order = (gcc / "modules").read_text().split()
    assert order == ["/lib/00-zeta.ko", "/lib/01-nd_pmem.ko", "/lib/02-alpha.ko", "/lib/03-one.ko"]
    held = [(gcc / path.lstrip("/")).read_bytes() for path in order]
    assert held == [b"zeta", b"pmem", b"alpha", b"one"]
    assert (gcc / "init").read_bytes()[:4] == b"\x7fELF"


@pytest.mark.parametrize("suffix", [".xz", ".gz"])
def test_a_damaged_module_is_named(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"erofs.ko{suffix}"
    path.write_bytes(b"this is not packed")
    with pytest.raises(UserError, match=rf"erofs\.ko{suffix}: cannot be unpacked"):
        make_initramfs([path])


def tree(folder: Path, dep: str, builtin: str = "") -> Path:
    folder.mkdir(parents=True)
    for name, text in (("dep", dep), ("softdep", ""), ("alias", ""), ("builtin", builtin)):
        (folder / f"modules.{name}").write_text(text)
    return folder


def test_what_is_built_in_is_not_loaded(tmp_path: Path) -> None:
    built_in = "".join(f"kernel/{name}.ko\n" for name in NEEDED)
    assert choose_modules(tree(tmp_path / "m", "", built_in), "mine") == ()


def test_a_module_comes_after_those_it_needs_and_once(tmp_path: Path) -> None:
    dep = "k/erofs.ko: k/crc.ko\nk/crc.ko:\nk/nfit.ko: k/libnvdimm.ko\nk/libnvdimm.ko:\n"
    dep += "k/nd_pmem.ko: k/libnvdimm.ko\n"
    folder = tree(tmp_path / "m", dep, EXT4)
    names = [path.relative_to(folder).name for path in choose_modules(folder, "mine")]
    assert sorted(names) == ["crc.ko", "erofs.ko", "libnvdimm.ko", "nd_pmem.ko", "nfit.ko"]
    assert names.index("crc.ko") < names.index("erofs.ko")
    assert names.index("libnvdimm.ko") < min(names.index("nfit.ko"), names.index("nd_pmem.ko"))


def test_what_a_guest_needs_and_is_nowhere_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"mine: has no erofs, neither built in nor as a module"):
        choose_modules(
            tree(tmp_path / "m", "", "kernel/nfit.ko\nkernel/nd_pmem.ko\n" + EXT4), "mine"
        )
