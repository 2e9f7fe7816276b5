"""The Kconfig files of a source: its options and their dependencies.

Grammar: Documentation/kbuild/kconfig-language.rst, Linux 6.12. Macros such as $(cc-option,...) are
not evaluated; a dependency on one counts as met.
"""

import operator
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

_SOURCE = re.compile(r'source\s+"?([^"\s]+)"?')
_ENTRY = re.compile(r"(config|menuconfig|choice|menu|if|comment|mainmenu)(?:\s+(.*))?")
_TYPE = re.compile(
    r'(?:(?:(?P<type>bool|tristate|string|int|hex)|prompt)\s*(?:(?P<prompt>"(?:[^"\\]|\\.)*"|\'[^\']*\')'
    r"(?:\s+if\s+(?P<shown>.*))?)?|def_(?P<default>bool|tristate)\s.*)$"
)
_SELECT = re.compile(r"(?:select|imply)\s+(\w+)(?:\s+if\s+(.*))?$")
_COMPARISONS: dict[str, Callable[[int, int], bool]] = {
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}  # fmt: skip
_TOKEN = re.compile(r'\s*(\$\([^)]*(?:\([^)]*\)[^)]*)*\)|&&|\|\||[<>]=?|!=|[=!()]|"[^"]*"|[\w.-]+)')


@dataclass
class _Entry:
    """A config, choice, menu or if that is being parsed."""

    kind: str
    name: str
    place: str
    depends: list[str] = field(default_factory=list)
    shown: str | None = None
    prompt: bool = False
    type: str = ""


@dataclass(frozen=True)
class Definition:
    """One definition of an option: its place and dependencies, from inside out.

    `prompt`: a user may set it, if `shown` holds. `choice` is the place of the choice around it.
    `type` is "" where another definition has it.
    """

    name: str
    place: str
    depends: tuple[str, ...]
    prompt: bool
    shown: str | None
    choice: str | None
    type: str


@dataclass(frozen=True)
class KconfigTree:
    """All options of a source, without CONFIG_: definitions, and the options that select them.

    `selected_by` has pairs of the selecting option and its condition.
    """

    definitions: Mapping[str, tuple[Definition, ...]]
    selected_by: Mapping[str, tuple[tuple[str, str | None], ...]]

    def has(self, name: str) -> bool:
        """Tell whether a Kconfig file names an option (CONFIG_SMP)."""
        return name.removeprefix("CONFIG_") in self.definitions


def read_kconfig(read: Callable[[str], str | None]) -> KconfigTree:
    """Read the Kconfig files of x86, from `Kconfig` on; `read` gives a text, None for no file."""
    entries: list[tuple[_Entry, tuple[_Entry, ...]]] = []
    selects: dict[str, list[tuple[str, str | None]]] = {}
    stack: list[_Entry] = []
    now: _Entry | None = None
    for place, line in _lines("Kconfig", read):
        if line in ("endif", "endmenu", "endchoice"):
            if stack:
                stack.pop()
            now = None
        elif (head := _ENTRY.fullmatch(line)) is not None:
            kind, rest = head[1], head[2] or ""
            now = _Entry(kind, rest.strip(), place)
            if kind == "if":
                now.depends.append(rest)
            if kind in ("choice", "menu", "if"):
                stack.append(now)
            else:
                entries.append((now, tuple(stack)))
        elif now is not None:
            _property(line, now, selects)
    return _tree(entries, selects)


def _tree(
    entries: list[tuple[_Entry, tuple[_Entry, ...]]],
    selects: Mapping[str, list[tuple[str, str | None]]],
) -> KconfigTree:
    definitions: dict[str, tuple[Definition, ...]] = {}
    for entry, around in entries:
        if entry.kind not in ("config", "menuconfig"):
            continue
        outer = [condition for block in reversed(around) for condition in block.depends]
        choice = next((block.place for block in around if block.kind == "choice"), None)
        definition = Definition(
            entry.name, entry.place, (*entry.depends, *outer), entry.prompt, entry.shown, choice,
            entry.type,
        )  # fmt: skip
        definitions[entry.name] = (*definitions.get(entry.name, ()), definition)
    return KconfigTree(definitions, {name: tuple(by) for name, by in selects.items()})


def _property(line: str, now: _Entry, selects: dict[str, list[tuple[str, str | None]]]) -> None:
    if line.startswith("depends on "):
        now.depends.append(line.removeprefix("depends on ").strip())
    elif (select := _SELECT.fullmatch(line)) is not None:
        if line.startswith("select"):
            selects.setdefault(select[1], []).append((now.name, select[2]))
    elif (kind := _TYPE.fullmatch(line)) is not None:
        now.type = kind["type"] or kind["default"] or now.type
        if kind["prompt"]:
            now.prompt, now.shown = True, kind["shown"]


def _lines(
    name: str, read: Callable[[str], str | None], depth: int = 0
) -> Iterator[tuple[str, str]]:
    """Yield (file:line, line) of a file and those it sources: no comments, no help texts."""
    text = read(name)
    if text is None or depth > 20:
        return
    raw = iter(enumerate(text.splitlines(), 1))
    help_indent: int | None = None
    in_help = False
    for number, first in raw:
        line = first
        while line.endswith("\\"):
            line = line[:-1] + next(raw, (0, ""))[1]
        indent = len(line.expandtabs()) - len(line.expandtabs().lstrip())
        if in_help:
            if not line.strip():
                continue
            help_indent = indent if help_indent is None else help_indent
            if indent >= help_indent and indent > 0:
                continue
            in_help = False
        plain = re.sub(r'(^|\s)#(?=([^"]*"[^"]*")*[^"]*$).*', "", line).strip()
        if plain in ("help", "---help---"):
            in_help, help_indent = True, None
        elif _SOURCE.fullmatch(plain) is not None:
            for variable in ("$(SRCARCH)", "$SRCARCH", "$(HEADER_ARCH)"):
                plain = plain.replace(variable, "x86")
            inner = _SOURCE.fullmatch(plain)
            if inner is not None:
                yield from _lines(inner[1], read, depth + 1)
        elif plain:
            yield f"{name}:{number}", plain


def is_met(expression: str, config: Mapping[str, str]) -> bool:
    """Tell whether a dependency holds in a configuration (names without CONFIG_)."""
    return _Reader(expression, config).value()


def unmet(expression: str, config: Mapping[str, str]) -> tuple[str, ...]:
    """Return the options to change so that a dependency holds."""
    names = dict.fromkeys(re.findall(r'(?<![\w."])[A-Z0-9_]*[A-Z][A-Z0-9_]*\b', expression))
    alone = (
        name
        for name in names
        if any(is_met(expression, {**config, name: value}) for value in ("y", "n"))
    )
    return tuple(alone) or tuple(name for name in names if config.get(name, "n") == "n")


class _Reader:
    """Evaluates one expression: `||` of `&&` of `!x`, comparisons and parentheses."""

    def __init__(self, expression: str, config: Mapping[str, str]) -> None:
        self._tokens = _TOKEN.findall(expression)
        self._at = 0
        self._config = config

    def value(self) -> bool:
        result = self._and()
        while self._take("||"):
            other = self._and()
            result = result or other
        return result

    def _and(self) -> bool:
        result = self._not()
        while self._take("&&"):
            other = self._not()
            result = result and other
        return result

    def _not(self) -> bool:
        if self._take("!"):
            return not self._not()
        if self._take("("):
            result = self.value()
            self._take(")")
            return result
        left = self._next()
        for sign in ("=", "!=", "<=", ">=", "<", ">"):
            if self._take(sign):
                return self._compare(left, sign, self._next())
        return left.startswith("$(") or self._of(left) not in ("n", "")

    def _compare(self, left: str, sign: str, right: str) -> bool:
        if left.startswith("$(") or right.startswith("$("):
            return True
        values = self._of(left), self._of(right)
        if sign in ("=", "!="):
            return (values[0] == values[1]) == (sign == "=")
        try:
            numbers = int(values[0], 0), int(values[1], 0)
        except ValueError:
            return True
        return _COMPARISONS[sign](*numbers)

    def _of(self, word: str) -> str:
        if word[:1] == '"' or word in ("y", "n", "m") or re.fullmatch(r"-?\d+|0x[\da-fA-F]+", word):
            return word.strip('"')
        return self._config.get(word, "n")

    def _next(self) -> str:
        self._at += 1
        return self._tokens[self._at - 1] if self._at <= len(self._tokens) else "n"

    def _take(self, word: str) -> bool:
        if self._at < len(self._tokens) and self._tokens[self._at] == word:
            self._at += 1
            return True
        return False
