"""Generate cases from a seed: new machines, and variants of loads that came close."""

import random
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from numalab.hunt.case import Case
from numalab.hunt.finding import BootResult
from numalab.hunt.generate.draw import everywhere
from numalab.hunt.generate.families import FIRST_CASES, draw_loads, first_families
from numalab.hunt.generate.machines import draw_machine
from numalab.hunt.generate.memory import freed
from numalab.hunt.generate.mutate import varied
from numalab.hunt.loads.load import Load, Part

# On each machine: a boot takes as much CPU time as twenty loads.
LOADS = 24
# In timed mode a load takes as long as a boot.
LOADS_TIMED = 4
_CLOSE = 0.7  # without a reference kernel, a case at least so close is varied
_SMT = 4  # each fourth machine has cores of two CPUs, which are rare among the others
_VARIED = 3  # of a load that came close
_LEAST_CPUS = 4  # of the first machines: smaller ones fit few families of loads


@dataclass(frozen=True)
class Near:
    """A load of a case that came close to a violation."""

    closeness: float
    case: Case
    load: int


def draw_case(
    seed: int, number: int, *, timed: bool = False, near: Sequence[Near] = (), most: int = 0
) -> Case:
    """Return case `number` of a seed: a new machine, or every third time one that came close.

    It has at most `most` loads; 0: as many as are worth a boot in that mode. Loads that
    change the machine come last, because they may affect later loads. A `timed` case, where memory
    costs time, has none, because CPU hotplug is untested with that emulator; its last load measures
    the benefit of placement.
    """
    rng = random.Random(f"{seed}-{number}")
    most = most or (LOADS_TIMED if timed else LOADS)
    if near and number % 3 == 2:
        close = rng.choices(near, [load.closeness for load in near])[0]
        machine = close.case.machine
        old = [load for load in close.case.loads if load is not close.case.loads[close.load]]
        loads = [varied(rng, close.case.loads[close.load], machine, old) for _ in range(_VARIED)]
        loads = loads[: most - timed]
    else:
        machine = draw_machine(rng, smt=number % _SMT == _SMT - 1)
        while number < FIRST_CASES and machine.cpu_count < _LEAST_CPUS:
            machine = draw_machine(rng, smt=number % _SMT == _SMT - 1)
        loads = []
    if timed:
        loads += draw_loads(rng, machine, most - 1 - len(loads))
        loads = [*(load for load in loads if not load.changes_machine), freed(rng, machine)]
    else:
        loads += draw_loads(rng, machine, most - len(loads), first_families(seed, number))
    return Case(machine, tuple(dict.fromkeys(loads))).with_machine_changes_last()


def case_for_scheduler(case: Case) -> Case:
    """Return a case for a scheduler (sched_ext), without what its tasks need not survive.

    Many schedulers start again when a CPU comes or goes. Real-time tasks starve tasks of sched_ext
    (the fair server of Linux 6.12, kernel/sched/deadline.c, is for fair tasks only): with FIFO
    tasks scx_simple is ejected, as it is.
    """
    kept = tuple(load for load in case.loads if not (load.changes_machine or _is_real_time(load)))
    hogs = Part("hog", 2, everywhere(case.machine))
    return case.only(*kept) if kept else case.only(Load(1000, (hogs,)))


def _is_real_time(load: Load) -> bool:
    policies = {change.policy for change in load.changes} - {None, "fair", "batch", "idle"}
    return bool(policies) or any(part.is_real_time for part in load.parts)


def near_loads(case: Case, result: BootResult, properties: Collection[str]) -> list[Near]:
    """Return the loads that came close to a limit, for a hunt without a reference kernel.

    Weak findings never count in such a hunt.
    """
    return [
        Near(min(1.0, finding.closeness), case, finding.load)
        for finding in result.findings
        if finding.load is not None
        and not finding.weak
        and finding.prop in properties
        and finding.closeness >= _CLOSE
    ]
