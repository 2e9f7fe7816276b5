"""Why a line of C has no code: comments, directives, conditions of the configuration. Pure."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from numalab.source.c_functions import HEAD, macro_call

_TOKEN = re.compile(r"\|\||&&|!(?!=)|[()]|defined\b|IS_(?:ENABLED|BUILTIN)\b|\w+|\S")
_DIRECTIVE = re.compile(r"\s*#\s*(\w+)\s*(.*)")
_COMMENT = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.S)
_OPERATORS = ("=", ",", "&", "|", "?", "+", "-", "*", "/", "<", ">", "%", "^")
_LEAVES = re.compile(r"(return|goto|break|continue)\b")
_SIMPLY = re.compile(r"(return( -?\w+)?|goto \w+|break|continue);")  # and computes nothing
_IF = re.compile(r"(\} *)?(else +)?if\b")
_IF_HEAD = re.compile(r"(?:\} *)?(?:else +)?if\s*\((.*)\)\s*\{?")
_CHECK = re.compile(r"\w*(WARN|BUG)")  # a macro that may have code for a rare case only
_LABEL = re.compile(r"(case\b.*|\w+):")
_CONTROL = re.compile(r"\}|(if|else|for|while|do|switch|case|default|return|goto|break|continue)\b")
# A declaration that makes no code: of a static variable, or of variables without values.
_STATIC = re.compile(r"static\b([^{(]*=.*|[^{]*;)")
_DECLARATION = re.compile(r"[A-Za-z_]\w*[\s*]+\w([\w\s*,]|\[[^\]=]*\])*;")
_ENDS = (";", "{", "}", ":", ")")  # a head such as if (...) ends with a parenthesis
# The beginning of an initializer, or of a compound literal.
_INITIALIZER = re.compile(r"(=|([=(,&]|\breturn)\s*\([^()]*\))\s*\{$")
BLANK, COMMENT = "blank line", "comment"  # reasons of lines that change no code
_NEARBY = 40  # lines of a statement
_MAX_TOKENS = 500


@dataclass(frozen=True)
class Reason:
    """Why a line has no code; `compiled_out`: the configuration leaves it out."""

    text: str
    compiled_out: bool = False


@dataclass
class _Branch:
    """An open #if: whether this part is compiled (None: unknown), and its condition in words."""

    value: bool | None
    before: bool | None  # whether an earlier part was
    condition: str


class SourceText:
    """A C file and the configuration of its kernel (option, without CONFIG_, to value)."""

    def __init__(self, text: str, config: Mapping[str, str]) -> None:
        self._lines = text.split("\n")
        self._code = _COMMENT.sub(_blanked, text).split("\n")
        self._config = config
        self._macros = _macro_lines(self._code)
        self._conditions = self._compiled_out()

    def reason(self, number: int) -> Reason:
        """Return why a line (from 1) without instructions has none."""
        line, code = self._line(self._lines, number), self._line(self._code, number)
        if condition := self._conditions.get(number) or (code.strip() and self._off(number)):
            return Reason(condition, compiled_out=True)
        if not code.strip():
            return Reason(COMMENT if line.strip() else BLANK)
        if number in self._macros:
            return Reason("macro: its code belongs to the lines that use it")
        if _DIRECTIVE.match(code):
            return Reason("preprocessor directive")
        if first := macro_call(self._code, number):
            return Reason(f"its code belongs to line {first}, which calls the macro")
        return Reason("no instructions of its own")

    def statement(self, number: int) -> tuple[int, ...]:
        """Return the other lines of a line's statement or function head, the first line first."""
        code, first, opened = self.code, number, 0
        if not self._is_c(number):
            return ()
        for at in range(number - 1, max(number - _NEARBY, 0), -1):
            text = code(at)
            if _DIRECTIVE.match(text):
                break
            if not text:
                continue
            opened += text.count("(") - text.count(")")
            goes_on = text.endswith(_OPERATORS) or _continues(code(first))
            if opened > 0 or (goes_on and opened == 0):
                first, opened = at, 0
            elif not goes_on and text.endswith(_ENDS):
                break
        last = number
        texts = [code(at) for at in range(first, number + 1)]
        opened = sum(text.count("(") - text.count(")") for text in texts)
        end = number + _NEARBY - 1
        while last < end and (opened > 0 or not _is_end(code(last), code(last + 1))):
            last += 1
            text = code(last)
            opened += text.count("(") - text.count(")")
            if not text or _DIRECTIVE.match(text):
                return tuple(range(first, number))
            if text == "{":
                break
        return (*range(first, number), *range(number + 1, last + 1))

    def _off(self, number: int) -> str:
        """Return what makes an `if (IS_ENABLED(...))` around a line false, "" for nothing."""
        opened = -1 if self.code(number).startswith("}") else 0
        inner = min((number, *self.statement(number)))
        for at in range(number - 1, 0, -1):
            text = self.code(at)
            opened += text.count("{")
            is_open = text.endswith("{") and opened > 0
            if is_open or (text.endswith(")") and at == self._above(inner)):
                lines = sorted((at, *(line for line in self.statement(at) if line < at)))
                head = _IF_HEAD.fullmatch(" ".join(map(self.code, lines)))
                parts = head[1].split("&&") if head and "||" not in head[1] else []
                are_whole = all(part.count("(") == part.count(")") for part in parts)
                for part in parts if are_whole else ():
                    if "CONFIG_" in part and self._evaluate(part) is False:
                        return self._words(part, value=False)
                opened, inner = min(opened, 0), lines[0]
            opened -= text.count("}")
            if self._line(self._code, at).startswith(("{", "}")):
                break
        return ""

    def whole(self, number: int) -> tuple[int, ...]:
        """Return the lines whose code a line without code of its own may be part of.

        Those of its statement, then the earlier ones of the statement whose initializer it is in.
        """
        if not self.can_run(number) or macro_call(self._code, number):
            return ()
        return (*self.statement(number), *self._initialized(number))

    def _initialized(self, number: int) -> tuple[int, ...]:
        """Return the lines up to the `{` of the initializers around a line, the last one first."""
        lines: list[int] = []
        opened = 0
        above = range(number - 1, max(number - _NEARBY, 0), -1)
        for at in above if self._is_c(number) and self.code(number)[0] != "}" else ():
            text = self.code(at)
            opened += text.count("{") - text.count("}")
            if opened > 0 and not _INITIALIZER.search(text):
                break
            if opened > 0:
                lines += (at, *(line for line in self.statement(at)[::-1] if line < at))
                opened = 0
        return tuple(lines)

    def head(self, number: int) -> tuple[int, ...]:
        """Return the lines of a function's head that a line is part of, `{` too; () for none."""
        lines = tuple(sorted((number, *self.statement(number))))
        return lines if self._line(self._code, lines[-1]).rstrip() == "{" else ()

    def can_run(self, number: int) -> bool:
        """Whether a line can have code of its own.

        Of a function's head only the line with the name has, as gcov counts; a declaration of a
        static variable, or without a value, has none. gcc may put their beginnings elsewhere.
        """
        if self.head(number):
            return bool(HEAD.match(self._line(self._code, number)))
        code = self.code(number)
        if any(at < number for at in self.statement(number)) or _CONTROL.match(code):
            return True
        return code != "{" and not _DECLARATION.fullmatch(code) and not _STATIC.fullmatch(code)

    def statement_before(self, number: int) -> tuple[int, ...]:
        """Return the lines of the statement that runs before a line which simply leaves.

        It is directly before the line, in the same block, and no way leads around it; () for none.
        """
        above = self._above(number)
        if not _SIMPLY.fullmatch(self.code(number)) or not self.code(above).endswith(";"):
            return ()
        lines = tuple(sorted((above, *self.statement(above))))
        first = self.code(lines[0])
        is_plain = not _CONTROL.match(first) and not _CHECK.match(first) and self.can_run(lines[0])
        before = self.code(self._above(lines[0]))
        is_alone = before.endswith((";", "{", "}")) or _LABEL.fullmatch(before)
        return lines if is_plain and is_alone else ()

    def guard(self, number: int) -> tuple[int, ...]:
        """Return the lines of the `if (...)` of which a line is all the body; () for none.

        The body leaves: `return`, `goto`, `break`, `continue`.
        """
        if not _LEAVES.match(self.code(number)):
            return ()
        above = self._above(number)
        text = self.code(above)
        if text.endswith("{"):
            last = max((number, *self.statement(number)))
            if not self.code(self._below(last)).startswith("}"):
                return ()
        elif not text.endswith(")"):
            return ()
        head = tuple(sorted({above, *(at for at in self.statement(above) if at < number)}))
        return head if _IF.match(self.code(head[0])) else ()

    def after_guard(self, number: int) -> tuple[int, ...]:
        """Return the lines to which the way around a body (see `guard`) leads; () for none.

        They are those of the next statement, and while these run in any case, of further ones.
        """
        lines: list[int] = []
        closed = "" if self.code(number).startswith("break") else "}"  # behind a loop it leads, too
        at = self._below(max((number, *self.statement(number))), closed)
        while at and not _DIRECTIVE.match(self.code(at)):
            lines += (at, *(line for line in self.statement(at) if line > at))
            is_plain = self.code(lines[-1]).endswith(";") and not _CONTROL.match(self.code(at))
            at = self._below(lines[-1]) if is_plain else 0
            if self.code(at).startswith("}") or self.code(at).endswith(":"):
                break
        return tuple(lines)

    def operands(self, number: int) -> int:
        """Return how many operands of `&&` and `||` a line has: 1 without these operators."""
        parts = re.split(r"&&|\|\|", self.code(number))
        return sum(bool(re.search(r"\w", part)) for part in parts)

    def _below(self, number: int, closed: str = "") -> int:
        """Return the line with code behind a line, 0 for none; `closed`: what is no code."""
        near = range(number + 1, number + _NEARBY)
        return next((at for at in near if self.code(at).strip(closed or None)), 0)

    def _above(self, number: int) -> int:
        """Return the line with code before a line, 0 for none."""
        return next((at for at in range(number - 1, 0, -1) if self.code(at)), 0)

    def code(self, number: int) -> str:
        """Return a line without comments and the blanks around it."""
        return self._line(self._code, number).strip()

    def _is_c(self, number: int) -> bool:
        """Tell whether a line is more than a comment, and no directive or macro."""
        code = self.code(number)
        return bool(code) and number not in self._macros and not _DIRECTIVE.match(code)

    def _line(self, lines: Sequence[str], number: int) -> str:
        return lines[number - 1] if 0 < number <= len(lines) else ""

    def _compiled_out(self) -> Mapping[int, str]:
        """Return the lines that the configuration leaves out, each with the condition."""
        excluded: dict[int, str] = {}
        stack: list[_Branch] = []
        joined, first = "", 1
        for number, code in enumerate(self._code, 1):
            joined += code.rstrip("\\") if code.endswith("\\") else code
            if code.endswith("\\") and number not in self._macros:
                continue
            match, lines = _DIRECTIVE.match(joined), range(first, number + 1)
            joined, first = "", number + 1
            if match:
                self._direct(stack, match[1], match[2].strip())
            elif out := next((part for part in stack if part.value is False), None):
                excluded.update(dict.fromkeys(lines, out.condition))
        return excluded

    def _direct(self, stack: list[_Branch], word: str, rest: str) -> None:
        if word in ("if", "ifdef", "ifndef"):
            text = {"if": rest, "ifdef": f"defined({rest})", "ifndef": f"!defined({rest})"}[word]
            value = self._evaluate(text)
            stack.append(_Branch(value, value, self._words(text, value)))
        elif word in ("elif", "else") and stack:
            top = stack[-1]
            value = self._evaluate(rest) if word == "elif" else True
            if top.before is not False:
                value = None if top.before is None else False
            if word == "elif" and not top.before:
                top.condition = self._words(rest, value)
            top.value = value
            top.before = True if top.before or value else top.before
        elif word == "endif" and stack:
            stack.pop()

    def _words(self, text: str, value: bool | None) -> str:
        options = dict.fromkeys(re.findall(r"\bCONFIG_(\w+)", text))
        if len(options) == 1 and re.fullmatch(r"[!\w\s()]+", text):
            name = next(iter(options))
            state = "a module" if self._config.get(name) == "m" else "not set"
            return f"CONFIG_{name} is {'set' if self._is_defined(name) else state}"
        state = "true" if value else "false"
        return f"#if {' '.join(text.split())[:100]} is {state}"

    def _is_defined(self, name: str) -> bool:
        """Whether the macro of an option is defined; that of a module ends with _MODULE."""
        option = name.removesuffix("_MODULE")
        of_module = option != name and self._config.get(option) == "m"
        return of_module or self._config.get(name, "n") not in ("n", "m")

    def _evaluate(self, text: str) -> bool | None:
        tokens = _TOKEN.findall(text)
        if len(tokens) > _MAX_TOKENS:
            return None
        parser = _Condition(tokens, self._is_defined)
        value = parser.either()
        return value if not parser.tokens else None


class _Condition:
    """A preprocessor condition with three values: true, false and unknown (None)."""

    def __init__(self, tokens: list[str], is_defined: Callable[[str], bool]) -> None:
        self.tokens = tokens[::-1]
        self._is_defined = is_defined

    def either(self) -> bool | None:
        value = self._both()
        while self._take("||"):
            other = self._both()
            value = True if value or other else None if None in (value, other) else False
        return value

    def _both(self) -> bool | None:
        value = self._operand()
        while self._take("&&"):
            other = self._operand()
            value = False if False in (value, other) else None if None in (value, other) else True
        return value

    def _operand(self) -> bool | None:
        if self._take("!"):
            value = self._operand()
            return None if value is None else not value
        if self._take("("):
            value = self.either()
            return value if self._take(")") else None
        if not self.tokens:
            return None
        word = self.tokens.pop()
        if word in ("defined", "IS_ENABLED", "IS_BUILTIN"):
            return self._macro(or_module=word == "IS_ENABLED")
        if word in ("0", "1"):
            return word == "1"
        return None

    def _macro(self, *, or_module: bool) -> bool | None:
        is_open = self._take("(")
        name = self.tokens.pop() if self.tokens else ""
        if is_open:
            self._take(")")
        if not name.startswith("CONFIG_"):
            return _predefined(name)
        option = name.removeprefix("CONFIG_")
        return self._is_defined(option) or (or_module and self._is_defined(f"{option}_MODULE"))

    def _take(self, token: str) -> bool:
        if self.tokens and self.tokens[-1] == token:
            self.tokens.pop()
            return True
        return False


def _predefined(name: str) -> bool | None:
    return {"__KERNEL__": True, "__ASSEMBLY__": False, "__x86_64__": True, "MODULE": False}.get(
        name
    )


def _blanked(match: "re.Match[str]") -> str:
    """Return a comment as blanks, a string as it is without its text; lines stay lines."""
    text = match[0]
    if text[0] in "\"'":
        return text[0] + "\\\n" * text.count("\n") + text[0]
    return "".join("\n" if char == "\n" else " " for char in text)


def _continues(line: str) -> bool:
    """Whether a line begins with an operator: `*p = 1`, `++n` and `--n` are statements."""
    return line.startswith(_OPERATORS) and not line.startswith(("*", "++", "--"))


def _is_end(line: str, following: str) -> bool:
    """Whether a line ends a statement, or the head of one: the next has its body."""
    if line.endswith(")"):
        return following != "{" and not _continues(following)
    return line.endswith((";", "{", "}", ":"))


def _macro_lines(code: Sequence[str]) -> frozenset[int]:
    """Return the lines of #define, continued ones included."""
    numbers: set[int] = set()
    inside = False
    for number, line in enumerate(code, 1):
        match = _DIRECTIVE.match(line)
        inside = inside or bool(match and match[1] == "define")
        if inside:
            numbers.add(number)
        inside = inside and line.rstrip().endswith("\\")
    return frozenset(numbers)


def parse_config(text: str) -> Mapping[str, str]:
    """Return the options of a `.config` that are set, without CONFIG_."""
    return dict(re.findall(r"^CONFIG_(\w+)=(.*)$", text, re.MULTILINE))
