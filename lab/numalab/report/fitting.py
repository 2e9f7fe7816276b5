"""Fits a report into a limit: leaves out its least important parts, and says which."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

KEPT = 0  # the `spare` of a part that always stays


@dataclass(frozen=True)
class ReportPart:
    """Some lines of a report that stay or go together.

    `spare` is how little the part matters: the highest goes first, `KEPT` never. `what` names what
    is then missing, such as `table of counters`; it is empty for a title.
    """

    lines: tuple[str, ...]
    spare: int = KEPT
    what: str = ""


def line_count(lines: Sequence[str]) -> int:
    """Return the number of lines, as the size of a part."""
    return len(lines)


def characters(lines: Sequence[str]) -> int:
    """Return the number of characters, line ends included, as the size of a part."""
    return sum(len(line) + 1 for line in lines)


def fit(
    parts: Sequence[ReportPart],
    most: int,
    left_out: Callable[[str], Sequence[str]],
    size: Callable[[Sequence[str]], int] = line_count,
) -> list[str]:
    """Return the lines of the parts, at most `most` of them by `size`.

    Of parts that matter alike, the last goes first. `left_out` makes the lines at the end from a
    text such as `3 tables of counters, 12 differences`; it is not called where all parts fit.
    """
    kept = dict(enumerate(parts))
    total = sum(size(part.lines) for part in parts)
    order = sorted(
        (place for place, part in enumerate(parts) if part.spare),
        key=lambda place: (-parts[place].spare, -place),
    )
    missing: Counter[str] = Counter()
    end: Sequence[str] = ()
    for place in order:
        if total + size(end) <= most:
            break
        part = kept.pop(place)
        total -= size(part.lines)
        if part.what:
            missing[part.what] += 1
        end = left_out(", ".join(map(_counted, missing.items()))) if missing else ()
    return [*(line for part in kept.values() for line in part.lines), *end]


def _counted(missing: tuple[str, int]) -> str:
    """Write `1 table of counters` or `3 tables of counters`."""
    noun, blank, rest = missing[0].partition(" ")
    return f"{missing[1]} {noun}{'s' * (missing[1] > 1)}{blank}{rest}"
