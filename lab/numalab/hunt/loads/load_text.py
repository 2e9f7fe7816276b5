"""The text of loads, which the driver `workloads/hunt/hunt.c` reads.

A load is `time ms=1000;hog n=3 start=0 cpus=0-3`; loads are separated by `|`.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import fields, replace
from typing import Any

from numalab.cpulist import format_cpulist, parse_cpulist
from numalab.hunt.loads.load import (
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
_LONGEST_TEXT = 100_000  # characters of all loads: an argument of the driver
_SHOWN = 40  # characters of a word in a message
# What the driver reads (`workloads/hunt/load.h`), by field, and by word and field where a word has
# its own; other numbers have the last range. A test compares them with the driver.
_RANGES: Mapping[str, tuple[int, int]] = {
    "count": (1, 256),
    "nice": (-20, 19),
    "priority": (1, 98),
    "slice_us": (0, 100_000),
    "burst": (1, 64),
    "waker burst": (1, 16),
    "mib": (1, 4096),
    "scan": (1, 256),
    "areas": (1, 256),
    "node": (0, 63),
    "cpu": (1, 1023),
    "weight": (1, 10_000),
    "quota_ms": (0, 100_000),
    "burst_ms": (0, 100_000),
    "period_ms": (1, 1000),
    "times": (1, 256),
    "part": (0, 31),
    "ms": (10, _MOST_MS),
    "at_ms": (0, _MOST_MS),
    "every_ms": (0, _MOST_MS),
    "off_ms": (0, _MOST_MS),
    "on_ms": (0, _MOST_MS),
    "": (0, 10_000_000),
}
_MOST_PARTS, _MOST_TASKS, _MOST_GROUPS = 32, 256, 16
_MOST_PROCESSES, _MOST_CHANGES = 1024, 255  # what the driver keeps
# The words of the text, by the fields that they set.
_WORDS: Mapping[str, str] = {
    "count": "n", "period_us": "period", "runtime_us": "runtime", "slice_us": "slice",
    "deadline_us": "deadline",
    "period_ms": "period", "burst_ms": "burst",
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
_OF_GROUPS = ("weight", "quota_ms", "period_ms", "burst_ms", "idle")  # of changes
_REQUIRED = ("cpu", "off", "on", "from", "to", "at", "cpus", "name")
_NAME = re.compile(r"[a-z]{1,8}")


def render_load(load: Load) -> str:
    """Write a load for the driver."""
    words = [f"time ms={load.ms}" + (f" scan={load.scan_mib}" if load.scan_mib else "")]
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
    for member in fields(entry):
        value = getattr(entry, member.name)
        name = _WORDS.get(member.name, member.name)
        if member.name == skipped or (value == member.default and name != "n"):
            continue
        text = format_cpulist(value) if isinstance(value, tuple) else str(value)
        words.append(f"{name}={int(value) if isinstance(value, bool) else text}")
    return " ".join(words)


def parse_loads(text: str) -> tuple[Load, ...]:
    """Read loads as `render_loads` writes them. Raises ValueError."""
    if len(text) > _LONGEST_TEXT:
        raise ValueError(f"{len(text)} characters, and at most {_LONGEST_TEXT} are read")
    return tuple(_parse_load(load) for load in text.split("|"))


def _parse_load(text: str) -> Load:
    ms, scan_mib = None, 0
    entries: list[_Entry] = []
    for piece in filter(None, map(str.strip, text.split(";"))):
        word, *words = piece.split()
        values = dict(assignment.partition("=")[::2] for assignment in words)
        if len(values) < len(words):
            raise ValueError(f"{piece[:_SHOWN]!r} has a word twice")
        if word == "time":
            if "ms" not in values:
                raise ValueError(f"{piece[:_SHOWN]!r} lacks ms=")
            _check_words(word, values, ["ms", "scan"])
            if ms is not None:
                raise ValueError("a load has time only once")
            ms = _number(word, "ms", "ms", values["ms"])
            scan_mib = _number(word, "scan", "scan", values["scan"]) if "scan" in values else 0
        else:
            entries.append(_parse(piece, word, values))
    cpusets = [entry for entry in entries if isinstance(entry, CpusetChange)]
    if len(cpusets) > 1:
        raise ValueError("a load has cpuset only once")
    load = Load(
        1000 if ms is None else ms,
        tuple(entry for entry in entries if isinstance(entry, Part)),
        tuple(entry for entry in entries if isinstance(entry, Hotplug)),
        cpusets[-1] if cpusets else None,
        tuple(entry for entry in entries if isinstance(entry, Cgroup)),
        tuple(entry for entry in entries if isinstance(entry, LoadChange)),
        scan_mib,
    )
    _check(load)
    return load


def _check(load: Load) -> None:
    """Raise ValueError for a load that names what it does not have."""
    if not load.parts:
        raise ValueError(f"a load has at least one part (valid: {', '.join(KINDS)})")
    for count, most, what in (
        (len(load.parts), _MOST_PARTS, "parts"),
        (sum(part.count for part in load.parts), _MOST_TASKS, "tasks"),
        (sum(part.count * (1 + _wakees(part)) for part in load.parts), _MOST_PROCESSES,
         "tasks and wakees"),
        (len(load.groups), _MOST_GROUPS, "groups"),
        (len(load.timeline) + 2 * len(load.hotplug) + bool(load.cpuset), _MOST_CHANGES, "changes"),
    ):  # fmt: skip
        if count > most:
            raise ValueError(f"a load has {count} {what}, and at most {most}")
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
        if group.burst_ms > group.quota_ms:
            raise ValueError(f"the burst of group {group.name} is larger than its quota")
    _check_deadlines(load)
    _check_changes(load)


def _check_deadlines(load: Load) -> None:
    entries: list[Part | LoadChange] = [*load.parts, *load.changes]
    for entry in entries:
        if entry.policy == "deadline" and not (entry.runtime_us and entry.period_us):
            raise ValueError("policy=deadline lacks runtime= or period=, in us")


def _wakees(part: Part) -> int:
    return part.burst if part.kind == "waker" else 0


def _check_changes(load: Load) -> None:
    for hotplug in load.hotplug:
        if hotplug.on_ms <= hotplug.off_ms:
            raise ValueError(f"CPU {hotplug.cpu} comes back at {hotplug.on_ms} ms, before it goes")
    for change in load.changes:
        if (change.part is None) == (not change.group):
            raise ValueError("a change names either part= or group=")
        if change.part is not None and not 0 <= change.part < len(load.parts):
            raise ValueError(f"a change names part {change.part} of {len(load.parts)}")
        if change.into and change.part is None:
            raise ValueError("into= is of a change of a part")
        common = LoadChange(
            change.at_ms, change.times, change.every_ms, change.part, change.group, change.cpus
        )
        limits = {name: getattr(change, name) for name in _OF_GROUPS}
        if change.group and change != replace(common, **limits):
            raise ValueError(
                "a change of a group is of cpus=, weight=, quota=, period=, burst= or idle="
            )
        of_policy = change.priority or change.runtime_us or change.period_us
        if of_policy and change.policy is None:
            raise ValueError("priority=, runtime= and period= of a change need policy=")
        if change.part is not None and replace(common, **limits) != common:
            raise ValueError("weight=, quota=, burst= and idle= are of a change of a group")


def _check_words(word: str, values: Mapping[str, str], valid: Iterable[str]) -> None:
    if unknown := values.keys() - set(valid):
        raise ValueError(f"{word} has no {min(unknown)[:_SHOWN]}= (valid: {', '.join(valid)})")


def _parse(piece: str, word: str, values: Mapping[str, str]) -> _Entry:
    kind = next((name for name in KINDS if name == word), None)
    entry: type[_Entry] | None = Part if kind else _ENTRIES.get(word)
    if entry is None:
        valid = ", ".join((*KINDS, *_ENTRIES))
        raise ValueError(f"no part is called {word[:_SHOWN]!r} (valid: {valid})")
    # `fifo=50` is how cases of before 26 November 2026 say it.
    if kind and "fifo" in values:
        values = {**values, "policy": "fifo", "priority": values["fifo"]}
        del values["fifo"]
    members = {_WORDS.get(member.name, member.name): member for member in fields(entry)}
    members.pop("kind", None)
    if entry is LoadChange and "group" not in values:  # in us, of a policy
        members["period"] = next(member for member in fields(entry) if member.name == "period_us")
    _check_words(word, values, members)
    arguments: dict[str, Any] = {"kind": kind, "count": 1} if kind else {}
    for name, member in members.items():
        if name in values:
            arguments[member.name] = _value(word, name, member.name, values[name])
        elif name in _REQUIRED and not (name == "cpus" and entry is not Part):
            raise ValueError(f"{piece[:_SHOWN]!r} lacks {name}=")
    return entry(**arguments)


_LISTS = ("cpus", "start", "later", "wakee", "before", "after")
_FLAGS = (
    "threads", "rest", "shared", "bound", "execs", "yields", "reclaim", "resets", "idle",
    "partition", "stop", "go",
)  # fmt: skip
_CHOICES: Mapping[str, tuple[str, ...]] = {"policy": POLICIES, "over": CHANNELS}


def _value(entry: str, word: str, field: str, text: str) -> object:
    if field in _LISTS:
        if not (cpus := parse_cpulist(text)):
            raise ValueError(f"{word}= names no CPU")
        return cpus
    if field in _FLAGS:
        if text not in ("0", "1"):
            raise ValueError(f"{word}={text[:_SHOWN]} (valid: 0, 1)")
        return text == "1"
    if choices := _CHOICES.get(field):
        if text not in choices:
            raise ValueError(f"{field}={text[:_SHOWN]} (valid: {', '.join(choices)})")
        return text
    return (
        text if field in ("group", "name", "parent", "into") else _number(entry, word, field, text)
    )


def _number(entry: str, word: str, field: str, text: str) -> int:
    usual = _RANGES.get(field, _RANGES[""])
    least, most = _RANGES.get(f"{entry} {field}", usual)
    if not re.fullmatch(r"-?\d{1,9}", text, re.ASCII) or not least <= int(text) <= most:
        raise ValueError(f"{word}={text[:_SHOWN]} is no whole number from {least} to {most}")
    return int(text)
