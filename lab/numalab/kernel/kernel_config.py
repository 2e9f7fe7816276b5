"""Makes a `.config` from fragments, and checks every option."""

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath

from numalab.errors import UserError
from numalab.files import write_text
from numalab.kernel.config_fragment import (
    Fragment,
    Option,
    Refusal,
    parse_config,
    parse_fragment,
    refusals,
    render_request,
)
from numalab.kernel.kconfig_tree import Definition, KconfigTree, is_met, read_kconfig, unmet
from numalab.kernel.kernel_specs import fragment_path
from numalab.source.series import Series

# What `make tinyconfig` starts from (scripts/kconfig/Makefile, Linux 6.12).
TINY = (
    "kernel/configs/tiny-base.config",
    "kernel/configs/tiny.config",
    "arch/x86/configs/tiny.config",
)


# Type -> form and examples of its values (scripts/kconfig/symbol.c, sym_string_valid()).
_VALUES: Mapping[str, tuple[str, str]] = {
    "bool": ("[yn]", "y, n"),
    "tristate": ("[yn]", "y, n"),
    "int": (r"-?\d+", "a number such as 20"),
    "hex": (r"(?:0[xX])?[\da-fA-F]+", "a number such as 0x20"),
    "string": ('".*"', 'a text such as "x"'),
}
_ADDED = re.compile(r"([+-])(?:menu)?config[ \t]+(\w+)[ \t]*(?:#.*)?")


@dataclass(frozen=True)
class Origin:
    """One line of a configuration: the origin of its value, and the reason in a fragment."""

    name: str
    value: str
    origin: str
    reason: str = ""


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


def added_options(series: Iterable[Series]) -> tuple[str, ...]:
    """Return the options that series add to Kconfig files, sorted; not those that they move.

    Such an option is in no line that the first patch of it removes, and in more lines that the
    patches add than in lines that they remove.
    """
    begin: dict[str, Counter[str]] = {}  # of each option, the signs of its lines in its first patch
    total: Counter[str] = Counter()
    for patch in (patch for applied in series for patch in applied.patches):
        signs: dict[str, Counter[str]] = {}
        kconfig = [f for f in patch.files if _is_kconfig(f.old) or _is_kconfig(f.new)]
        for line in (line for file in kconfig for hunk in file.hunks for line in hunk.lines):
            if (match := _ADDED.fullmatch(line)) is not None:
                name = f"CONFIG_{match[2]}"
                signs.setdefault(name, Counter())[match[1]] += 1
                total[name] += 1 if match[1] == "+" else -1
        for name, counted in signs.items():
            begin.setdefault(name, counted)
    return tuple(sorted(name for name in begin if total[name] > 0 and not begin[name]["-"]))


def _is_kconfig(name: str | None) -> bool:
    return name is not None and PurePath(name).name.startswith("Kconfig")


def request_config(
    tree: Path,
    out: Path,
    options: Sequence[Option],
    version: str,
    make: Callable[[list[str]], None],
    *,
    added: Collection[str] = (),
) -> Path:
    """Let kbuild make `.config` in `out` from the tiny configuration plus `options`; return it.

    Options that patches have `added` get their default, as in the configuration of whoever applies
    the patches. `make` runs make in the tree with further words. Raises UserError for the options
    that the result does not have, with the reason: unknown in `version`, or an unmet dependency.
    """
    wanted = out / "numalab.config"
    base = "\n".join(text for _, text in _tiny(tree))
    write_text(wanted, render_request(base, options))
    make([f"KCONFIG_ALLCONFIG={wanted}", "allnoconfig"])
    path = out / ".config"
    if added:
        off = {f"# {name} is not set" for name in added} - {
            f"# {o.name} is not set" for o in options
        }
        lines = path.read_text(encoding="utf-8").splitlines()
        write_text(path, "".join(f"{line}\n" for line in lines if line not in off))
        make(["olddefconfig"])
    config = parse_config(path.read_text(encoding="utf-8"))
    refused = refusals(options, config)
    absent = [option for option in options if option.value == "n" and option.name not in config]
    if refused or absent:
        kconfig = read_kconfig(_reader(tree))
        refused += tuple(Refusal(option, None) for option in absent if not kconfig.has(option.name))
        reasons = [explain_refusal(row, config, kconfig, version, options) for row in refused]
        if refused:
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
        f"{option.place}: {option.name}={option.value}: {reason}"
        for option, reason in zip(options, reasons, strict=True)
    ]
    first = options[0]
    file = f"{fragment_path(first.fragment)}:{first.line}"
    return UserError(
        "\n".join([reasons[0], *lines[1:]]), file=file, key=f"{first.name}={first.value}"
    )


def explain_config(
    config: Mapping[str, str],
    options: Sequence[Option],
    tiny: Mapping[str, str],
    tree: KconfigTree,
) -> tuple[Origin, ...]:
    """Return the origin of each line of a configuration, in its order.

    Options that are off are left out, unless a fragment sets them. `tiny` maps options to the file
    of the source's own tiny configuration that sets them.
    """
    by_name = {option.name: option for option in options}
    plain = _plain(config)
    lines = []
    for name, value in config.items():
        option = by_name.get(name)
        if option is not None:
            lines.append(Origin(name, value, option.place, option.reason))
        elif value != "n":
            lines.append(Origin(name, value, _origin(name, plain, tiny, tree)))
    return tuple(lines)


def explain_refusal(
    refusal: Refusal,
    config: Mapping[str, str],
    tree: KconfigTree,
    version: str,
    options: Iterable[Option] = (),
) -> str:
    """Explain why an option has another value: no such option, its type, or a dependency.

    `options` are those of the fragments: one of them may be why.
    """
    name, wanted = refusal.option.name.removeprefix("CONFIG_"), refusal.option.value
    plain = _plain(config)
    definitions = tree.definitions.get(name)
    if definitions is None:
        return (
            f"Linux {version} has no such option; if others have it, let its reason begin with"
            ' "Since X.Y:" or "Until X.Y:"'
        )
    if wrong := _wrong_type(wanted, definitions):
        return wrong
    if refusal.actual not in (None, "n"):
        by = _selector(name, plain, tree)
        return f"the configuration has {refusal.actual} instead" + (f", {by}" if by else "")
    places = {option.name.removeprefix("CONFIG_"): option.place for option in options}
    whys = (_why_off(definition, plain, tree, places) for definition in definitions)
    reasons = filter(None, whys)
    if text := "; ".join(dict.fromkeys(reasons)):
        return f"the configuration refused it: {text}"
    return f"the configuration refused {wanted}, for no reason that its files show"


def _origin(
    name: str, config: Mapping[str, str], tiny: Mapping[str, str], tree: KconfigTree
) -> str:
    if name in tiny:
        return tiny[name]
    short = name.removeprefix("CONFIG_")
    places = ", ".join(definition.place for definition in tree.definitions.get(short, ()))
    return _selector(short, config, tree) or f"default of {places or 'kbuild'}"


def _selector(name: str, config: Mapping[str, str], tree: KconfigTree) -> str:
    selectors = [
        selector
        for selector, condition in tree.selected_by.get(name, ())
        if config.get(selector, "n") != "n" and (condition is None or is_met(condition, config))
    ]
    return f"selected by {', '.join(selectors[:3])}" if selectors else ""


def _wrong_type(wanted: str, definitions: Iterable[Definition]) -> str:
    """Explain that an option of another type takes no such value; "" if it does."""
    kind = next((row.type for row in definitions if row.type), "")
    form, valid = _VALUES.get(kind, (".*", ""))
    if re.fullmatch(form, wanted):
        return ""
    return f"{wanted} is no value of an option of type {kind} (valid: {valid})"


def _why_off(
    definition: Definition,
    config: Mapping[str, str],
    tree: KconfigTree,
    places: Mapping[str, str],
) -> str:
    """Explain why a definition cannot be switched on; "" if it can.

    `places` are those of the fragments' options.
    """
    conditions = [*definition.depends, *filter(None, [definition.shown])]
    failing = [condition for condition in conditions if not is_met(condition, config)]
    if failing:
        reasons = []
        for condition in failing:
            names = [f"{name}={config.get(name, 'n')}" for name in unmet(condition, config)]
            reasons.append(
                f"it depends on {condition}" + f", with {', '.join(names)}" * bool(names)
            )
        return f"{', '.join(reasons)} ({definition.place})"
    if not definition.prompt:
        selectors = [selector for selector, _ in tree.selected_by.get(definition.name, ())]
        setters = ", ".join(selectors[:5]) or "its default"
        return f"only {setters} can set it ({definition.place})"
    if definition.choice is not None:
        return _selected(definition.choice, config, tree, places)
    return ""


def _selected(
    choice: str, config: Mapping[str, str], tree: KconfigTree, places: Mapping[str, str]
) -> str:
    """Name the option that is selected in a choice, with the fragment's line that asks for it."""
    for name, definitions in tree.definitions.items():
        if config.get(name) == "y" and any(row.choice == choice for row in definitions):
            asked = f" ({places[name]})" if name in places else ""
            return f"{name}{asked} of the choice in {choice} is selected"
    return f"another option of the choice in {choice} is selected"


def _plain(config: Mapping[str, str]) -> dict[str, str]:
    return {name.removeprefix("CONFIG_"): value for name, value in config.items()}
