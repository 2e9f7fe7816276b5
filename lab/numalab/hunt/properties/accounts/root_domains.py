"""What the kernel admits for deadline tasks in root domains."""

from collections.abc import Iterator

from numalab.hunt.property import Observation, register_property
from numalab.hunt.recording import LoadRecording

_WHOLE_CPU = 1 << 20  # BW_UNIT of kernel/sched/sched.h


@register_property("deadline-bandwidth", unit="% of a CPU", most=0.0, any_load=True)
def deadline_bandwidth(run: LoadRecording) -> Iterator[Observation]:
    """Deadline tasks that ended release their admitted bandwidth.

    The value is the change of `dl_bw->total_bw` (/sys/kernel/debug/sched/debug) over the load, two
    seconds after its tasks were killed; not where CPUs or root domains change.
    """
    left = run.printed.counters.get("end", {}).get("admitted_left")
    if left is not None and not run.load.changes_machine:
        value = 100.0 * left / run.topology.cpu_count / _WHOLE_CPU
        text = f"{value:.3g} % of a CPU is admitted for tasks that are gone"
        if value < 0:
            text = f"{-value:.3g} % of a CPU less is admitted than before the tasks came"
        yield Observation(abs(value), text)
