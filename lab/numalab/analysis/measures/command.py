"""What the command took, what perf counted meanwhile, and what the command printed."""

from collections.abc import Iterator
from dataclasses import replace

from numalab.analysis.measures.family import LOWER, NONE, MeasureFamily, guest, register_measures
from numalab.capture.counters import perf_measure_name
from numalab.measure import Direction, Measure, MeasureInfo, MeasureKind, MeasureSource, SourceKind
from numalab.recording.recording import Recording

_COMMAND = "of the workload's command, by the guest's own clock"


def _time(name: str, source: str, definition: str) -> MeasureFamily:
    return MeasureFamily(name, "s", LOWER, definition, (guest(source),), MeasureKind.TIMING)


ELAPSED = _time("elapsed_time", "clock", f"Elapsed time {_COMMAND} (CLOCK_MONOTONIC).")
USER = _time(
    "user_time",
    "getrusage",
    f"CPU time in user mode {_COMMAND}, and of its descendants that were waited for.",
)
SYSTEM = _time(
    "system_time",
    "getrusage",
    f"CPU time in the kernel {_COMMAND}, and of its descendants that were waited for.",
)

_PERF = (MeasureSource(SourceKind.PERF),)
_PERF_TEXT = "How often perf counted {event} on all CPUs while the command ran."
# Counts of the CPU itself, which an emulated one does not have and which depend on real time.
HARDWARE = tuple(
    MeasureFamily(
        f"perf_{event}", "events", LOWER, _PERF_TEXT.format(event=event), _PERF, MeasureKind.TIMING
    )
    for event in (
        *("cache_misses", "cache_references", "cycles", "instructions", "branch_misses"),
        *("LLC_load_misses", "node_loads", "node_load_misses"),
    )
)
SOFTWARE = MeasureFamily("perf_{event}", "events", NONE, _PERF_TEXT, _PERF)


def _times(run: Recording) -> Iterator[Measure]:
    if run.command is None:
        return
    times = run.command.times
    yield ELAPSED.of(times.elapsed if times else None)
    yield USER.of(times.user if times else None)
    yield SYSTEM.of(times.system if times else None)


def _perf(run: Recording) -> Iterator[Measure]:
    """Yield a measure for each event of perf; None stays None, for what was not counted."""
    if run.command is None or run.command.perf is None:
        return
    for event, count in run.command.perf.items():
        name = perf_measure_name(event)
        families = (family.explain(name) for family in (*HARDWARE, SOFTWARE))
        info = next(info for info in families if info is not None)
        yield Measure(replace(info, sources=(MeasureSource(SourceKind.PERF, event),)), count)


def _printed(run: Recording) -> Iterator[Measure]:
    """Yield a measure for each metric of the command, its label appended to the name.

    The last of several metrics with one name counts: a program may print its state again.
    """
    if run.command is None:
        return
    workload = run.command.workload
    measures = {}
    for metric in run.command.metrics:
        name = f"{metric.name}_{metric.label}" if metric.label else metric.name
        info = MeasureInfo(
            name,
            metric.unit,
            Direction(metric.direction),
            MeasureKind(metric.kind),
            f"What {workload} printed as {name}.",
            (MeasureSource(SourceKind.WORKLOAD, workload),),
        )
        measures[name] = Measure(info, metric.value)
    yield from measures.values()


GROUPS = (
    register_measures("times", (ELAPSED, USER, SYSTEM), _times),
    register_measures("perf stat", (*HARDWARE, SOFTWARE), _perf),
    register_measures("printed by the workload", (), _printed),
)
