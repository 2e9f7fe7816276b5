"""Config fragments: parse, merge, and compare with the resulting configuration. Pure.

A fragment is a kconfig file. Its first comment, followed by an empty line, is the summary; the
comment right above an option is its reason. A reason that begins with "Since 6.7:", "Until 6.5:" or
"Since 5.11 until 6.5:" limits the option to these kernels. Grammar of the option lines:
Documentation/kbuild/kconfig.rst and scripts/kconfig/confdata.c, Linux 6.12.
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
    """One option of a fragment: "n" means off; strings keep their quotes.

    `since` and `until` are the first and the last version ((6, 12)) that has it.
    """

    name: str
    value: str
    reason: str
    fragment: str
    line: int
    since: tuple[int, int] | None = None
    until: tuple[int, int] | None = None

    @property
    def place(self) -> str:
        """The fragment and the line, for messages and tables."""
        return f"{self.fragment}.config:{self.line}"

    def is_for(self, version: str) -> bool:
        """Tell whether the option is for the kernel `version` ("6.12.117")."""
        now = version_numbers(version)
        return (self.since is None or self.since <= now) and (
            self.until is None or now <= self.until
        )


@dataclass(frozen=True)
class Fragment:
    """A config fragment; `file` is for errors."""

    file: str
    name: str
    summary: str
    options: tuple[Option, ...]


@dataclass(frozen=True)
class Refusal:
    """An option whose value in the kernel's configuration differs from the fragment."""

    option: Option
    actual: str | None  # None: the configuration does not mention the option


def parse_fragment(name: str, text: str, file: object = None) -> Fragment:
    """Parse a fragment's text; `file` is for errors.

    Raises UserError with the line for text that is no comment and no option, an option without a
    reason, a repeated option, and a module ("m": guests load none).
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
        raise UserError("must begin with a comment, its summary", file=where)
    return Fragment(where, name, " ".join(summary), tuple(options.values()))


def merge(fragments: Iterable[Fragment], version: str) -> tuple[Option, ...]:
    """Merge the options for a kernel's version, in order; of equal options the first stays.

    Raises UserError, which names both places, for different values.
    """
    merged: dict[str, tuple[Option, str]] = {}
    for fragment in fragments:
        for option in (option for option in fragment.options if option.is_for(version)):
            at = f"{fragment.file}:{option.line}"
            first, before = merged.setdefault(option.name, (option, at))
            if first.value != option.value:
                reason = f"wants {option.value}, and {before} wants {first.value}"
                raise UserError(reason, file=at, key=option.name)
    return tuple(option for option, _ in merged.values())


def render_request(base: str, options: Sequence[Option]) -> str:
    """Return the file that `make allnoconfig` starts from (KCONFIG_ALLCONFIG).

    `base` is the source's own tiny configuration; options of fragments override it.
    """
    names = {option.name for option in options}
    kept = [
        line
        for line in base.splitlines()
        if (option := _parse_option(line)) and option[0] not in names
    ]
    return "".join(f"{line}\n" for line in [*kept, *(f"{o.name}={o.value}" for o in options)])


def parse_config(text: str) -> dict[str, str]:
    """Read a kernel's `.config`: option name to value, "n" for "is not set"."""
    return dict(filter(None, map(_parse_option, text.splitlines())))


def refusals(options: Iterable[Option], config: Mapping[str, str]) -> tuple[Refusal, ...]:
    """Return the options whose value in the resulting `.config` differs.

    An option that the result does not mention is off.
    """
    return tuple(
        Refusal(option, config.get(option.name))
        for option in options
        if config.get(option.name, "n") != option.value
    )


def _era(comment: str) -> tuple[tuple[int, int] | None, tuple[int, int] | None]:
    era = _ERA.match(comment)
    since, until = era.groups() if era else (None, None)
    return version_numbers(since) if since else None, version_numbers(until) if until else None


def version_numbers(version: str) -> tuple[int, int]:
    """Return the first two numbers of a version; (7, 0) of "7-rc1"."""
    numbers = re.match(r"(\d+)(?:\.(\d+))?", version)
    if numbers is None:
        raise ValueError(f"no version: {version!r}")
    return int(numbers[1]), int(numbers[2] or 0)


def _parse_option(line: str) -> tuple[str, str] | None:
    if (option := _OPTION.fullmatch(line)) is not None:
        return option[1], option[2]
    if (option := _UNSET.fullmatch(line)) is not None:
        return option[1], "n"
    return None


def _check_option(
    option: tuple[str, str], comment: list[str], before: Mapping[str, Option], at: str
) -> None:
    name, value = option
    if not any(comment):
        raise UserError("has no reason: put a comment right above it", file=at, key=name)
    if name in before:
        raise UserError(f"repeats line {before[name].line}", file=at, key=name)
    if value == "m":
        raise UserError("guests load no modules; say y or n", file=at, key=name)
