"""From fragments to a `.config` that was checked option by option."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from lab.errors import UserError
from lab.kernel.catalogue import fragment_path
from lab.kernel.kconfig import (
    Fragment,
    Option,
    Refusal,
    parse_config,
    parse_definition,
    parse_fragment,
    refusals,
    render_request,
)
from lab.store import write_text

# What `make tinyconfig` starts from (scripts/kconfig/Makefile, Linux 6.12).
TINY = (
    "kernel/configs/tiny-base.config",
    "kernel/configs/tiny.config",
    "arch/x86/configs/tiny.config",
)


def read_fragments(paths: Iterable[Path]) -> tuple[Fragment, ...]:
    """Read and parse fragments; UserError with file and line for what is wrong in one."""
    found = []
    for path in paths:
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise UserError(f"cannot read: {error}", file=path) from None
        found.append(parse_fragment(path.stem, text, path))
    return tuple(found)


def request_config(
    tree: Path, out: Path, options: Sequence[Option], make: Callable[[list[str]], None]
) -> Path:
    """Let kbuild make `.config` in `out` from the tiny configuration plus `options`; return it.

    `make` runs make in the tree with the words it is given. Raises UserError for the options that
    the result does not have, and says why as far as the source's Kconfig files tell.
    """
    present = (tree / name for name in TINY)
    base = "\n".join(path.read_text(encoding="utf-8") for path in present if path.is_file())
    wanted = out / "numalab.config"
    write_text(wanted, render_request(base, options))
    make([f"KCONFIG_ALLCONFIG={wanted}", "allnoconfig"])
    config = out / ".config"
    refused = refusals(options, parse_config(config.read_text(encoding="utf-8")))
    if refused:
        raise _refused(tree, refused)
    return config


def _refused(tree: Path, refused: Sequence[Refusal]) -> UserError:
    first, *rest = refused
    lines = [_why(tree, first)]
    for refusal in rest:
        one = refusal.option
        where = f"{one.fragment}.config:{one.line}: {one.name}={one.value}"
        lines.append(f"{where}: {_why(tree, refusal)}")
    file = f"{fragment_path(first.option.fragment)}:{first.option.line}"
    return UserError("\n".join(lines), file=file, key=f"{first.option.name}={first.option.value}")


def _why(tree: Path, refusal: Refusal) -> str:
    if refusal.found is not None and refusal.found != "n":
        return f"the configuration has {refusal.found} instead"
    depends = find_definition(tree, refusal.option.name.removeprefix("CONFIG_"))
    if depends is None:
        return "this source has no such option"
    needs = f" (depends on {'; '.join(depends)})" if depends else ""
    return f"the configuration refused it{needs}"


def find_definition(tree: Path, name: str) -> tuple[str, ...] | None:
    """Find option `name` in the tree's Kconfig files; its `depends on` lines, None if nowhere.

    Other architectures' files are left out, because x86 does not read them.
    """
    found: tuple[str, ...] | None = None
    for path in sorted(tree.rglob("Kconfig*")):
        parts = path.relative_to(tree).parts
        foreign = len(parts) > 2 and parts[0] == "arch" and parts[1] != "x86"
        if foreign or parts[0].startswith("build-") or not path.is_file():
            continue
        text = path.read_text(encoding="utf-8", errors="replace")
        if f"config {name}" in text and (more := parse_definition(name, text)) is not None:
            found = (found or ()) + more
    return found
