"""What the measures of a run are computed from."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from numalab.capture.counters import CpuSchedstat
from numalab.capture.guest_time import JoinedTables
from numalab.capture.times import Times
from numalab.measure import Number
from numalab.recording.recording import RecordedRun
from numalab.run_dir import RunDir
from numalab.workload.metric_parsers import Metric

NodeCounters = Mapping[int, Mapping[str, int]]


@dataclass(frozen=True)
class CommandData:
    """What was read of the workload's command: its times, what perf counted, what it printed, and
    counters before and after it (`numastat` is None where it was not asked for). `memory_mib` is
    about what it allocates, 0 where its file does not say."""

    workload: str
    metrics: tuple[Metric, ...] = ()
    times: Times | None = None
    perf: Mapping[str, Number] | None = None
    schedstat: tuple[Sequence[CpuSchedstat], Sequence[CpuSchedstat]] = ((), ())
    numastat: tuple[NodeCounters, NodeCounters] | None = None
    memory_mib: float = 0.0


@dataclass(frozen=True)
class RunData:
    """All that a run left to measure. What is None was not there to be read.

    `vmstat` is how much each counter of /proc/vmstat grew, `directory` where the run's files are
    (None for a recording from elsewhere), `memory` what the memory model of mode timed counted.
    """

    trace: RecordedRun
    vmstat: Mapping[str, int] | None = None
    command: CommandData | None = None
    directory: RunDir | None = None
    memory: JoinedTables | None = None
