"""Parses counters that the guest sampled while the command ran, into tables.

numalab-run reads the counters of `SAMPLED`, workloads/numalab-sample.c the files of plug-ins'
sources. The text comes from a guest: unknown lines are skipped.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import astuple, dataclass, field
from itertools import islice
from typing import TypeVar

import polars as pl

from numalab.capture.counters import SCHEDSTAT_FIELDS, SCHEDSTAT_VERSIONS
from numalab.errors import UserError
from numalab.measure import LARGEST_NUMBER
from numalab.plugins import Registry
from numalab.topology.limits import MAX_NODES

# The letters by which images/src/numalab-run.c knows what is sampled.
SAMPLED = {"vmstat": "v", "schedstat": "s", "tasks": "t", "numa_maps": "p"}
MAX_LINES = 2_000_000
MAX_ROWS = 3_000_000  # of all tables: a line has up to 400 of them, each of 200 bytes
MAX_COUNTERS = 16  # names that an added source may give in one run; each is a diagram
_NUMBER = re.compile(r"-?\d{1,18}")
_BY_NODE = re.compile(r"(\d{1,4}):(\d{1,18})")
_FAULTS = re.compile(r"(\d{1,4}):(\d{1,18}):(\d{1,18}):(\d{1,18}):(\d{1,18})")
_CPUS = re.compile(r"cpus=([\d,-]{1,1000})", re.ASCII)

Schema = Mapping[str, type[pl.DataType]]
_FAULT_COUNTS = ("task_private", "task_shared", "group_private", "group_shared")
SCHEMAS: Mapping[str, Schema] = {
    "vmstat": {"time_ns": pl.Int64, "counter": pl.String, "value": pl.Int64},
    "schedstat": {
        **{"time_ns": pl.Int64, "cpu": pl.Int32},
        **dict.fromkeys(("running_ns", "waiting_ns", "timeslices"), pl.Int64),
    },
    "tasks": {
        **{"time_ns": pl.Int64, "tgid": pl.Int32, "pid": pl.Int32, "comm": pl.String},
        **{"node": pl.Int32, "ngid": pl.Int32},
    },
    "faults": {
        **{"time_ns": pl.Int64, "pid": pl.Int32, "node": pl.Int32},
        **dict.fromkeys(_FAULT_COUNTS, pl.Int64),
    },
    "masks": {"time_ns": pl.Int64, "pid": pl.Int32, "cpus": pl.String},
    "pages": {"time_ns": pl.Int64, "tgid": pl.Int32, "node": pl.Int32, "kib": pl.Int64},
}
ADDED: Schema = {
    "time_ns": pl.Int64,
    "source": pl.String,
    "counter": pl.String,
    "node": pl.Int32,
    "value": pl.Float64,
}


@dataclass(frozen=True)
class SampledValue:
    """The value of one counter at one moment, of a node or (None) of the whole machine."""

    counter: str
    value: float
    node: int | None = None

    def __post_init__(self) -> None:
        """Raise TypeError for values of other types, a mistake in a plug-in."""
        types = (type(self.counter), type(self.value), type(self.node))
        if not (types[0] is str and types[1] in (int, float) and types[2] in (int, type(None))):
            raise TypeError(f"SampledValue{astuple(self)} is not a text, a number and a node")


# From the texts of a source's files by path, at one moment, to what they say.
Reader = Callable[[Mapping[str, str]], Iterable[SampledValue]]
R = TypeVar("R", bound=Reader)


@dataclass(frozen=True)
class SampledSource:
    """Files of the guest's kernel that are read at intervals: a plug-in can add one.

    `name` is its word in `sample`. `path` is a file below /proc or /sys; a `*` in it stands for the
    numbers below 1024 that are there. Texts have their blank lines. `title` and `unit` are those of
    its diagrams, which show growth between samples with `grows`. `read` may raise ValueError or
    LookupError for an unknown text: that moment is left out.
    """

    name: str
    title: str
    unit: str
    path: str
    read: Reader
    grows: bool = False

    def __post_init__(self) -> None:
        """Raise UserError for a name or path that the guest could not read."""
        if not re.fullmatch(r"[a-z][a-z0-9_]{0,31}", self.name):
            raise UserError(f"{self.name[:80]!r} is no name of a sampled source (write a_z_0_9)")
        plain = re.fullmatch(r"/(proc|sys)(/[\w.:+-]+|/[\w.:+-]*\*[\w.:+-]*)+", self.path, re.ASCII)
        if not plain or "/.." in self.path or self.path.count("*") > 1 or len(self.path) > 200:
            raise UserError(f"{self.name}: {self.path[:80]!r} is no file below /proc or /sys")


SOURCES: Registry[SampledSource] = Registry("sampled source", "numalab.capture.sources")


def register_source(
    name: str, *, title: str, unit: str, path: str, grows: bool = False
) -> Callable[[R], R]:
    """Add a source that studies sample with `sample = ["NAME"]`; a decorator of its reader.

    The reader gets the texts of the files at one moment by path, and yields their values. See
    `SampledSource` for the other arguments.

        @register_source("loadavg", title="Load average", unit="tasks", path="/proc/loadavg")
        def loadavg(texts: Mapping[str, str]) -> Iterator[SampledValue]:
            '''The load average of the last minute.'''
            yield SampledValue("one_minute", float(texts["/proc/loadavg"].split()[0]))

    Raises UserError for a name that is taken and a path that is not below /proc or /sys.
    """

    def add(reader: R) -> R:
        if name in SAMPLED:
            raise UserError(f"there is a {SOURCES.kind} called {name!r} already")
        SOURCES.add(name, SampledSource(name, title, unit, path, reader, grows), reader)
        return reader

    return add


@dataclass(frozen=True)
class Samples:
    """Tables with a row for each sampled value; `time_ns` is CLOCK_MONOTONIC.

    `vmstat`: counter, value. `schedstat`: each CPU as `CpuSchedstat`. `tasks`: each thread with
    process (tgid), name, preferred node (-1: none) and NUMA group (0: none). `faults`: NUMA faults
    of a task by node (/proc/PID/sched; they decay). `masks`: the CPUs that a task may use, a
    cpulist. `pages`: KiB of a process by node. `added`: values of plug-ins' sources by source,
    counter and node (null: none).
    """

    vmstat: pl.DataFrame
    schedstat: pl.DataFrame
    tasks: pl.DataFrame
    faults: pl.DataFrame
    masks: pl.DataFrame
    pages: pl.DataFrame
    added: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=ADDED))


def parse_samples(text: str) -> Samples:
    """Parse the samples; a table is empty if its counters were not sampled."""
    rows: dict[str, list[tuple[int | str, ...]]] = {name: [] for name in SCHEMAS}
    for table, row in islice(_timed_rows(text), MAX_ROWS):
        rows[table].append(row)
    return Samples(
        **{
            name: pl.DataFrame(rows[name], schema=schema, orient="row", strict=False)
            for name, schema in SCHEMAS.items()
        }
    )


def _timed_rows(text: str) -> Iterator[tuple[str, tuple[int | str, ...]]]:
    time, left_out = 0, ""
    for line in text.splitlines()[:MAX_LINES]:
        kind, *words = line.split()[:400] or [""]
        if kind == "@" and words and _NUMBER.fullmatch(words[0]):
            time = int(words[0])
        elif kind == "schedstat" and words[:1] == ["version"]:
            left_out = "" if " ".join(words) in SCHEDSTAT_VERSIONS else kind
        elif kind != left_out:
            for table, row in _rows(kind, words):
                yield table, (time, *row)


def _rows(kind: str, words: list[str]) -> Iterator[tuple[str, tuple[int | str, ...]]]:
    match kind, words:
        case "vmstat", [counter, value] if _NUMBER.fullmatch(value):
            yield "vmstat", (counter, int(value))
        case "schedstat", [cpu, *numbers] if len(numbers) == SCHEDSTAT_FIELDS:
            if re.fullmatch(r"cpu\d{1,5}", cpu) and all(map(_NUMBER.fullmatch, numbers[6:9])):
                yield "schedstat", (int(cpu[3:]), *map(int, numbers[6:9]))
        case "task", [tgid, pid, node, group, *rest]:
            if all(map(_NUMBER.fullmatch, (tgid, pid, node, group))):
                name = rest.pop(0) if rest and not {":", "="} & {*rest[0]} else ""
                yield "tasks", (int(tgid), int(pid), _name(name), int(node), int(group))
                for match in filter(None, map(_FAULTS.fullmatch, rest)):
                    yield "faults", (int(pid), *map(int, match.groups()))
                for match in filter(None, map(_CPUS.fullmatch, rest)):
                    yield "masks", (int(pid), match[1])
        case "pages", [tgid, *rest] if _NUMBER.fullmatch(tgid):
            for match in filter(None, map(_BY_NODE.fullmatch, rest)):
                yield "pages", (int(tgid), int(match[1]), int(match[2]))


def _name(text: str) -> str:
    """Turn hexadecimal into a task's name, bytes that are not UTF-8 into `\\xNN`."""
    if not re.fullmatch(r"([0-9a-f]{2}){0,64}", text):
        return ""
    return bytes.fromhex(text).decode("utf-8", "backslashreplace")


def parse_added(text: str, sources: Iterable[SampledSource]) -> pl.DataFrame:
    """Parse the samples of plug-ins' sources into the table `Samples.added`.

    Raises UserError for a reader that fails.
    """
    readers = {source.name: source for source in sources}
    counters: dict[str, set[str]] = {name: set() for name in readers}
    rows = []
    for time, name, texts in _moments(text, readers):
        for value in _read(readers[name], texts):
            if len(counters[name]) < MAX_COUNTERS:
                counters[name].add(value.counter)
            if value.counter in counters[name]:
                rows.append((time, name, value.counter, value.node, float(value.value)))
    return pl.DataFrame(rows, schema=ADDED, orient="row", strict=False)


def _moments(text: str, names: Iterable[str]) -> Iterator[tuple[int, str, Mapping[str, str]]]:
    """Yield time, source and the texts of its files by path."""
    sources = frozenset(names)
    time, files = 0, dict[str, dict[str, list[str]]]()
    for line in (*text.split("\n")[:MAX_LINES], "@ 0"):
        name, *rest = line.split("\t", 2)
        if name in sources and len(rest) == 2:
            files.setdefault(name, {}).setdefault(rest[0], []).append(rest[1])
        elif line.startswith("@ ") and _NUMBER.fullmatch(line[2:]):
            for source, texts in files.items():
                yield time, source, {path: "\n".join(lines) for path, lines in texts.items()}
            time, files = int(line[2:]), {}


def _read(source: SampledSource, texts: Mapping[str, str]) -> Iterator[SampledValue]:
    """Yield the valid values of a reader. Raises UserError for a reader that fails."""
    try:
        values: list[object] = [*source.read(texts)]
    except (ValueError, LookupError):
        return
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        raise UserError(f"the reader of what {source.name} samples failed: {reason}") from error
    for value in values:
        if not isinstance(value, SampledValue):
            reason = f"gave a {type(value).__name__}, not a SampledValue"
            raise UserError(f"the reader of what {source.name} samples {reason}")
        if (
            re.fullmatch(r"\w[\w.:/-]{0,63}", value.counter, re.ASCII)
            and abs(value.value) < LARGEST_NUMBER  # neither infinite nor no number
            and (value.node is None or 0 <= value.node < MAX_NODES)
        ):
            yield value
