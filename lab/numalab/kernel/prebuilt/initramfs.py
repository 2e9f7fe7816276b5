"""The initramfs of a kernel whose drivers are modules: the few a guest needs, and a small init."""

import gzip
import lzma
import tempfile
from collections.abc import Sequence
from pathlib import Path

from numalab.errors import UserError
from numalab.kernel.prebuilt.cpio import pack_cpio
from numalab.kernel.prebuilt.modules import (
    NEEDED,
    WELCOME,
    ModuleIndex,
    load_order,
    module_name,
    parse_index,
)
from numalab.places import find_input, shipped_dir
from numalab.process import find_program, run
from numalab.source.programs import compile_program

_CONSOLE = (5, 1)  # /dev/console, which the kernel opens for init


def init_source() -> Path:
    """Return the C source of the initramfs's init."""
    found = find_input("kernel-configs", "initramfs.c")
    return found or shipped_dir() / "kernel-configs" / "initramfs.c"


def choose_modules(tree: Path, kernel: str) -> tuple[Path, ...]:
    """Return the module files below `tree` (lib/modules/RELEASE) to load, in order.

    None are needed where all is built in. Raises UserError that names what `kernel` has
    neither built in nor as a module.
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
    """Read what depmod wrote in `tree`, or let it write that first. Raises HostError."""

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
    """Return a module's bytes, unpacked: not every kernel unpacks modules itself."""
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
