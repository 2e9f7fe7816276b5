"""A study and everything it names, loaded and checked whole before anything is built or booted."""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from lab.analysis.measure import explain
from lab.capture.spec import CaptureSpec, load_capture
from lab.errors import UserError
from lab.image.recipe import Recipe, list_recipes, load_recipe
from lab.kernel.catalogue import KernelSpec, find_kernel
from lab.machine.machine import Job, PageKind
from lab.study.guest import check_guests
from lab.study.model import Study, load_study, study_table
from lab.topology.load import load_topology
from lab.topology.model import Topology
from lab.workload.model import BoundWorkload, load_workload, resolve

LONGEST_ID = 80  # a run's id is also its guest's name (lab.machine.machine)


@dataclass(frozen=True)
class Cell:
    """A machine with a use of a workload, by its label: where variants are compared."""

    topology: str
    label: str

    def __str__(self) -> str:
        """Name it as reports do."""
        return f"{self.topology}, {self.label}"

    @property
    def name(self) -> str:
        """Its part of the names of runs and folders."""
        return f"{self.topology}_{self.label}"


@dataclass(frozen=True)
class PlannedRun:
    """One boot of one variant in one cell with one seed; `workload` is the label of its use."""

    id: str
    topology: str
    workload: str
    variant: str
    seed: int

    @property
    def cell(self) -> Cell:
        """The cell that it belongs to."""
        return Cell(self.topology, self.workload)


@dataclass(frozen=True)
class Plan:
    """The runs of a study in the order in which they are to run, and all they need.

    `workloads` holds the workload of each cell, fitted to its topology. `preset` is the one that
    was asked for, or empty. `remarks` say how the runs were chosen, where the file does not.
    """

    name: str
    path: Path
    preset: str
    study: Study
    topologies: Mapping[str, Topology]
    kernels: Mapping[str, KernelSpec]
    workloads: Mapping[Cell, BoundWorkload]
    recipe: Recipe
    capture: CaptureSpec
    runs: tuple[PlannedRun, ...]
    digest: str
    remarks: tuple[str, ...] = ()

    @property
    def cells(self) -> tuple[Cell, ...]:
        """The cells that have runs, in the study's order."""
        return tuple(self.workloads)

    def workload_of(self, run: PlannedRun) -> BoundWorkload:
        """Return the workload of a run, fitted to the run's topology."""
        return self.workloads[run.cell]


def plan_study(path: Path, preset: str | None = None, *, pages: PageKind | None = None) -> Plan:
    """Load a study and all that it refers to, and list its runs.

    The variants of a repetition are next to each other (before 1, after 1, before 2, ...), so that
    whatever drifts on the host meets both alike. `pages` is what guests' memory is made of, where
    that is not as the study says. Raises UserError for anything that is wrong.
    """
    study = load_study(path, preset)
    if pages is not None:
        table = study.machine.model_copy(update={"pages": pages})
        study = study.model_copy(update={"machine": table})
    return make_plan(study, path, preset or "")


def make_plan(study: Study, path: Path, preset: str = "") -> Plan:
    """Load all that a study refers to, and list its runs; `path` is where it came from."""
    topologies = _topologies(study, path)
    runs = _runs(study, topologies, path)
    workloads = _workloads(study, topologies, runs, path)
    names = {study.variants[run.variant].kernel for run in runs}
    recipe = load_recipe(study.image)
    _check_packages(workloads, recipe, path)
    _check_claims(study, topologies, workloads, path)
    _check_key_measures(study, topologies, workloads, path)
    _check_tunables(study, path)
    check_guests(study, topologies, path)
    return Plan(
        name=path.stem,
        path=path,
        preset=preset,
        study=study,
        topologies=topologies,
        kernels={name: find_kernel(name) for name in sorted(names)},
        workloads=workloads,
        recipe=recipe,
        capture=load_capture(study.capture, path),
        runs=runs,
        digest=_digest(study),
    )


def _topologies(study: Study, path: Path) -> dict[str, Topology]:
    """Load the topologies, and check that what the file says of some is about one of them."""
    found: dict[str, Topology] = {}
    for place, text in enumerate(study.topologies):
        topology = load_topology(text)
        if topology.name in found:
            reason = f"two topologies are called {topology.name}"
            raise UserError(reason, file=path, key=f"topologies[{place}]")
        found[topology.name] = topology
    named = [
        (f"{key}[{place}].topologies", name)
        for key, selections in (("include", study.include or ()), ("exclude", study.exclude))
        for place, selection in enumerate(selections)
        for name in selection.topologies
    ]
    for key, name in named:
        # A preset may have left out a topology that these name.
        if name not in found and not _is_topology(name):
            raise UserError(
                f"no topology {name!r} in this study", file=path, key=key, choices=found
            )
    return found


def _is_topology(name: str) -> bool:
    try:
        load_topology(name)
    except UserError:
        return False
    return True


def _workloads(
    study: Study, topologies: Mapping[str, Topology], runs: tuple[PlannedRun, ...], path: Path
) -> dict[Cell, BoundWorkload]:
    """Fit each workload to the machines that it runs on; what has no runs is not even tried."""
    used = {run.cell for run in runs}
    return {
        cell: resolve(
            load_workload(use.name),
            use.parameters,
            topology,
            file=path,
            key=f"workloads[{place}].parameters",
        )
        for name, topology in topologies.items()
        for place, use in enumerate(study.workloads)
        if (cell := Cell(name, use.label)) in used
    }


def _check_packages(workloads: Mapping[Cell, BoundWorkload], recipe: Recipe, path: Path) -> None:
    """Refuse an image that lacks a package which a workload needs; say which images have it."""
    for workload in workloads.values():
        for package in workload.packages:
            if package not in recipe.packages:
                having = [name for name in list_recipes() if package in load_recipe(name).packages]
                reason = f"{recipe.name} has no {package}, which {workload.name} needs"
                raise UserError(reason, file=path, key="image", choices=having)


def _check_claims(
    study: Study,
    topologies: Mapping[str, Topology],
    workloads: Mapping[Cell, BoundWorkload],
    path: Path,
) -> None:
    """Refuse a claim about no cell, and one whose measure a cell that it is about cannot have."""
    for place, claim in enumerate(study.claims):
        if claim.topology is not None and not (
            claim.topology in topologies or _is_topology(claim.topology)
        ):
            key = f"claims[{place}].topology"
            raise UserError(
                f"no topology {claim.topology!r}", file=path, key=key, choices=topologies
            )
        for cell, workload in workloads.items():
            if claim.is_about(cell.topology, cell.label):
                key = f"claims[{place}].measure"
                _check_measure(claim.measure, topologies[cell.topology], workload, path, key)


def _check_key_measures(
    study: Study,
    topologies: Mapping[str, Topology],
    workloads: Mapping[Cell, BoundWorkload],
    path: Path,
) -> None:
    """Refuse a key measure that no cell can have; each report shows those that it has."""
    for place, name in enumerate(study.key_measures):
        errors = []
        for cell, workload in workloads.items():
            try:
                key = f"key_measures[{place}]"
                _check_measure(name, topologies[cell.topology], workload, path, key)
            except UserError as error:
                errors.append(error)
        if len(errors) == len(workloads):
            raise errors[0]


def require_measure(plan: Plan, name: str, key: str) -> None:
    """Raise UserError when no cell of the plan can have this measure; `key` is what named it."""
    study = plan.study.model_copy(update={"key_measures": (name,)})
    try:
        _check_key_measures(study, plan.topologies, plan.workloads, plan.path)
    except UserError as error:
        raise UserError(str(error).partition("key_measures[0]: ")[2], key=key) from None


def _check_measure(
    name: str, topology: Topology, workload: BoundWorkload, path: Path, key: str
) -> None:
    """Refuse a measure that is not defined, or of a node or CPU that the topology lacks."""
    if any(name == m.name or name.startswith(f"{m.name}_") for m in workload.metrics):
        return
    try:
        explain(name)
    except UserError as error:
        raise UserError(str(error), file=path, key=key) from None
    there = {"node": len(topology.nodes), "cpu": topology.cpu_count}
    for what, number in re.findall(r"_(node|cpu)(\d+)", name):
        if int(number) >= there[what]:
            raise UserError(f"{topology.name} has no {what} {number}: {name}", file=path, key=key)


def _check_tunables(study: Study, path: Path) -> None:
    for name, variant in study.variants.items():
        try:
            Job(("true",), tunables={key: str(value) for key, value in variant.tunables.items()})
        except UserError as error:
            raise UserError(str(error), file=path, key=f"variants.{name}") from None


def _runs(study: Study, topologies: Mapping[str, Topology], path: Path) -> tuple[PlannedRun, ...]:
    found = tuple(_matrix(study, topologies))
    if not found:
        raise UserError("include and exclude leave no run", file=path)
    for run in found:
        if len(run.id) > LONGEST_ID:
            reason = (
                f"the name of a run may have {LONGEST_ID} characters, this one has {len(run.id)}"
            )
            raise UserError(f"{reason}: {run.id}", file=path)
    return found


def _matrix(study: Study, topologies: Mapping[str, Topology]) -> Iterator[PlannedRun]:
    for seed in study.seeds:
        for topology in topologies:
            for label in study.labels:
                for variant in study.variants:
                    if study.has(topology, label, variant, seed):
                        name = f"{topology}_{label}_{variant}_{seed}"
                        yield PlannedRun(name, topology, label, variant, seed)


def _digest(study: Study) -> str:
    """Tell one study from a changed one, so that a resumed run never mixes the two."""
    text = json.dumps(study_table(study), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()
