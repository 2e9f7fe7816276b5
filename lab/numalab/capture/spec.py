"""The `[capture]` table of a study, and the lines of it that the guest reads."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, model_validator

from numalab.capture.samples import SAMPLED, SOURCES, SampledSource
from numalab.document import Document, check_document
from numalab.errors import UserError

TRACE_INSTANCE = "lab"  # of the guest, for what numalab records
_SWITCHES = (
    "sched:sched_switch",
    "sched:sched_wakeup",
    "sched:sched_wakeup_new",
    "sched:sched_migrate_task",
)
_NUMA = (
    "sched:sched_migrate_task",
    "sched:sched_move_numa",
    "sched:sched_swap_numa",
    "sched:sched_stick_numa",
    # Why memory was not looked at; Linux 6.7 and 6.15 brought these two.
    "?sched:sched_skip_vma_numa",
    "?sched:sched_skip_cpuset_numa",
    "migrate:mm_migrate_pages",
)
# A `?` in front: recorded where the kernel has it.
SETS: Mapping[str, tuple[str, ...]] = {
    # Who ran where and who waited: what occupancy and run-queue length are made from.
    "sched": (
        *_SWITCHES,
        "sched:sched_process_fork",
        "sched:sched_process_exec",
        "sched:sched_process_exit",
    ),
    # What NUMA balancing decided.
    "numa": _NUMA,
    # And when tasks ran, and every page fault, hinting faults among them.
    "numa-full": (
        *_NUMA,
        *_SWITCHES,
        "?exceptions:page_fault_user",
        "?migrate:mm_migrate_pages_start",
        "?migrate:mm_numa_migrate_ratelimit",  # until Linux 4.18
    ),
    # Who moved a task: the load balancer, NUMA balancing or a wake-up.
    "balance": (
        *_SWITCHES,
        "sched:sched_waking",
        "sched:sched_move_numa",
        "sched:sched_swap_numa",
        "sched:sched_stick_numa",
    ),
}
SetName = Literal["sched", "numa", "numa-full", "balance"]
# Recorded where a scheduler is loaded: Linux 6.12 and 6.15 brought these two.
SCX_EVENTS = ("sched_ext:sched_ext_dump", "sched_ext:sched_ext_event")
# What `perf stat` counted in "Fixes for sched/numa_balancing" (2018), what is left of it.
PERF_SETS: Mapping[str, tuple[str, ...]] = {
    "numa": (
        "context-switches",
        "cpu-migrations",
        "page-faults",
        "cache-misses",
        "sched:sched_move_numa",
        "sched:sched_stick_numa",
        "sched:sched_swap_numa",
        "migrate:mm_migrate_pages",
    ),
}
_PERF_ALIASES = {
    "cs": "context-switches",
    "migrations": "cpu-migrations",
    "faults": "page-faults",
}
# The trace clocks that are CLOCK_MONOTONIC, or are it in a guest that is never suspended.
ON_SAMPLE_CLOCK = ("mono", "boot")
Clock = Literal["mono", "mono_raw", "boot", "tai", "local", "global"]


def _checked_name(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z_][\w-]{0,63}(:[A-Za-z_]\w{0,63})?", text, re.ASCII):
        raise ValueError(f"{text[:60]!r} is not a trace event (write system:event, or system)")
    return text


def _checked_perf_event(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z][\w-]{0,63}(:[A-Za-z_]\w{0,63})?", text, re.ASCII):
        raise ValueError(f"{text[:60]!r} is not an event of perf (write cs or system:event)")
    return _PERF_ALIASES.get(text, text)


def _checked_source(name: str) -> str:
    valid = [*SAMPLED, *SOURCES.all()]
    if name not in valid:
        raise ValueError(f"nothing to sample is called {name[:60]!r} (valid: {', '.join(valid)})")
    return name


EventName = Annotated[str, AfterValidator(_checked_name)]
PerfEvent = Annotated[str, AfterValidator(_checked_perf_event)]
SourceName = Annotated[str, AfterValidator(_checked_source)]
# The guest reads a line at a time, the event and the filter with a tab between them.
Filter = Annotated[str, Field(pattern=r"^[^\x00-\x1f]+$", max_length=1024)]


class CaptureTable(Document):
    """The `[capture]` table: the events and samples of a run."""

    sets: tuple[SetName, ...] = ("sched", "numa")
    """Named sets of trace events."""
    events: tuple[EventName, ...] = ()
    """More events as `system:event`; a kernel without one of them fails the run."""
    optional_events: tuple[EventName, ...] = ()
    """Events that are recorded where the kernel has them."""
    filters: dict[EventName, Filter] = Field(default_factory=dict)
    """ftrace filters by event."""
    buffer_mib: int = Field(default=32, ge=1, le=16384)
    """The ring buffers of all CPUs together."""
    clock: Clock = "mono"
    """The trace clock; samples need `mono` or `boot`."""
    lost_events: Literal["report", "error"] = "report"
    """`error` fails a run that lost events."""
    perf_stat: tuple[PerfEvent, ...] = ()
    """Events that `perf stat` counts; `numa` is a set."""
    sample: tuple[SourceName, ...] = ()
    """Sources that are read at intervals: `vmstat`, `schedstat`, `tasks`, `numa_maps`, and those of
    plug-ins. `numa_maps` counts a page that processes share once for each of them."""
    sample_ms: int = Field(default=500, ge=10, le=3_600_000)
    """The interval in milliseconds."""
    numastat: bool = False
    """Reads the counters of each node before and after the command."""

    @property
    def trace_events(self) -> tuple[str, ...]:
        """The events of the sets and those named, an optional one with a `?` in front."""
        return expand(self.sets, [*self.events, *(f"?{name}" for name in self.optional_events)])

    @model_validator(mode="after")
    def _filters_have_events(self) -> "CaptureTable":
        recorded = [name.lstrip("?") for name in self.trace_events]
        for event in self.filters:
            if event not in recorded:
                names = ", ".join(recorded)
                raise ValueError(f"filters: {event} is not recorded (recorded: {names})")
        return self


class _Study(Document):
    capture: CaptureTable


@dataclass(frozen=True)
class TraceEvent:
    """An event to record: `system:event`, and an ftrace filter on its fields ("" for none).

    A `system` alone stands for all of its events. An `optional` one is recorded where the kernel
    has it.
    """

    name: str
    filter: str = ""
    optional: bool = False


@dataclass(frozen=True)
class CaptureSpec:
    """The events, counters and samples to record.

    `buffer_mib` is the ring buffer of all CPUs together. With `lost_is_error` a run that lost
    events fails. perf counts `perf_stat` while the command runs; `sample` is read every `sample_ms`
    ms (0: never); `numastat` reads the nodes' counters before and after.
    """

    events: tuple[TraceEvent, ...]
    buffer_mib: int = 32
    clock: str = "mono"
    lost_is_error: bool = False
    perf_stat: tuple[str, ...] = ()
    sample: tuple[str, ...] = ()
    sample_ms: int = 0
    numastat: bool = False

    @property
    def sampled(self) -> str:
        """The sampled counters as letters for the guest's numalab-run."""
        return "".join(SAMPLED[name] for name in self.sample if name in SAMPLED)

    @property
    def added(self) -> tuple[SampledSource, ...]:
        """The sampled sources of plug-ins."""
        return tuple(SOURCES.all()[name] for name in self.sample if name not in SAMPLED)


def load_capture(table: Mapping[str, Any], path: Path) -> CaptureSpec:
    """Check the `[capture]` table of the study at `path`; an empty one gives the default.

    Raises UserError with the file, the key (`capture.sets`) and what would be valid.
    """
    checked = check_document({"capture": dict(table)}, _Study, path).capture
    named = [(name.removeprefix("?"), name.startswith("?")) for name in checked.trace_events]
    perf = [event for name in checked.perf_stat for event in PERF_SETS.get(name, (name,))]
    return CaptureSpec(
        events=tuple(
            TraceEvent(name, checked.filters.get(name, ""), optional) for name, optional in named
        ),
        buffer_mib=checked.buffer_mib,
        clock=checked.clock,
        lost_is_error=checked.lost_events == "error",
        perf_stat=tuple(dict.fromkeys(perf)),
        sample=tuple(dict.fromkeys(checked.sample)),
        sample_ms=checked.sample_ms if checked.sample else 0,
        numastat=checked.numastat,
    )


def check_clock(spec: CaptureSpec, path: Path) -> None:
    """Raise UserError for samples that cannot be compared with the trace: of another clock.

    Results may have been recorded so; they are read without their samples.
    """
    if spec.sample and spec.clock not in ON_SAMPLE_CLOCK:
        reason = f"{spec.clock!r} is not the clock of the samples that `sample` asks for"
        raise UserError(reason, file=path, key="capture.clock", choices=ON_SAMPLE_CLOCK)


def expand(sets: Iterable[str], events: Iterable[str]) -> tuple[str, ...]:
    """Return the events of some sets and more events, each once, in order of first mention.

    An event that is required in one place is required.
    """
    named = [*(event for name in sets for event in SETS[name]), *events]
    needed = {name for name in named if not name.startswith("?")}
    wanted = (name.lstrip("?") if name.lstrip("?") in needed else name for name in named)
    return tuple(dict.fromkeys(wanted))


def render_events(spec: CaptureSpec) -> tuple[str, ...]:
    """Render the lines of /job/events: `system:event`, or that, a tab and the filter.

    An optional event has a `?` in front.
    """
    return tuple(
        "?" * event.optional + event.name + (f"\t{event.filter}" if event.filter else "")
        for event in spec.events
    )
