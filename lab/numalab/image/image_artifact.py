"""Builds a root file system in two layers.

The first layer is a tarball of Debian packages; it takes a minute and changes with the recipe. The
second is the erofs image with the guest's scripts and programs; it takes seconds.
"""

import hashlib
import shutil
import stat
import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from numalab.artifact.builder import Artifact, Work, build, cached, existing_file
from numalab.artifact.cache import HOUR, keep_newest
from numalab.artifact.digest import hash_file, remembered
from numalab.artifact.kinds import Kind, record_title, register_kind
from numalab.artifact.program_artifact import compile_program, programs_digest
from numalab.document import read_record
from numalab.errors import BuildError, HostError, UserError
from numalab.files import reading, write_json
from numalab.image.package_tarball import EPOCH, HOST_FILES, installed_packages, pack_packages
from numalab.image.recipe import PackedImage, Recipe, images_dir
from numalab.process import CommandFailed, find_program, run
from numalab.progress import Progress, no_progress

GUEST_DIR = "usr/lib/numalab"
# Mount points of the guest's init that Debian does not have.
_MOUNT_POINTS = ("job", "dev", "proc", "sys", "run", "tmp", "root", "var/tmp")
_LAYOUT = "2"  # raise it when the image of the same inputs changes
_ROOT, _RECORD = "root.erofs", "image.json"
_EROFS_MAGIC = 0xE0F5E1E2.to_bytes(4, "little")
_MOST = 6  # images of a recipe
_ALIGN = 2 << 20  # an NVDIMM's size is a multiple of this
_PATH = ("/usr/local/sbin/", "/usr/local/bin/", "/usr/sbin/", "/usr/bin/")  # images/guest/init
MAX_LINKS = 40  # as many as Linux follows (fs/namei.c, MAXSYMLINKS)


@dataclass(frozen=True)
class BuiltImage:
    """A root file system in the cache: an erofs file whose size is a multiple of 2 MiB.

    `digest` is that of all inputs; its first 32 digits are the UUID, which is all that is known of
    an older image that is used by its folder. `packages` are `name=version`.
    """

    name: str
    path: Path
    digest: str
    size: int
    packages: tuple[str, ...]


PACKAGES = register_kind(Kind(name="packages", folder="images/packages", files="*.tar"))
IMAGES = register_kind(
    Kind(name="image", folder="images", title=record_title("image.json", "recipe"))
)


def ensure_image(recipe: Recipe, *, on_progress: Progress = no_progress) -> BuiltImage:
    """Return the recipe's image, building the layers that the cache does not have.

    Raises UserError for a package that the suite lacks, HostError for a missing tool or a full
    disk, and BuildError.
    """
    if recipe.built is not None:
        return _prebuilt_image(recipe, recipe.built)
    packages = build(
        _packages_artifact(recipe), lambda step, done: on_progress(step, done and done * 0.9)
    )
    return build(_image_artifact(recipe, packages), on_progress)


def built_image(recipe: Recipe) -> BuiltImage | None:
    """Return the recipe's image if the cache has it, else None. Nothing is built."""
    if recipe.built is not None:
        return _prebuilt_image(recipe, recipe.built)
    packages = cached(_packages_artifact(recipe))
    return None if packages is None else cached(_image_artifact(recipe, packages))


def has_program(image: Path, name: str) -> bool:
    """Return whether an image has a program, by its name or its absolute path.

    `dump.erofs` follows no links, and in Debian /bin and /sbin are links to those of /usr. Raises
    HostError where it is not installed.
    """
    folders = ("",) if name.startswith("/") else _PATH
    for path in (f"{folder}{name}" for folder in folders):
        inside = f"/usr{path}" if path.startswith(("/bin/", "/sbin/", "/lib")) else path
        reader = find_program("dump.erofs", "erofs-utils")
        if run([reader, f"--path={inside}", image], check=False, timeout=60).stdout:
            return True
    return False


def _packages_artifact(recipe: Recipe) -> Artifact[Path]:
    def make(work: Work) -> None:
        pack_packages(recipe, work.entry, work.log, work.tell)

    entry = PACKAGES.entry(f"{packages_digest(recipe)[:32]}.tar")
    return Artifact(PACKAGES, recipe.name, entry, make, existing_file)


def _image_artifact(recipe: Recipe, packages: Path) -> Artifact[BuiltImage]:
    digest = _image_digest(recipe, packages)

    def make(work: Work) -> None:
        work.tell("packing the image", 0.92)
        work.entry.mkdir(mode=0o755)
        installed = _pack_image(recipe, packages, digest, work.entry / _ROOT)
        record = {"recipe": recipe.name, "packages": installed, "digest": digest}
        write_json(work.entry / _RECORD, record)
        # An overlay that changes makes one each time.
        keep_newest(IMAGES, _MOST - 1, recipe.name, unused_for=HOUR)

    entry = IMAGES.entry(digest[:32])
    return Artifact(IMAGES, recipe.name, entry, make, partial(_read_image, recipe, digest))


def _prebuilt_image(recipe: Recipe, folder: Path) -> BuiltImage:
    built = _read_image(recipe, _written_digest(folder / _ROOT), folder)
    if built is None:
        reason = "no image in this folder: its image.json is damaged, or root.erofs is not whole"
        raise UserError(reason, file=folder)
    return built


def _read_image(recipe: Recipe, digest: str, folder: Path) -> BuiltImage | None:
    """Return the image in a folder; None where there is none, or it is not whole."""
    path, record = folder / _ROOT, read_record(folder / _RECORD, PackedImage)
    if record is None or not path.is_file():
        return None
    block = _superblock(path)
    blocks = int.from_bytes(block[36:40], "little") << block[12] if block else 0
    if not block or block[48:64].hex() != digest[:32] or path.stat().st_size < blocks:
        return None
    whole = record.digest if record.digest.startswith(digest) else digest
    return BuiltImage(recipe.name, path, whole, path.stat().st_size, record.packages)


def _written_digest(path: Path) -> str:
    """Read the part of the digest that `make_erofs` wrote into an image: its UUID.

    Raises UserError for a file that is no erofs image.
    """
    with reading(path):
        block = _superblock(path)
    if not block:
        raise UserError("is no erofs image", file=path)
    return block[48:].hex()


def _superblock(path: Path) -> bytes:
    """Return the superblock of an erofs image, b"" for another file. Raises OSError.

    It is at 1024, with log2 of the block size at byte 12, the number of blocks at 36 and the UUID
    at 48 (struct erofs_super_block, fs/erofs/erofs_fs.h, Linux 6.12).
    """
    with path.open("rb") as file:
        file.seek(1024)
        block = file.read(64)
    return block if len(block) == 64 and block[:4] == _EROFS_MAGIC else b""


def packages_digest(recipe: Recipe) -> str:
    """Return the hash of the inputs of the first layer."""
    rest = ("exclude", *recipe.exclude, "post", *recipe.post)
    return _hash([_LAYOUT, recipe.suite, recipe.variant, *recipe.packages, *rest])


def _image_digest(recipe: Recipe, packages: Path) -> str:
    """Hash the inputs of the second layer: packages, the guest's and other files, programs."""
    parts = [_LAYOUT, str(EPOCH), remembered(packages, lambda _: {})["sha256"], *HOST_FILES]
    guest = (path for path in (images_dir() / "guest").rglob("*") if path.is_file())
    for path in sorted(guest):
        parts += [str(path.relative_to(images_dir())), oct(path.stat().st_mode & 0o111)]
        parts.append(hash_file(path))
    for folder in recipe.files:
        parts += ["files", *describe_tree(folder)]
    return _hash([*parts, programs_digest(_sources())])


def _sources() -> list[Path]:
    return sorted((images_dir() / "src").glob("*.[ch]"))


def _pack_image(recipe: Recipe, packages: Path, digest: str, target: Path) -> list[str]:
    """Write the image; return its packages as `name=version`."""
    tree = target.parent.with_name("root")
    tree.mkdir()
    excluded = [f"--exclude={pattern}" for pattern in HOST_FILES]
    # Modes as they are in the tarball, whatever the umask and whoever builds.
    modes = ["--no-same-owner", "--preserve-permissions"]
    _step(recipe, ["tar", "-xf", packages, "-C", tree, *modes, *excluded])
    _add_guest(tree)
    for folder in recipe.files:
        copy_onto(folder, tree)
    status = (tree / "var/lib/dpkg/status").read_text(encoding="utf-8", errors="replace")
    make_erofs(tree, target, digest)
    _check_size(recipe, target.stat().st_size, tree)
    return list(installed_packages(status))


def _check_size(recipe: Recipe, size: int, tree: Path) -> None:
    if size > recipe.limit_mib << 20:
        top = [folder for folder in tree.iterdir() if not folder.is_symlink()]
        folders = [path for folder in top for path in folder.glob("*/") if not path.is_symlink()]
        sizes = {f"/{folder.relative_to(tree)}": _bytes_below(folder) for folder in folders}
        largest = sorted(sizes, key=sizes.__getitem__, reverse=True)[:3]
        shown = ", ".join(f"{name} {sizes[name] >> 20} MiB" for name in largest)
        reason = f"the image has {size >> 20} MiB, more than {recipe.limit_mib} ({shown})"
        raise UserError(reason, file=recipe.file, key="limit_mib")


def _bytes_below(folder: Path) -> int:
    return sum(path.lstat().st_size for path in folder.rglob("*") if not path.is_dir())


def _add_guest(tree: Path) -> None:
    """Put the guest's scripts and programs into the tree, and the folders init mounts on."""
    for folder in (*_MOUNT_POINTS, str(Path(GUEST_DIR).parent)):
        for path in reversed([tree / folder, *(tree / folder).parents]):
            if not path.is_dir():
                path.mkdir()
                path.chmod(0o755)  # mkdir's own mode is cut by the umask
    ours = tree / GUEST_DIR
    shutil.copytree(images_dir() / "guest", ours)
    for source in _sources():
        if source.suffix == ".c":
            compile_program(source, ours / source.stem, include=[source.parent])
    hostname, hosts = tree / "etc/hostname", tree / "etc/hosts"
    hostname.write_text("guest\n", encoding="ascii")
    hosts.write_text("127.0.0.1 localhost guest\n", encoding="ascii")
    for path in (hostname, hosts, ours, *ours.rglob("*")):
        path.chmod(0o755 if path.is_dir() or path.stat().st_mode & 0o100 else 0o644)


def make_erofs(tree: Path, target: Path, digest: str) -> None:
    """Pack a tree into an erofs image that depends only on the tree and `digest`.

    Every file belongs to root and has one time stamp; the image's UUID is `digest` (hexadecimal).
    The data is not compressed: an emulated CPU would unpack it at every boot.
    """
    program = find_program("mkfs.erofs", "erofs-utils")
    label = str(uuid.UUID(hex=digest[:32]))
    try:
        run([program, f"-T{EPOCH}", "-U", label, "--all-root", "-x-1", "--quiet", target, tree])
    except CommandFailed as failed:
        raise BuildError("mkfs.erofs failed", tail=failed.completed.stderr) from None
    with target.open("ab") as file:
        file.truncate(-(-file.tell() // _ALIGN) * _ALIGN)


def _step(recipe: Recipe, argv: list[str | Path]) -> None:
    try:
        run(argv)
    except CommandFailed as failed:
        if "No space left" in failed.completed.stderr:
            raise HostError("the disk is full", hint="free 1 GiB below ~/.cache") from None
        raise BuildError(
            f"image {recipe.name}: {argv[0]} failed", tail=failed.completed.stderr[-2000:]
        ) from None


def _hash(parts: Iterable[str]) -> str:
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogateescape")).hexdigest()


def describe_tree(folder: Path) -> list[str]:
    """Return names, modes, content hashes and link targets of all files below a folder.

    Raises UserError for a device, a pipe or a socket.
    """
    parts = []
    for path in sorted(folder.rglob("*")):
        mode = path.lstat().st_mode
        parts += [str(path.relative_to(folder)), oct(mode)]
        if stat.S_ISLNK(mode):
            parts.append(str(path.readlink()))
        elif stat.S_ISREG(mode):
            parts.append(hash_file(path))
        elif not stat.S_ISDIR(mode):
            raise UserError("neither a file, a folder nor a link", file=path)
    return parts


def copy_onto(folder: Path, tree: Path) -> None:
    """Copy a folder's files over a tree, with their modes; existing files are replaced.

    A folder that is a link in the tree (`/bin`, `/var/run`) is followed inside the tree, never out
    of it. Raises UserError for a file where the tree has a folder, and for the reverse.
    """
    for path in sorted(folder.rglob("*")):
        relative = path.relative_to(folder)
        parent = _inside(tree, relative.parent)
        target = parent / relative.name
        is_folder = path.is_dir() and not path.is_symlink()
        if is_folder:
            target = _inside(tree, relative)
        if target.exists() and target.is_dir() != is_folder and not target.is_symlink():
            kind = "a folder" if target.is_dir() else "a file"
            raise UserError(f"the image has {kind} of this name", file=path)
        if is_folder:
            target.mkdir(parents=True, exist_ok=True)  # the target of a link may be missing
            target.chmod(stat.S_IMODE(path.stat().st_mode))
        else:
            target.unlink(missing_ok=True)
            shutil.copy2(path, target, follow_symlinks=False)


def _inside(tree: Path, relative: Path) -> Path:
    """Return the target of a path below `tree` for a process that has `tree` as its root."""
    folder, rest, links = tree, list(relative.parts), 0
    while rest:
        part = rest.pop(0)
        if part in ("..", "/"):
            folder = tree if part == "/" or folder == tree else folder.parent
            continue
        if (folder / part).is_symlink():
            links += 1
            if links > MAX_LINKS:
                raise UserError("too many links in the image", file=str(relative))
            rest = [*(folder / part).readlink().parts, *rest]
            continue
        folder = folder / part
    return folder
