"""A load: tasks of several kinds, changes while they run, and its text for the guest driver.

The text is what `workloads/hunt/hunt.c` reads: `time ms=1000;hog n=3 start=0 cpus=0-3`.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Literal, get_args

from numalab.cpulist import format_cpulist, parse_cpulist

PartKind = Literal["hog", "sleeper", "waker", "forker", "memory"]
KINDS: tuple[PartKind, ...] = get_args(PartKind)
Cpus = tuple[int, ...]
MOST_MS = 600_000
_TASK = re.compile(r"(hog|sleeper|waker|wakee|forker|child|memory|thread)(\d{1,2})\.(\d{1,3})")


@dataclass(frozen=True)
class Part:
    """A group of equal tasks.

    `count` tasks start bound to `start` (empty: to `cpus`) and are allowed on `cpus` when the
    time begins, on `later` (if any) from half of it on. With `fifo` they are real-time tasks of
    that priority. `run_us` and `sleep_us` are what sleepers, wakers and forkers do in turns; a
    forker has `burst` children. Memory users have `mib` each, first touched where they start or on
    `node`; `threads` are of one process and share it; with `rest` nothing is touched in the second
    quarter of the time.
    """

    kind: PartKind
    count: int
    cpus: Cpus
    start: Cpus = ()
    later: Cpus = ()
    nice: int = 0
    fifo: int = 0
    run_us: int = 1000
    sleep_us: int = 1000
    burst: int = 1
    mib: int = 4
    node: int | None = None
    threads: bool = False
    rest: bool = False

    @property
    def tasks(self) -> int:
        """The largest number of tasks at once."""
        return self.count * {"waker": 2, "forker": 1 + self.burst}.get(self.kind, 1)

    @property
    def every_cpu(self) -> set[int]:
        """All CPUs that it names."""
        return {*self.cpus, *self.start, *self.later}


@dataclass(frozen=True)
class Hotplug:
    """A CPU that goes offline and online again, in ms after the start."""

    cpu: int
    off_ms: int
    on_ms: int


@dataclass(frozen=True)
class CpusetChange:
    """A cpuset of all tasks, whose CPUs change, in ms after the start."""

    before: Cpus
    after: Cpus
    at_ms: int


@dataclass(frozen=True)
class Load:
    """Parts that run at the same time for `ms` milliseconds, and changes meanwhile."""

    ms: int
    parts: tuple[Part, ...]
    hotplug: tuple[Hotplug, ...] = ()
    cpuset: CpusetChange | None = None

    @property
    def tasks(self) -> int:
        """The largest number of tasks at once."""
        return sum(part.tasks for part in self.parts)

    @property
    def every_cpu(self) -> set[int]:
        """All CPUs that it names."""
        named = set[int]().union(*(part.every_cpu for part in self.parts))
        named |= {change.cpu for change in self.hotplug}
        return named | ({*self.cpuset.before, *self.cpuset.after} if self.cpuset else set())

    def masks(self, place: int, at_ms: float) -> frozenset[int]:
        """Return the CPUs allowed for the tasks of a part at a time after the start."""
        part = self.parts[place]
        own = part.later if part.later and at_ms >= self.ms / 2 else part.cpus
        if self.cpuset is None:
            return frozenset(own)
        group = self.cpuset.before if at_ms < self.cpuset.at_ms else self.cpuset.after
        # A mask without a CPU of the cpuset is ignored (cpuset_cpus_allowed()).
        return frozenset(own) & frozenset(group) or frozenset(group)

    def changes_ms(self) -> tuple[float, ...]:
        """Return the times of changes of masks or CPUs, in ms after the start, in order."""
        times = [float(self.ms) / 2] if any(part.later for part in self.parts) else []
        times += [self.cpuset.at_ms] if self.cpuset else []
        times += [ms for change in self.hotplug for ms in (change.off_ms, change.on_ms)]
        return tuple(sorted(times))


def part_of_task(comm: str) -> tuple[str, int, int] | None:
    """Return kind, part and number of a task by its name; None if no load started it."""
    match = _TASK.fullmatch(comm)
    return (match[1], int(match[2]), int(match[3])) if match else None


_NUMBERS: Mapping[str, str] = {
    "n": "count", "nice": "nice", "fifo": "fifo", "run": "run_us", "sleep": "sleep_us",
    "burst": "burst", "mib": "mib", "node": "node",
}  # fmt: skip
_LISTS = ("start", "cpus", "later")
_FLAGS = ("threads", "rest")


def render_load(load: Load) -> str:
    """Write a load for the driver."""
    parts = [f"time ms={load.ms}", *map(_render_part, load.parts)]
    parts += [f"hotplug cpu={h.cpu} off={h.off_ms} on={h.on_ms}" for h in load.hotplug]
    if load.cpuset is not None:
        before, after = (format_cpulist(c) for c in (load.cpuset.before, load.cpuset.after))
        parts.append(f"cpuset from={before} to={after} at={load.cpuset.at_ms}")
    return ";".join(parts)


def render_loads(loads: Iterable[Load]) -> str:
    """Write loads for the driver, one after the other."""
    return "|".join(map(render_load, loads))


def _render_part(part: Part) -> str:
    usual = {field.name: field.default for field in fields(Part)}
    words: list[str] = [part.kind]
    for word, name in _NUMBERS.items():
        if word == "n" or getattr(part, name) != usual[name]:
            words.append(f"{word}={getattr(part, name)}")
    words += [f"{name}={format_cpulist(cpus)}" for name in _LISTS if (cpus := getattr(part, name))]
    words += [f"{name}=1" for name in _FLAGS if getattr(part, name)]
    return " ".join(words)


def parse_loads(text: str) -> tuple[Load, ...]:
    """Read loads as `render_loads` writes them. Raises ValueError."""
    return tuple(_parse_load(load) for load in text.split("|"))


def _parse_load(text: str) -> Load:
    load = Load(1000, ())
    ms, cpuset = load.ms, load.cpuset
    parts: list[Part] = []
    hotplug: list[Hotplug] = []
    for piece in filter(None, map(str.strip, text.split(";"))):
        word, *words = piece.split()
        values = dict(assignment.partition("=")[::2] for assignment in words)
        try:
            if word == "time":
                ms = int(values["ms"])
            elif word == "hotplug":
                numbers = [int(values[name]) for name in ("cpu", "off", "on")]
                hotplug.append(Hotplug(numbers[0], numbers[1], numbers[2]))
            elif word == "cpuset":
                ends = [parse_cpulist(values[name]) for name in ("from", "to")]
                cpuset = CpusetChange(ends[0], ends[1], int(values["at"]))
            else:
                parts.append(_parse_part(word, values))
        except KeyError as error:
            raise ValueError(f"{piece!r} lacks {error.args[0]}=") from None
    if not 10 <= ms <= MOST_MS:
        raise ValueError(f"a load takes 10 to {MOST_MS} ms, not {ms}")
    return Load(ms, tuple(parts), tuple(hotplug), cpuset)


def _parse_part(text: str, values: Mapping[str, str]) -> Part:
    kind = next((name for name in KINDS if name == text), None)
    if kind is None:
        raise ValueError(f"no part is called {text!r} (valid: {', '.join(KINDS)})")
    if unknown := values.keys() - {*_NUMBERS, *_LISTS, *_FLAGS}:
        raise ValueError(f"{text} has no {min(unknown)}=")

    def number(word: str, usual: int) -> int:
        return int(values.get(word, usual))

    def cpus(word: str) -> Cpus:
        return parse_cpulist(values[word]) if word in values else ()

    if not cpus("cpus"):
        raise KeyError("cpus")
    return Part(
        kind=kind,
        count=number("n", 1),
        cpus=cpus("cpus"),
        start=cpus("start"),
        later=cpus("later"),
        nice=number("nice", Part.nice),
        fifo=number("fifo", Part.fifo),
        run_us=number("run", Part.run_us),
        sleep_us=number("sleep", Part.sleep_us),
        burst=number("burst", Part.burst),
        mib=number("mib", Part.mib),
        node=int(values["node"]) if "node" in values else None,
        threads=values.get("threads") == "1",
        rest=values.get("rest") == "1",
    )
