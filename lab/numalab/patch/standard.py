"""The experiment of a patch as an ordinary study: standard loads on standard machines."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from numalab.errors import UserError
from numalab.kernel.kernel_specs import KernelSpec
from numalab.source.changes import FileChange
from numalab.study.model import Study, Variant, WorkloadUse
from numalab.study.plan import Plan, make_plan
from numalab.workload.workload import IN_GUEST, BoundWorkload
from numalab.workload.workload_files import shaker

BASELINE: Final = "baseline"
PATCHED: Final = "patched"
# Two large nodes, four nodes in a ring, and eight that are unevenly linked.
MACHINES = ("full-2", "ring-4", "opteron-8")
LOADS = ("hogs", "sleepers", "wake-ups", "forks", "memory-users", "mixed-server")
_SETTING = re.compile(r"\bsysctl_(?:numa_balancing|sched)_(\w{6,})")
SCREENED = 3  # runs of each kernel in each cell, before any is added


@dataclass(frozen=True)
class Experiment:
    """The inputs of an experiment: kernels, machines, loads, and the first seeds."""

    name: str
    baseline: KernelSpec
    patched: KernelSpec
    machines: Sequence[str] = MACHINES
    loads: Sequence[str] = LOADS
    screened: int = SCREENED

    @property
    def kernels(self) -> Mapping[str, KernelSpec]:
        """Both kernels by name."""
        return {spec.name: spec for spec in (self.baseline, self.patched)}


def plan_experiment(experiment: Experiment, path: Path) -> Plan:
    """Return the plan of an experiment; `path` is only named in messages. Raises UserError."""
    for key, names in (("--topologies", experiment.machines), ("--workloads", experiment.loads)):
        if twice := [name for name in names if list(names).count(name) > 1]:
            raise UserError(f"{twice[0]!r} is named twice", key=key)
    study = Study(
        question=f"What does {experiment.name} change?",
        topologies=tuple(experiment.machines),
        seeds=tuple(range(1, experiment.screened + 1)),
        variants={
            BASELINE: Variant(kernel=experiment.baseline.name),
            PATCHED: Variant(kernel=experiment.patched.name),
        },
        workloads=tuple(WorkloadUse(name=name, label=name) for name in experiment.loads),
        capture={"sets": ["sched", "numa"]},
    )
    plan = make_plan(study, path, kernels=experiment.kernels)
    shaken = {cell: _shaken(bound) for cell, bound in plan.workloads.items()}
    return replace(plan, workloads=shaken)


def _shaken(bound: BoundWorkload) -> BoundWorkload:
    """Return a workload that starts from a state of the machine that the seed decides."""
    program = shaker()
    argv = (f"{IN_GUEST}/{program.stem}", *bound.argv)
    return replace(bound, argv=argv, programs=(*bound.programs, program))


def own_settings(
    changes: Iterable[FileChange], workloads: Iterable[BoundWorkload]
) -> Iterator[str]:
    """Yield which settings of the scheduler that a patch touches loads set themselves, by file.

    A load that names a setting in a C file counts as one that sets it.
    """
    parts = [part for change in changes for part in change.changes]
    lines = [line.text for part in parts for line in (*part.removed, *part.added)]
    names = sorted({name for line in lines for name in _SETTING.findall(line)})
    programs = {
        path for bound in workloads for path in (*bound.folder.glob("*.c"), *bound.programs)
    }
    for path in sorted(programs) if names else ():
        text = path.read_text(encoding="utf-8", errors="replace")
        if own := [name for name in names if name in text]:
            settings = ", ".join(own)
            yield f"{path.name} sets {settings} for its loads: another default has no effect there"
