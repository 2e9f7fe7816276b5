"""What a study wants recorded: its `[capture]` table, and the lines that the guest reads."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, model_validator

from lab.document import Document, check_document

SETS: Mapping[str, tuple[str, ...]] = {
    # Who ran where and who waited: what occupancy and run-queue length are made from.
    "sched": (
        "sched:sched_switch",
        "sched:sched_wakeup",
        "sched:sched_wakeup_new",
        "sched:sched_migrate_task",
        "sched:sched_process_fork",
        "sched:sched_process_exec",
        "sched:sched_process_exit",
    ),
    # What NUMA balancing decided.
    "numa": (
        "sched:sched_migrate_task",
        "sched:sched_move_numa",
        "sched:sched_swap_numa",
        "sched:sched_stick_numa",
        "migrate:mm_migrate_pages",
    ),
    # Why NUMA balancing did not look at memory. Linux 6.7 and 6.15 brought these two.
    "numa-skips": ("sched:sched_skip_vma_numa", "sched:sched_skip_cpuset_numa"),
}
SetName = Literal["sched", "numa", "numa-skips"]
Clock = Literal["mono", "mono_raw", "boot", "tai", "local", "global", "x86-tsc"]


def _checked_name(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z_][\w-]{0,63}:[A-Za-z_]\w{0,63}", text, re.ASCII):
        raise ValueError(f"{text[:60]!r} is not a trace event (write system:event)")
    return text


EventName = Annotated[str, AfterValidator(_checked_name)]
# The guest reads a line at a time, the event and the filter with a tab between them.
Filter = Annotated[str, Field(pattern=r"^[^\x00-\x1f]+$", max_length=1024)]


class CaptureTable(Document):
    """The `[capture]` table of a study."""

    sets: tuple[SetName, ...] = ("sched", "numa")
    events: tuple[EventName, ...] = ()
    filters: dict[EventName, Filter] = Field(default_factory=dict)
    buffer_mib: int = Field(default=32, ge=1, le=16384)
    clock: Clock = "mono"
    lost_events: Literal["report", "error"] = "report"

    @model_validator(mode="after")
    def _filters_have_events(self) -> "CaptureTable":
        recorded = expand(self.sets, self.events)
        for event in self.filters:
            if event not in recorded:
                names = ", ".join(recorded)
                raise ValueError(f"filters: {event} is not recorded (recorded: {names})")
        return self


class _Study(Document):
    capture: CaptureTable


@dataclass(frozen=True)
class TraceEvent:
    """An event to record: `system:event`, and an ftrace filter on its fields ("" for none)."""

    name: str
    filter: str = ""


@dataclass(frozen=True)
class CaptureSpec:
    """What to record.

    `buffer_mib` is the ring buffer of all CPUs together, `clock` the trace clock. With
    `lost_is_error` a run that lost events is not a result.
    """

    events: tuple[TraceEvent, ...]
    buffer_mib: int = 32
    clock: str = "mono"
    lost_is_error: bool = False


def load_capture(table: Mapping[str, Any], path: Path) -> CaptureSpec:
    """Check the `[capture]` table of the study at `path`; an empty one gives the default.

    Raises UserError with the file, the key (`capture.sets`) and what would be valid.
    """
    checked = check_document({"capture": dict(table)}, _Study, path).capture
    names = expand(checked.sets, checked.events)
    return CaptureSpec(
        events=tuple(TraceEvent(name, checked.filters.get(name, "")) for name in names),
        buffer_mib=checked.buffer_mib,
        clock=checked.clock,
        lost_is_error=checked.lost_events == "error",
    )


def expand(sets: Iterable[str], events: Iterable[str]) -> tuple[str, ...]:
    """Return the events of some sets and some more, each once, in the order first named."""
    named = [event for name in sets for event in SETS[name]]
    return tuple(dict.fromkeys([*named, *events]))


def render_events(spec: CaptureSpec) -> tuple[str, ...]:
    """Render the lines of /job/events: `system:event`, or that, a tab and the filter."""
    return tuple(
        f"{event.name}\t{event.filter}" if event.filter else event.name for event in spec.events
    )
