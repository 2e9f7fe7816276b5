"""An image as ext4, for kernels that cannot mount erofs: the same files, made once.

Linux has erofs since 5.4 (fs/erofs). It is unpacked from the erofs image, so that an image which
was built on another host has one as well.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from numalab.artifact.builder import Artifact, Work, build, existing_file
from numalab.artifact.kinds import Kind, register_kind
from numalab.errors import BuildError
from numalab.ext4.layout import DamagedDisk
from numalab.ext4.volume import claim_inodes
from numalab.image.image_artifact import BuiltImage
from numalab.image.package_tarball import EPOCH
from numalab.process import CommandFailed, find_program, run
from numalab.progress import Progress, no_progress

EXT4_IMAGES = register_kind(Kind(name="ext4 image", folder="images/ext4", files="*.ext4"))
_FORMAT = "1"  # raise it when the image of the same inputs changes
_BLOCK = 4096
_ALIGN = 2 << 20  # an NVDIMM's size is a multiple of this
_UUID = "6e756d61-6c61-4220-a069-6d6167650002"
# No journal, no checksums, and nothing that a kernel of 2015 cannot mount.
_FEATURES = "none,extent,filetype,dir_index,dir_nlink,extra_isize,large_file,sparse_super"
TOOLS = {"fsck.erofs": "erofs-utils", "mke2fs": "e2fsprogs"}


@dataclass(frozen=True)
class _Size:
    """The size of a tree: its files, folders and links, and the blocks of their data."""

    inodes: int
    blocks: int


def ensure_ext4(image: BuiltImage, on_progress: Progress = no_progress) -> Path:
    """Return the files of an image as an ext4 file, whose size is a multiple of 2 MiB.

    It depends only on the erofs image. Raises HostError for a missing tool and a full disk,
    BuildError.
    """
    return build(_artifact(image), on_progress)


def _artifact(image: BuiltImage) -> Artifact[Path]:
    entry = EXT4_IMAGES.entry(f"{image.digest[:32]}-{_FORMAT}.ext4")
    make = partial(_make_ext4, image.path)
    return Artifact(EXT4_IMAGES, image.name, entry, make, existing_file, tools=TOOLS)


def _make_ext4(erofs: Path, work: Work) -> None:
    work.tell("packing the image as ext4", None)
    tree = work.entry.with_name("tree")
    extract = ["fsck.erofs", f"--extract={tree}", "--preserve-perms", "--no-preserve-owner"]
    work.step([*extract, erofs], env={"LC_ALL": "C"})
    pack_ext4(tree, work.entry)


def pack_ext4(tree: Path, target: Path) -> None:
    """Pack a tree into an ext4 file that depends only on the tree's names, modes and contents.

    All belongs to root and has one time stamp, as in the erofs image. Raises HostError for a
    missing tool, BuildError.
    """
    size = _size(tree)
    groups = -(-size.blocks // (8 * _BLOCK)) + 1
    blocks = size.blocks + size.inodes // 8 + 40 * groups + 1024  # inodes have 256 bytes
    length = -(-blocks * _BLOCK // _ALIGN) * _ALIGN
    fixed = {"E2FSPROGS_FAKE_TIME": str(EPOCH), "SOURCE_DATE_EPOCH": str(EPOCH)}
    extended = f"hash_seed={_UUID},lazy_itable_init=0,nodiscard,root_owner=0:0"
    argv = [find_program("mke2fs", "e2fsprogs"), "-q", "-F", "-t", "ext4", "-O", _FEATURES]
    argv += ["-E", extended, "-U", _UUID, "-b", _BLOCK, "-N", size.inodes + 64, "-m", "0"]
    with target.open("wb") as file:
        file.truncate(length)
    try:
        run([*map(str, argv), "-d", tree, target], env=fixed)
        claim_inodes(target, EPOCH)
    except CommandFailed as failed:
        raise BuildError("mke2fs failed", tail=failed.completed.stderr[-2000:]) from None
    except DamagedDisk as damage:
        raise BuildError(f"mke2fs did not make {target} as requested: {damage}") from None


def _size(tree: Path) -> _Size:
    """Measure a tree; a folder counts for one block and one for each 64 names."""
    inodes = blocks = 0
    for path in _below(tree):
        inodes += 1
        if path.is_symlink():
            blocks += 1
        elif path.is_dir():
            blocks += 1 + sum(1 for _ in path.iterdir()) // 32
        else:
            blocks += -(-path.stat().st_size // _BLOCK) + 1
    return _Size(inodes, blocks)


def _below(folder: Path) -> Iterator[Path]:
    yield folder
    yield from folder.rglob("*")
