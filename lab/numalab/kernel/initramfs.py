"""The initramfs of a kernel whose drivers are modules: a guest's modules, and a small init."""

import gzip
import lzma
import re
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from numalab.artifact.program_artifact import compile_program
from numalab.errors import UserError
from numalab.places import find_input, shipped_dir
from numalab.process import find_program, run

# The format newc: Documentation/driver-api/early-userspace/buffer-format.rst, Linux 6.12.
_DIRECTORY, _FILE, _DEVICE = 0o040755, 0o100755, 0o020600
_END = "TRAILER!!!"
_CONSOLE = (5, 1)  # /dev/console, which the kernel opens for init
# Without these no guest comes up: NVDIMMs from ACPI, /dev/pmemN, the root, the job disk.
NEEDED = ("nfit", "nd_pmem", "erofs", "ext4")
# Report a panic to the host at once. Without them the console shows it.
WELCOME = ("pvpanic_mmio", "pvpanic_pci", "pvpanic")


@dataclass(frozen=True)
class ModuleIndex:
    """The files of depmod for a kernel; names with underscores, relative paths."""

    paths: dict[str, str]
    needs: dict[str, tuple[str, ...]]  # paths, in the order of modules.dep
    before: dict[str, tuple[str, ...]]  # soft dependencies: names or aliases
    aliases: dict[str, tuple[str, ...]]  # modules by alias
    builtin: frozenset[str]


def init_source() -> Path:
    """Return the C source of the initramfs's init."""
    return find_input("kernel-configs", "initramfs.c") or (
        shipped_dir() / "kernel-configs" / "initramfs.c"
    )


def choose_modules(tree: Path, kernel: str) -> tuple[Path, ...]:
    """Return the module files below `tree` (lib/modules/RELEASE) to load, in order.

    Raises UserError for drivers that `kernel` has neither built in nor as modules.
    """
    index = read_index(tree)
    order, missing = load_order(index, NEEDED)
    if missing:
        raise UserError(
            f"has no {', '.join(missing)}, neither built in nor as a module in {tree}; a guest"
            f" needs {', '.join(NEEDED)}",
            file=kernel,
        )
    more, _ = load_order(index, WELCOME)
    return tuple(tree / path for path in dict.fromkeys((*order, *more)))


def read_index(tree: Path) -> ModuleIndex:
    """Read the files of depmod in `tree`, which it writes if necessary. Raises HostError."""

    def text(name: str) -> str:
        path = tree / name
        return path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""

    if not (tree / "modules.dep").is_file():
        # A package's own tree has none: its installation runs depmod.
        base = tree.parents[2]
        run([find_program("depmod", "kmod"), "--basedir", base, tree.name])
    return parse_index(*map(text, ("modules.dep", "modules.softdep", "modules.alias",
                                   "modules.builtin")))  # fmt: skip


def make_initramfs(modules: Sequence[Path]) -> bytes:
    """Pack init and the modules, in the order in which they are loaded. Raises BuildError."""
    with tempfile.TemporaryDirectory() as scratch:
        init = Path(scratch) / "init"
        compile_program(init_source(), init)
        files = {"init": init.read_bytes(), "root/.keep": b""}
    names = [f"lib/{number:02d}-{module_name(path.name)}.ko" for number, path in enumerate(modules)]
    for name, path in zip(names, modules, strict=True):
        files[name] = _plain(path)
    files["modules"] = "".join(f"/{name}\n" for name in names).encode()
    return pack_cpio(files, {"dev/console": _CONSOLE})


def _plain(module: Path) -> bytes:
    """Return a module's bytes, unpacked: some kernels do not unpack modules."""
    data = module.read_bytes()
    try:
        if module.suffix == ".xz":
            return lzma.decompress(data)
        if module.suffix == ".gz":
            return gzip.decompress(data)
    except (lzma.LZMAError, OSError, EOFError) as error:
        raise UserError(f"cannot be unpacked: {error}", file=module) from None
    if module.suffix == ".zst":
        with tempfile.TemporaryDirectory() as scratch:
            plain = Path(scratch) / "module"
            run([find_program("zstd", "zstd"), "--quiet", "-d", module, "-o", plain])
            return plain.read_bytes()
    return data


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


def parse_index(dep: str, softdep: str, alias: str, builtin: str) -> ModuleIndex:
    """Read modules.dep, .softdep, .alias and .builtin."""
    paths, needs = {}, {}
    for line in dep.splitlines():
        path, colon, rest = line.partition(":")
        if colon:
            paths[module_name(path)] = path
            needs[path] = tuple(rest.split())
    before = dict(_softdeps(softdep))
    aliases: dict[str, tuple[str, ...]] = {name: () for names in before.values() for name in names}
    for line in alias.splitlines():
        words = line.split()
        if len(words) == 3 and words[1] in aliases:
            aliases[words[1]] += (words[2].replace("-", "_"),)
    built_in = frozenset(module_name(line) for line in builtin.split())
    return ModuleIndex(paths, needs, before, aliases, built_in)


def module_name(path: str) -> str:
    """Return the name of the module in a file: no folder, no .ko.xz, no dashes."""
    return re.sub(r"\.ko(\.\w+)?$", "", path.rpartition("/")[2]).replace("-", "_")


def load_order(index: ModuleIndex, names: Iterable[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the module files to load, dependencies first, and the names that are missing.

    Built-in drivers and missing soft dependencies are left out.
    """
    order: list[str] = []
    missing = []

    def add(path: str, above: tuple[str, ...]) -> None:
        if path in order or path in above:
            return
        # modules.dep lists dependencies in reverse order.
        for needed in reversed(index.needs[path]):
            add(needed, (*above, path))
        for soft in index.before.get(module_name(path), ()):
            for name in _resolve(index, soft):
                add(index.paths[name], (*above, path))
        order.append(path)

    for name in names:
        if name in index.paths:
            add(index.paths[name], ())
        elif name not in index.builtin:
            missing.append(name)
    return tuple(order), tuple(missing)


def _resolve(index: ModuleIndex, wanted: str) -> list[str]:
    """Return the modules that a soft dependency names, directly or by an alias."""
    name = wanted.replace("-", "_")
    if name in index.paths or name in index.builtin:
        return [name] if name in index.paths else []
    # One module is enough, and the generic one runs on every processor.
    modules = [module for module in index.aliases.get(wanted, ()) if module in index.paths]
    return sorted(modules, key=lambda module: (not module.endswith("_generic"), module))[:1]


def _softdeps(text: str) -> Iterable[tuple[str, tuple[str, ...]]]:
    for line in text.splitlines():
        words = line.split()
        if len(words) > 2 and words[0] == "softdep" and words[2] == "pre:":
            until = words.index("post:") if "post:" in words else len(words)
            yield words[1].replace("-", "_"), tuple(words[3:until])
