"""A study and everything it names, loaded and checked whole before anything is built or booted."""

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from lab.analysis.measure import explain
from lab.capture.spec import CaptureSpec, load_capture
from lab.errors import UserError
from lab.image.recipe import Recipe, load_recipe
from lab.kernel.catalogue import KernelSpec, find_kernel
from lab.machine.machine import Job
from lab.study.model import Study, load_study
from lab.topology.load import load_topology
from lab.topology.model import Topology
from lab.workload.model import BoundWorkload, load_workload, resolve


@dataclass(frozen=True)
class PlannedRun:
    """One boot of one cell of the matrix with one seed."""

    id: str
    topology: str
    workload: int
    variant: str
    seed: int


@dataclass(frozen=True)
class Plan:
    """The runs of a study in the order in which they are to run, and all they need.

    `workloads` holds, for each topology, the study's workloads fitted to it, in the study's order.
    """

    name: str
    path: Path
    study: Study
    topologies: Mapping[str, Topology]
    kernels: Mapping[str, KernelSpec]
    workloads: Mapping[str, tuple[BoundWorkload, ...]]
    recipe: Recipe
    capture: CaptureSpec
    runs: tuple[PlannedRun, ...]
    digest: str

    def workload_of(self, run: PlannedRun) -> BoundWorkload:
        """Return the workload of a run, fitted to the run's topology."""
        return self.workloads[run.topology][run.workload]


def plan_study(path: Path) -> Plan:
    """Load a study and all that it refers to, and list its runs.

    The variants of a repetition are next to each other (before 1, after 1, before 2, ...), so that
    whatever drifts on the host meets both alike. Raises UserError for anything that is wrong.
    """
    study = load_study(path)
    topologies = {topology.name: topology for topology in map(load_topology, study.topologies)}
    names = {variant.kernel for variant in study.variants.values()}
    workloads = {
        name: tuple(
            resolve(load_workload(use.name), use.parameters, topology) for use in study.workloads
        )
        for name, topology in topologies.items()
    }
    _check_measures(study, tuple(topologies.values()), path)
    _check_tunables(study, path)
    return Plan(
        name=path.stem,
        path=path,
        study=study,
        topologies=topologies,
        kernels={name: find_kernel(name) for name in sorted(names)},
        workloads=workloads,
        recipe=load_recipe(study.image),
        capture=load_capture(study.capture, path),
        runs=_runs(study, workloads),
        digest=_digest(study),
    )


def _check_measures(study: Study, topologies: Sequence[Topology], path: Path) -> None:
    """Refuse a measure that is not defined, or of a node or CPU that a topology lacks."""
    named = [(f"claims[{i}].measure", claim.measure) for i, claim in enumerate(study.claims)]
    named += [(f"key_measures[{i}]", name) for i, name in enumerate(study.key_measures)]
    for key, name in named:
        try:
            explain(name)
        except UserError as error:
            raise UserError(str(error), file=path, key=key) from None
        for topology in topologies:
            there = {"node": len(topology.nodes), "cpu": topology.cpu_count}
            for what, number in re.findall(r"_(node|cpu)(\d+)", name):
                if int(number) >= there[what]:
                    reason = f"{topology.name} has no {what} {number}: {name}"
                    raise UserError(reason, file=path, key=key)


def _check_tunables(study: Study, path: Path) -> None:
    for name, variant in study.variants.items():
        try:
            Job(("true",), tunables={key: str(value) for key, value in variant.tunables.items()})
        except UserError as error:
            raise UserError(str(error), file=path, key=f"variants.{name}") from None


def _runs(
    study: Study, workloads: Mapping[str, tuple[BoundWorkload, ...]]
) -> tuple[PlannedRun, ...]:
    return tuple(
        PlannedRun(f"{topology}_{workload.name}_{variant}_{seed}", topology, index, variant, seed)
        for seed in study.seeds
        for topology, bound in workloads.items()
        for index, workload in enumerate(bound)
        for variant in study.variants
    )


def _digest(study: Study) -> str:
    """Tell one study from a changed one, so that a resumed run never mixes the two."""
    text = json.dumps(study.model_dump(mode="json"), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()
