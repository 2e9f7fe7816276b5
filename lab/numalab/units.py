"""Sizes and times as people write them."""

import re

_SIZE = re.compile(r"(\d+)\s*(KiB|MiB|GiB|TiB|B)?")
_FACTOR = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}


def parse_size(text: str) -> int:
    """Parse `512MiB`, `2 GiB` or a plain number of bytes into bytes. Raises ValueError."""
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"not a size: {text[:40]!r} (write 512MiB or 2GiB)")
    return int(match[1]) * _FACTOR[match[2] or "B"]


_TIME = re.compile(r"(?:(\d+)\s*h)?\s*(?:(\d+)\s*m(?:in)?)?\s*(?:(\d+)\s*s)?")


def parse_seconds(text: str, plain: str = "s") -> int:
    """Parse `90s`, `20m`, `1h30m`, above 0, or a plain number in the unit `plain`.

    Raises ValueError.
    """
    text = text.strip()
    match = _TIME.fullmatch(f"{text}{plain}" if text.isdecimal() else text)
    if match is None or len(text) > 20:
        raise ValueError(f"not a time: {text[:40]!r} (write 90s, 20m or 1h30m)")
    hours, minutes, seconds = (int(part or 0) for part in match.groups())
    if not (total := (hours * 60 + minutes) * 60 + seconds):
        raise ValueError(f"{text!r} is no time above 0 (write 90s, 20m or 1h30m)")
    return total


def counted(count: int, noun: str) -> str:
    """Write a number of things: `1 die`, `2 dies`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def runs_of(number: int) -> str:
    """Write a number of runs."""
    return counted(number, "run")


def unit_of_difference(unit: str) -> str:
    """Return the unit of a difference of two values: that of percentages is in points."""
    return "points" if unit == "%" else unit


def format_size(size: int) -> str:
    """Format bytes with the largest binary unit that keeps at least one whole digit."""
    for unit in ("TiB", "GiB", "MiB", "KiB"):
        if size >= _FACTOR[unit]:
            return f"{size / _FACTOR[unit]:.1f} {unit}".replace(".0 ", " ")
    return f"{size} B"


def format_seconds(seconds: float) -> str:
    """Format a duration for people: `0.42 s`, `12.3 s`, `4 min 05 s`, `2 h 03 min`."""
    if seconds < 1:
        return f"{seconds:.2f} s"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min"
