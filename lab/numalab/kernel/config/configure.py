"""Makes a `.config` from fragments, and checks every option."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from numalab.errors import UserError
from numalab.files import write_text
from numalab.kernel.config.kconfig import (
    Fragment,
    Option,
    Refusal,
    parse_config,
    parse_fragment,
    refusals,
    render_request,
)
from numalab.kernel.config.kconfig_tree import read_kconfig
from numalab.kernel.config.option_origin import Origin, explain_config, explain_refusal
from numalab.kernel.kernel_specs import fragment_path

# What `make tinyconfig` starts from (scripts/kconfig/Makefile, Linux 6.12).
TINY = (
    "kernel/configs/tiny-base.config",
    "kernel/configs/tiny.config",
    "arch/x86/configs/tiny.config",
)


def read_fragments(paths: Iterable[Path]) -> tuple[Fragment, ...]:
    """Read and parse fragments; UserError with file and line."""
    fragments = []
    for path in paths:
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise UserError(f"cannot read: {error}", file=path) from None
        fragments.append(parse_fragment(path.stem, text, path))
    return tuple(fragments)


def request_config(
    tree: Path,
    out: Path,
    options: Sequence[Option],
    version: str,
    make: Callable[[list[str]], None],
) -> Path:
    """Let kbuild make `.config` in `out` from the tiny configuration plus `options`; return it.

    `make` runs make in the tree with further words. Raises UserError for the options that the
    result does not have, with the reason: unknown in `version`, or an unmet dependency.
    """
    wanted = out / "numalab.config"
    base = "\n".join(text for _, text in _tiny(tree))
    write_text(wanted, render_request(base, options))
    make([f"KCONFIG_ALLCONFIG={wanted}", "allnoconfig"])
    path = out / ".config"
    config = parse_config(path.read_text(encoding="utf-8"))
    refused = refusals(options, config)
    if refused:
        kconfig = read_kconfig(_reader(tree))
        reasons = [explain_refusal(refusal, config, kconfig, version) for refusal in refused]
        raise _refused(refused, reasons)
    return path


def config_origins(tree: Path, config: Path, options: Sequence[Option]) -> tuple[Origin, ...]:
    """Return the origin of each line of a configuration of `request_config`."""
    tiny = {name: file for file, text in _tiny(tree) for name in parse_config(text)}
    lines = parse_config(config.read_text(encoding="utf-8"))
    return explain_config(lines, options, tiny, read_kconfig(_reader(tree)))


def _tiny(tree: Path) -> list[tuple[str, str]]:
    present = [name for name in TINY if (tree / name).is_file()]
    return [(name, (tree / name).read_text(encoding="utf-8")) for name in present]


def _reader(tree: Path) -> Callable[[str], str | None]:
    def read(name: str) -> str | None:
        path = tree / name
        return path.read_text(encoding="utf-8", errors="replace") if path.is_file() else None

    return read


def _refused(refused: Sequence[Refusal], reasons: Sequence[str]) -> UserError:
    options = [refusal.option for refusal in refused]
    lines = [
        f"{option.fragment}.config:{option.line}: {option.name}={option.value}: {reason}"
        for option, reason in zip(options, reasons, strict=True)
    ]
    first = options[0]
    file = f"{fragment_path(first.fragment)}:{first.line}"
    return UserError(
        "\n".join([reasons[0], *lines[1:]]), file=file, key=f"{first.name}={first.value}"
    )
