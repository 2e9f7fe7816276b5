"""Config fragments: parse, merge, and check what the kernel made of them. Pure.

A fragment is a kconfig file in which every option has its reason in a comment right above it, and
whose first comment, followed by an empty line, says what the fragment is for. A reason that begins
with "Since 6.7:", "Until 6.5:" or "Since 5.11 until 6.5:" says which kernels have the option; the
others are not asked for it. Grammar of the option lines: Documentation/kbuild/kconfig.rst and
scripts/kconfig/confdata.c, Linux 6.12.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from numalab.errors import UserError

_OPTION = re.compile(r'(CONFIG_\w+)=(y|n|m|-?\d+|0[xX][0-9a-fA-F]+|"(?:[^"\\]|\\.)*")', re.ASCII)
_ERA = re.compile(r"(?:since (\d+\.\d+))?(?:(?:^| )until (\d+\.\d+))?:", re.IGNORECASE)
_UNSET = re.compile(r"# (CONFIG_\w+) is not set", re.ASCII)


@dataclass(frozen=True)
class Option:
    """One option that a fragment asks for: "n" means off; strings keep their quotes.

    `since` and `until` are the first and the last series of kernels ((6, 12)) that have it.
    """

    name: str
    value: str
    reason: str
    fragment: str
    line: int
    since: tuple[int, int] | None = None
    until: tuple[int, int] | None = None

    def is_for(self, version: str) -> bool:
        """Tell whether the kernel `version` ("6.12.117") is said to have the option."""
        now = _numbers(version)
        return (self.since is None or self.since <= now) and (
            self.until is None or now <= self.until
        )


@dataclass(frozen=True)
class Fragment:
    """A config fragment: what it is for and what it asks for."""

    name: str
    summary: str
    options: tuple[Option, ...]


@dataclass(frozen=True)
class Refusal:
    """An option that the kernel's configuration did not take over as asked."""

    option: Option
    found: str | None  # None: the result does not mention the option


def parse_fragment(name: str, text: str, file: object = None) -> Fragment:
    """Parse a fragment's text; `file` is named in errors.

    Raises UserError with the line for anything that is not a comment or an option, an option
    without a reason, an option given twice, and a module ("m": guests load none).
    """
    where = str(file if file is not None else f"{name}.config")
    summary: list[str] | None = None
    comment: list[str] = []
    options: dict[str, Option] = {}
    for number, raw in enumerate(text.splitlines(), 1):
        line = raw.rstrip()
        option = _parse_option(line)
        if option is not None:
            at = f"{where}:{number}"
            _check_option(option, comment, options, at)
            reason = " ".join(comment)
            options[option[0]] = Option(*option, reason, name, number, *_era(reason))
            comment = []
        elif line.startswith("#"):
            comment.append(line.lstrip("#").strip())
        elif not line:
            if summary is None:
                summary = comment
            comment = []
        else:
            raise UserError(
                f"{line[:60]!r} is neither a comment nor CONFIG_NAME=value",
                file=f"{where}:{number}",
            )
    if not summary or not any(summary):
        raise UserError("must begin with a comment that says what it is for", file=where)
    return Fragment(name, " ".join(summary), tuple(options.values()))


def merge(fragments: Iterable[Fragment]) -> tuple[Option, ...]:
    """Put the options of fragments together, in order; the first of two equal ones stays.

    Raises UserError naming both places where two fragments want different values.
    """
    merged: dict[str, Option] = {}
    for option in (option for fragment in fragments for option in fragment.options):
        first = merged.setdefault(option.name, option)
        if first.value != option.value:
            raise UserError(
                f"{first.fragment}.config:{first.line} wants {first.value} and "
                f"{option.fragment}.config:{option.line} wants {option.value}",
                key=option.name,
            )
    return tuple(merged.values())


def render_request(base: str, options: Sequence[Option]) -> str:
    """Write the file that `make allnoconfig` starts from (KCONFIG_ALLCONFIG).

    `base` is the source's own tiny configuration; what it says about an option that a fragment
    asks for is left out.
    """
    asked = {option.name for option in options}
    kept = [
        line
        for line in base.splitlines()
        if (found := _parse_option(line)) and found[0] not in asked
    ]
    return "".join(f"{line}\n" for line in [*kept, *(f"{o.name}={o.value}" for o in options)])


def parse_config(text: str) -> dict[str, str]:
    """Read a kernel's `.config`: option name to value, "n" for "is not set"."""
    found = (_parse_option(line) for line in text.splitlines())
    return dict(option for option in found if option is not None)


def refusals(options: Iterable[Option], config: Mapping[str, str]) -> tuple[Refusal, ...]:
    """List the options whose value in the resulting `.config` is not the one asked for.

    An option that the result does not mention counts as off.
    """
    return tuple(
        Refusal(option, config.get(option.name))
        for option in options
        if config.get(option.name, "n") != option.value
    )


def _era(comment: str) -> tuple[tuple[int, int] | None, tuple[int, int] | None]:
    found = _ERA.match(comment)
    since, until = found.groups() if found else (None, None)
    return _numbers(since) if since else None, _numbers(until) if until else None


def _numbers(version: str) -> tuple[int, int]:
    """Return the first two numbers of a version; (7, 0) of "7-rc1"."""
    found = re.match(r"(\d+)(?:\.(\d+))?", version)
    if found is None:
        raise ValueError(f"no version: {version!r}")
    return int(found[1]), int(found[2] or 0)


def _parse_option(line: str) -> tuple[str, str] | None:
    if (found := _OPTION.fullmatch(line)) is not None:
        return found[1], found[2]
    if (found := _UNSET.fullmatch(line)) is not None:
        return found[1], "n"
    return None


def _check_option(
    option: tuple[str, str], comment: list[str], before: Mapping[str, Option], at: str
) -> None:
    name, value = option
    if not any(comment):
        raise UserError("has no reason: put a comment right above it", file=at, key=name)
    if name in before:
        raise UserError(f"was already given in line {before[name].line}", file=at, key=name)
    if value == "m":
        raise UserError("guests load no modules; say y or n", file=at, key=name)
