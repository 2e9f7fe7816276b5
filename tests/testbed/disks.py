"""What the test bed's host is given on disks of its own, as erofs files: each is made once.

`python`: the packages of requirements.lock, from the virtual environment that runs the tests.
`project`: numalab and its data, as they are now. `guests`: a kernel and a root for its guests.
"""

import compileall
import hashlib
import os
import py_compile
import re
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Callable
from contextlib import suppress
from importlib import metadata
from pathlib import Path

PROJECT = Path(__file__).parents[2]
_ALIGN = 2 << 20  # an NVDIMM's size is a multiple of this
_PINNED = re.compile(r"^([A-Za-z0-9_.-]+)==", re.MULTILINE)


def python_disk(cache: Path) -> Path:
    """Return the disk with the packages that numalab runs with; made where `cache` lacks it."""
    lock = (PROJECT / "requirements.lock").read_bytes()
    names = _PINNED.findall(lock.decode())

    def fill(tree: Path) -> None:
        for name in names:
            for file in metadata.distribution(name).files or ():
                source = Path(str(file.locate()))
                if ".." not in file.parts and source.exists():
                    _link(source, tree / file)

    return _cached(cache, "python", hashlib.sha256(lock).hexdigest(), fill)


def project_disk(folder: Path) -> Path:
    """Make the disk with numalab as it is in the working tree, uncommitted changes included."""
    tree = folder / "project"
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    listed = subprocess.run(command, cwd=PROJECT, check=True, capture_output=True, text=True)
    for name in filter(None, listed.stdout.split("\0")):
        if (PROJECT / name).is_file() and not name.startswith(("reports/", "tests/data/capture")):
            _link(PROJECT / name, tree / name)
    # What `numalab --version` and a report say of it.
    for file in metadata.distribution("numalab").files or ():
        if file.parts[0].endswith(".dist-info"):
            _link(Path(str(file.locate())), tree / "lab" / file)
    entry = next(iter(metadata.entry_points(group="console_scripts", name="numalab")))
    program = tree / "bin" / "numalab"
    program.parent.mkdir()
    program.write_text(
        # As pip makes it: worker processes import it once more.
        f"#!/usr/bin/python3\nimport sys\nfrom {entry.module} import {entry.attr}\n"
        f'if __name__ == "__main__":\n    sys.exit({entry.attr}())\n'
    )
    program.chmod(0o755)
    # An emulated CPU would compile for seconds at every start.
    unchecked = py_compile.PycInvalidationMode.UNCHECKED_HASH
    compileall.compile_dir(tree / "lab", quiet=1, invalidation_mode=unchecked)
    disk = folder / "project.erofs"
    _pack(tree, "project", disk)
    return disk


def guests_disk(cache: Path, kernel: Path, image: Path) -> Path:
    """Return the disk with a guest's `bzImage` and its image's folder `base`, made once for both.

    `kernel` and `image` lie in numalab's cache, where a folder's name says what is in it.
    """

    def fill(tree: Path) -> None:
        _link(kernel, tree / "bzImage")
        for file in image.iterdir():
            _link(file, tree / "base" / file.name)

    return _cached(cache, "guests", f"{kernel.parent.name} {image.name}", fill)


def _cached(cache: Path, name: str, inputs: str, fill: Callable[[Path], None]) -> Path:
    digest = hashlib.sha256(f"2 {name} {inputs}".encode()).hexdigest()[:32]
    disk = cache / f"{name}-{digest}.erofs"
    if not disk.exists():
        with tempfile.TemporaryDirectory(prefix=".disk.", dir=cache) as scratch:
            tree, made = Path(scratch) / "tree", Path(scratch) / "made"
            tree.mkdir()
            fill(tree)
            _pack(tree, name, made)
            made.replace(disk)
    return disk


def _link(source: Path, target: Path) -> None:
    """Put a file into a tree: a link where both are on one file system, a copy otherwise.

    What only its owner may read is copied, and made readable: the bed's ordinary user needs it too.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    mode = source.stat().st_mode
    if mode & stat.S_IROTH:
        with suppress(OSError):
            os.link(source, target)
            return
    shutil.copy2(source, target)
    target.chmod(mode | stat.S_IRGRP | stat.S_IROTH)


def _pack(tree: Path, name: str, target: Path) -> None:
    # The runner's host mounts it at /disk/NAME. Times stay: byte code is checked against them.
    (tree / ".name").write_text(f"{name}\n")
    subprocess.run(["mkfs.erofs", "--all-root", "--quiet", target, tree], check=True)
    with target.open("ab") as file:
        file.truncate(-(-file.tell() // _ALIGN) * _ALIGN)
