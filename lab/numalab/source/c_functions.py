"""The functions of a C file of the kernel: which one a line is in, and their bodies. Pure."""

import re
from collections.abc import Iterator, Sequence
from itertools import accumulate

# The head of a function.
HEAD = re.compile(r"(?:[A-Za-z_][\w\s*]*?\b)?([A-Za-z_]\w*)\s*\((?!.*;\s*$)")
# A call of a macro that makes functions; an event of a class has its name behind the class.
_CALL = re.compile(r"([A-Z_]*DEFINE_EVENT\w*)\(\s*(\w+,\s*\w+)|([A-Z][A-Z0-9_]*)\(\s*(\w+)")
_ENDS = ("}", ");")  # a function, or a call of a macro


def enclosing_function(text: str, number: int) -> str:
    """Return the name of the function or macro around a line (from 1), "" for none.

    Of what a call of a macro makes, the kernel's own words: `SYSCALL_DEFINE0(sched_yield)`,
    `TRACE_EVENT(sched_switch)`, `DEFINE_EVENT(sched_wakeup_template, sched_waking)`.
    """
    return _head(text.split("\n"), number)[1]


def called(name: str) -> str:
    """Return a name of `enclosing_function` for a text: `f()`, `TRACE_EVENT(sched_switch)`."""
    return name if name.endswith(")") else f"{name}()"


def _head(lines: Sequence[str], number: int) -> tuple[int, str]:
    """Return the line (from 1) where the function or macro around a line begins, and its name."""
    for at in range(min(number, len(lines)), 0, -1):
        line = lines[at - 1]
        if match := re.match(r"#\s*define\s+(\w+)", line):
            if all(later.endswith("\\") for later in lines[at - 1 : number - 1]):
                return at, match[1]
        elif match := HEAD.match(line):
            call = _CALL.match(" ".join(lines[at - 1 : at + 1]))
            words = [word for word in call.groups() if word] if call else []
            arguments = ", ".join(re.findall(r"\w+", words[1])) if words else ""
            return at, f"{words[0]}({arguments})" if words else match[1]
        elif line.startswith(_ENDS) and at < number:
            break
    return 0, ""


def macro_call(code: Sequence[str], number: int) -> int:
    """Return the first line of the macro call outside functions that a line goes on; 0 for none.

    `code` are the lines of a file without comments. The compiler counts all code of such a call, as
    of TRACE_EVENT(), for its first line.
    """
    at, name = _head(code, number)
    before = code[at - 1 : number - 1] if name.endswith(")") else ()
    opened = list(accumulate(line.count("(") - line.count(")") for line in before))
    return at if opened and all(depth > 0 for depth in opened) else 0


def function_lines(text: str, number: int) -> range:
    """Return the lines of the function around a line (from 1), head included; empty for none.

    A macro call that makes functions counts as one.
    """
    lines = text.split("\n")
    first, name = _head(lines, number)
    if not name or lines[first - 1].startswith("#"):
        return range(0)
    end = range(min(number, len(lines)), len(lines) + 1)
    last = next((at for at in end if lines[at - 1].startswith(_ENDS)), 0)
    return range(first, last + 1) if last else range(0)


def functions_in(text: str) -> Iterator[tuple[str, str]]:
    """Yield the name and the text of each function that a C file of the kernel defines."""
    for name, _, body in function_bodies(text):
        yield name, "\n".join(body)


def function_bodies(text: str) -> Iterator[tuple[str, int, Sequence[str]]]:
    """Yield the name, the first line's number (from 1), and the lines of each function."""
    name, first, begun = "", 0, list[str]()
    for number, line in enumerate(text.split("\n"), 1):
        if not name and (match := HEAD.match(line)) and not line.startswith("#"):
            name, first, begun = match[1], number, []
        if name:
            begun.append(line)
        if line.startswith("}"):
            if name:
                yield name, first, begun
            name = ""
        elif name and line.startswith("#define"):
            name = ""
