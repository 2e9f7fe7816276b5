"""Runtime that bandwidth servers give to deadline tasks, and to fair tasks beside hogs of fifo."""

from numalab.hunt.compare.quantity import Quantity, register_difference
from numalab.hunt.loads.load import Load
from numalab.hunt.recording import LoadRecording


@register_difference(Quantity("deadline-runtime", "% of the runtime due", 10.0, apart=1.15))
def deadline_runtime(run: LoadRecording) -> float | None:
    """The runtime of deadline hogs; more than is due to them only with SCHED_FLAG_RECLAIM.

    Those that yield have less (Documentation/scheduler/sched-deadline.rst).
    """
    ran, due = 0, 0.0
    for place, part in enumerate(run.load.parts):
        if part.kind == "hog" and part.policy == "deadline":
            ran += int(run.time_on(place, run.window)["ns"].sum())
            due += part.count * run.window.length_ns * part.runtime_us / part.period_us
    return 100.0 * ran / due if due else None


@register_difference(Quantity("fair-time-beside-real-time", "ms a second", 20.0, apart=1.5))
def fair_time(run: LoadRecording) -> float | None:
    """The CPU time of fair tasks that are bound to CPUs of real-time hogs, on each of these.

    The fair server of deadline.c gives it (6.12), or the real-time limit (`sched_rt_runtime_us`).
    """
    load, taken = run.load, _filled(run.load)
    bound = [
        place
        for place, part in enumerate(load.parts)
        if not part.is_real_time and part.every_cpu <= taken
    ]
    if not bound or any(change.policy for change in load.changes):
        return None
    ran = sum(int(run.time_on(place, run.window)["ns"].sum()) for place in bound)
    return 1000.0 * ran / run.window.length_ns / len(taken)


def _filled(load: Load) -> frozenset[int]:
    """Return the CPUs that fifo and rr hogs fill: one for each CPU, which never yields."""
    filled = frozenset[int]()
    for part in load.parts:
        if part.kind == "hog" and part.policy in ("fifo", "rr") and not part.yields:
            filled |= frozenset(part.cpus if part.count >= len(part.cpus) else ())
    return filled
