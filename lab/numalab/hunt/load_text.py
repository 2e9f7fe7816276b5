"""The text of loads, as `workloads/hunt/hunt.c` reads it.

A load is `time ms=1000;hog n=3 start=0 cpus=0-3`; loads are separated by `|`.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any

from numalab.cpulist import format_cpulist, parse_cpulist
from numalab.hunt.load import (
    CHANNELS,
    KINDS,
    POLICIES,
    Cgroup,
    CpusetChange,
    Hotplug,
    Load,
    LoadChange,
    Part,
)

_MOST_MS = 600_000
_MOST_TIMES = 200  # what the driver keeps
# The words of the text, by the fields that they set.
_WORDS: Mapping[str, str] = {
    "count": "n", "period_us": "period", "runtime_us": "runtime", "slice_us": "slice",
    "deadline_us": "deadline",
    "run_us": "run", "sleep_us": "sleep", "quota_ms": "quota", "at_ms": "at", "off_ms": "off",
    "on_ms": "on", "before": "from", "after": "to", "execs": "exec", "yields": "yield",
    "every_ms": "every",
}  # fmt: skip
_Entry = Part | Hotplug | CpusetChange | Cgroup | LoadChange
_ENTRIES: Mapping[str, type[_Entry]] = {
    "hotplug": Hotplug,
    "cpuset": CpusetChange,
    "group": Cgroup,
    "change": LoadChange,
}
_REQUIRED = ("cpu", "off", "on", "from", "to", "at", "cpus", "name")
_NAME = re.compile(r"[a-z]{1,8}")


def render_load(load: Load) -> str:
    """Write a load for the driver."""
    words = [f"time ms={load.ms}"]
    words += [_render("group", group) for group in load.groups]
    words += [_render(part.kind, part, "kind") for part in load.parts]
    words += [_render("hotplug", hotplug) for hotplug in load.hotplug]
    words += [_render("cpuset", load.cpuset)] if load.cpuset else []
    words += [_render("change", change) for change in load.changes]
    return ";".join(words)


def render_loads(loads: Iterable[Load]) -> str:
    """Write loads for the driver, one after the other."""
    return "|".join(map(render_load, loads))


def _render(word: str, entry: _Entry, skipped: str = "") -> str:
    words = [word]
    for field in fields(entry):
        value = getattr(entry, field.name)
        name = _WORDS.get(field.name, field.name)
        if field.name == skipped or (value == field.default and name != "n"):
            continue
        text = format_cpulist(value) if isinstance(value, tuple) else str(value)
        words.append(f"{name}={int(value) if isinstance(value, bool) else text}")
    return " ".join(words)


def parse_loads(text: str) -> tuple[Load, ...]:
    """Read loads as `render_loads` writes them. Raises ValueError."""
    return tuple(_parse_load(load) for load in text.split("|"))


def _parse_load(text: str) -> Load:
    ms = 1000
    entries: list[_Entry] = []
    for piece in filter(None, map(str.strip, text.split(";"))):
        word, *words = piece.split()
        values = dict(assignment.partition("=")[::2] for assignment in words)
        if word == "time":
            if "ms" not in values:
                raise ValueError(f"{piece!r} lacks ms=")
            ms = int(values["ms"])
        else:
            entries.append(_parse(piece, word, values))
    if not 10 <= ms <= _MOST_MS:
        raise ValueError(f"a load takes 10 to {_MOST_MS} ms, not {ms}")
    cpusets = [entry for entry in entries if isinstance(entry, CpusetChange)]
    load = Load(
        ms,
        tuple(entry for entry in entries if isinstance(entry, Part)),
        tuple(entry for entry in entries if isinstance(entry, Hotplug)),
        cpusets[-1] if cpusets else None,
        tuple(entry for entry in entries if isinstance(entry, Cgroup)),
        tuple(entry for entry in entries if isinstance(entry, LoadChange)),
    )
    _check(load)
    return load


def _check(load: Load) -> None:
    """Raise ValueError for a load that names what it does not have."""
    names: set[str] = set()
    for group in load.groups:
        if not _NAME.fullmatch(group.name) or group.name in names:
            raise ValueError(f"the name of a group is 1 to 8 letters, once: {group.name!r}")
        if group.parent and group.parent not in names:
            raise ValueError(f"group {group.name} comes before its parent {group.parent!r}")
        names.add(group.name)
    named = {part.group for part in load.parts}
    named |= {name for change in load.changes for name in (change.group, change.into)}
    if lacking := named - {"", *names}:
        raise ValueError(f"no group is called {min(lacking)!r} (valid: {', '.join(sorted(names))})")
    if load.cpuset is not None and load.groups:
        raise ValueError("a load has either cpuset or groups; groups have cpus=")
    for group in load.groups:
        if group.partition and (group.parent or not group.cpus):
            raise ValueError(f"partition {group.name} lacks cpus=, or has a parent")
    _check_changes(load)


def _check_changes(load: Load) -> None:
    for change in load.changes:
        if (change.part is None) == (not change.group):
            raise ValueError("a change names either part= or group=")
        if change.part is not None and not 0 <= change.part < len(load.parts):
            raise ValueError(f"a change names part {change.part} of {len(load.parts)}")
        if change.into and change.part is None:
            raise ValueError("into= is of a change of a part")
        if not 1 <= change.times <= _MOST_TIMES:
            raise ValueError(f"a change happens 1 to {_MOST_TIMES} times, not {change.times}")
    if len(load.timeline) > _MOST_TIMES:
        raise ValueError(f"a load has at most {_MOST_TIMES} changes, not {len(load.timeline)}")


def _parse(piece: str, word: str, values: Mapping[str, str]) -> _Entry:
    kind = next((name for name in KINDS if name == word), None)
    entry: type[_Entry] | None = Part if kind else _ENTRIES.get(word)
    if entry is None:
        raise ValueError(f"no part is called {word!r} (valid: {', '.join((*KINDS, *_ENTRIES))})")
    # `fifo=50` is how cases of before 26 November 2026 say it.
    if kind and "fifo" in values:
        values = {**values, "policy": "fifo", "priority": values["fifo"]}
        del values["fifo"]
    fields_of = {_WORDS.get(field.name, field.name): field for field in fields(entry)}
    fields_of.pop("kind", None)
    if unknown := values.keys() - fields_of.keys():
        raise ValueError(f"{word} has no {min(unknown)}=")
    arguments: dict[str, Any] = {"kind": kind, "count": 1} if kind else {}
    for name, field in fields_of.items():
        if name in values:
            arguments[field.name] = _value(field.name, values[name])
        elif name in _REQUIRED and not (name == "cpus" and entry is not Part):
            raise ValueError(f"{piece!r} lacks {name}=")
    return entry(**arguments)


_LISTS = ("cpus", "start", "later", "wakee", "before", "after")
_FLAGS = (
    "threads", "rest", "shared", "bound", "execs", "yields", "reclaim", "resets", "idle",
    "partition", "stop", "go",
)  # fmt: skip
_CHOICES: Mapping[str, tuple[str, ...]] = {"policy": POLICIES, "over": CHANNELS}


def _value(field: str, text: str) -> object:
    if field in _LISTS:
        return parse_cpulist(text)
    if field in _FLAGS:
        return text == "1"
    if choices := _CHOICES.get(field):
        if text not in choices:
            raise ValueError(f"{field}={text} (valid: {', '.join(choices)})")
        return text
    return text if field in ("group", "name", "parent", "into") else int(text)
