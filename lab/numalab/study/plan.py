"""The plan of a study: all inputs that it names, loaded and checked before a build."""

from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from numalab.capture.spec import CaptureSpec, check_clock, load_capture
from numalab.document import read_document
from numalab.emulator.emulator_specs import find_emulator
from numalab.errors import UserError, named_in
from numalab.image.recipe import Recipe, list_recipes, load_recipe
from numalab.kernel.kernel_specs import KernelSpec
from numalab.kernel.patched_kernel import find_kernel, named_kernel
from numalab.machine.model import Job, PageKind
from numalab.places import require_in_lab
from numalab.plugins import require_plugins
from numalab.results.plan import (
    Cell,
    ClaimsLeftOutRemark,
    LeftOutRemark,
    PlannedRun,
    Remark,
    by_cell,
    planned_run,
)
from numalab.scheduler.scheduler_spec import NAMES, SchedulerSpec
from numalab.study.claim_rules import (
    check_any_has,
    check_claims,
    check_metrics,
    check_primary,
    check_texts,
    claims_without_runs,
)
from numalab.study.guest import changed, check_buffer, check_guests
from numalab.study.model import Study, WorkloadUse, load_study, study_digest, study_table
from numalab.study.schedulers import find_schedulers
from numalab.topology.file_rules import build_topology
from numalab.topology.limits import RuleBroken
from numalab.topology.load import list_topologies, load_topology
from numalab.topology.memory.timing import in_slow_motion
from numalab.topology.topology import Topology
from numalab.workload.workload import IN_GUEST, BoundWorkload, load_workload, resolve
from numalab.workload.workload_files import sampler

SAMPLED_IN_GUEST = "/job/out/sampled"  # `RunDir.sampled`
LONGEST_ID = 80  # a run's id is also its guest's name (numalab.machine.model)


@dataclass(frozen=True)
class Plan:
    """The runs of a study in their order, and all inputs of these runs.

    `workloads` holds the workload of each cell, fitted to its topology; `schedulers` that of each
    variant which has one. `preset` is the requested preset, or empty. `remarks` describe a
    selection of runs that the file does not define.
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
    remarks: tuple[Remark, ...] = ()
    schedulers: Mapping[str, SchedulerSpec] = field(default_factory=dict)

    @property
    def cells(self) -> tuple[Cell, ...]:
        """The cells that have runs, in the study's order."""
        return tuple(self.workloads)

    def runs_of(self, cell: Cell) -> tuple[PlannedRun, ...]:
        """Return the runs of a cell."""
        return self._by_cell.get(cell, ())

    def repetition(self, cell: Cell, seed: int) -> tuple[PlannedRun, ...]:
        """Return a run of each variant of a cell with this seed."""
        variants = dict.fromkeys(run.variant for run in self.runs_of(cell))
        return tuple(planned_run(cell, variant, seed) for variant in variants)

    @cached_property
    def _by_cell(self) -> dict[Cell, tuple[PlannedRun, ...]]:
        return by_cell(self.runs)

    def workload_of(self, run: PlannedRun) -> BoundWorkload:
        """Return the workload of a run, fitted to the run's topology."""
        return self.workloads[run.cell]


def select(plan: Plan, runs: Iterable[PlannedRun], *remarks: Remark) -> Plan:
    """Return the plan with these runs, without inputs that none of them needs.

    `remarks` describe the selection. No other function changes the runs of a plan.
    """
    chosen = tuple(runs)
    cells = {run.cell for run in chosen}
    variants = {run.variant for run in chosen}
    kernels = {plan.study.variants[variant].kernel for variant in variants}
    return replace(
        plan,
        runs=chosen,
        workloads={cell: bound for cell, bound in plan.workloads.items() if cell in cells},
        kernels={name: spec for name, spec in plan.kernels.items() if name in kernels},
        schedulers={name: spec for name, spec in plan.schedulers.items() if name in variants},
        remarks=(*plan.remarks, *remarks),
    )


def plan_study(
    path: Path,
    preset: str | None = None,
    *,
    pages: PageKind | None = None,
    emulator: str | None = None,
) -> Plan:
    """Load a study and all its inputs, and list its runs.

    The variants of a repetition are neighbours (before 1, after 1, before 2, ...), so drift on the
    host affects both alike. `pages` and `emulator` replace those of the study. A case of
    `numalab hunt` may only name kernels, topologies and images of the user's lab. Raises UserError.
    """
    require_plugins()
    study = load_study(path, preset)
    if study.case is not None:
        require_lab_names(study, path)
    options = {"pages": pages, "emulator": emulator}
    if changes := {key: value for key, value in options.items() if value is not None}:
        table = study.machine.model_copy(update=changes)
        study = study.model_copy(update={"machine": table})
    plan = make_plan(study, path, preset or "")
    check_clock(plan.capture, path)
    check_metrics(plan.workloads.values())
    check_texts(study, plan.workloads, path)
    check_primary(study, by_cell(plan.runs), path)
    return replace(plan, remarks=(*plan.remarks, *_claims_left_out(plan, preset)))


def _claims_left_out(plan: Plan, preset: str | None) -> Iterator[Remark]:
    """Yield a remark on the claims that a preset leaves no runs for.

    Raises UserError for such a claim of the whole study, unless it is about the machine of a
    preset: the result of `expect` would never be known.
    """
    file = read_document(plan.path, Study)
    left_out = claims_without_runs(file, preset, plan.runs)
    for place in left_out if preset is None else ():
        claim = file.claims[place]
        if not file.presets or claim.topology in (None, *plan.topologies):
            names = " and ".join(claim.variants)
            reason = f"no cell has runs of {names}, so nothing judges this claim: {claim.text}"
            raise UserError(reason, file=plan.path, key=f"claims[{place}]")
    if left_out:
        texts = (file.claims[place].text[: LeftOutRemark.LONGEST] for place in left_out)
        yield ClaimsLeftOutRemark(claims=tuple(texts))


def make_plan(
    study: Study, path: Path, preset: str = "", kernels: Mapping[str, KernelSpec] | None = None
) -> Plan:
    """Load all inputs of a study from the file `path`, and list its runs.

    A workload that fits some of the machines is left out on the others, with a remark. `kernels`
    are kernels that the caller has found, by name.
    """
    topologies = _topologies(study, path)
    runs = _runs(study, topologies, path)
    capture = load_capture(study.capture, path)
    check_buffer(capture, topologies, path)
    fitting, remarks = _workloads(study, topologies, runs, path)
    runs = tuple(run for run in runs if run.cell in fitting)
    workloads = {cell: _with_sampler(bound, capture) for cell, bound in fitting.items()}
    with named_in(path, "image"):
        recipe = load_recipe(study.image)
    _check_packages(workloads, recipe, path)
    check_claims(study, topologies, workloads, path)
    for place, name in enumerate(study.key_measures):  # a report shows those of its cell
        check_any_has(name, topologies, workloads, path, f"key_measures[{place}]")
    _check_tunables(study, path)
    _check_emulator(study, path)
    check_guests(study, topologies, path)
    return Plan(
        name=path.stem,
        path=path,
        preset=preset,
        study=study,
        topologies=topologies,
        kernels=_kernels(study, {run.variant for run in runs}, kernels or {}, path),
        workloads=workloads,
        recipe=recipe,
        capture=capture,
        runs=runs,
        digest=study_digest(study_table(study)),
        remarks=remarks,
        schedulers=find_schedulers(study, {run.variant for run in runs}, path),
    )


def _kernels(
    study: Study, variants: Container[str], ready: Mapping[str, KernelSpec], path: Path
) -> dict[str, KernelSpec]:
    """Find the kernels of some variants, in the order of their names."""
    kernels: dict[str, KernelSpec] = {}
    for variant, table in study.variants.items():
        if variant in variants and (name := table.kernel) not in kernels:
            with named_in(path, f"variants.{variant}.kernel"):
                kernels[name] = ready.get(name) or find_kernel(name)
    return dict(sorted(kernels.items()))


def require_lab_names(study: Study, path: Path) -> None:
    """Raise UserError if a study names a kernel, topology or image that the lab lacks.

    For an untrusted study (results, a case): a path could name any file on this host, and a kernel
    source would be built with the user's privileges.
    """
    for name, variant in study.variants.items():
        named_kernel(variant.kernel, path, f"variants.{name}.kernel")
        if variant.scheduler is not None:
            require_in_lab(variant.scheduler, NAMES, path, f"variants.{name}.scheduler")
    machines = (*study.machines, *list_topologies())
    require_in_lab(study.image, list_recipes(), path, "image")
    for place, name in enumerate(study.topologies):
        require_in_lab(name, machines, path, f"topologies[{place}]")


def _topologies(study: Study, path: Path) -> dict[str, Topology]:
    """Load the topologies, and check the topologies in `include` and `exclude`."""
    loaded: dict[str, Topology] = {}
    for place, text in enumerate(study.topologies):
        with named_in(path, f"topologies[{place}]", choices=study.machines):
            topology = machine_of(study, text, path)
        if topology.name in loaded:
            reason = f"two topologies are called {topology.name}"
            raise UserError(reason, file=path, key=f"topologies[{place}]")
        loaded[topology.name] = topology
    named = [
        (f"{key}[{place}].topologies", name)
        for key, selections in (("include", study.include or ()), ("exclude", study.exclude))
        for place, selection in enumerate(selections)
        for name in selection.topologies
    ]
    for key, name in named:
        # A preset may have left out a topology that these name.
        if name not in (*loaded, *study.machines, *list_topologies()):
            raise UserError(
                f"no topology {name!r} in this study", file=path, key=key, choices=loaded
            )
    return loaded


def machine_of(study: Study, name: str, path: Path) -> Topology:
    """Return a topology of a study by name or file, in its slow motion."""
    topology = machine_of_table(study, name, path) or load_topology(name)
    try:
        return in_slow_motion(topology, study.machine.slow_motion)
    except RuleBroken as broken:
        reason = f"{name}: {broken.message}"
        raise UserError(reason, file=path, key="machine.slow_motion") from None


def machine_of_table(study: Study, name: str, path: Path) -> Topology | None:
    """Return a topology of the table `machines` by name, or None."""
    if name not in study.machines:
        return None
    try:
        return build_topology(name, study.machines[name])
    except RuleBroken as broken:
        raise UserError(broken.message, file=path, key=f"machines.{name}.{broken.key}") from None


def _workloads(
    study: Study, topologies: Mapping[str, Topology], runs: tuple[PlannedRun, ...], path: Path
) -> tuple[dict[Cell, BoundWorkload], tuple[Remark, ...]]:
    """Fit each workload to its topologies; cells without runs are skipped.

    Raises UserError for a workload that fits none of its machines; on some of them, a remark says
    why it does not fit.
    """
    used = {run.cell for run in runs}
    fitting: dict[Cell, BoundWorkload] = {}
    unfit: dict[Cell, UserError] = {}
    for name, topology in topologies.items():
        for place, use in enumerate(study.workloads):
            if (cell := Cell(name, use.label)) not in used:
                continue
            try:
                fitting[cell] = _fitted(use, topology, path, place)
            except UserError as error:
                unfit[cell] = error
    labels = {cell.label for cell in fitting}
    for cell, refusal in unfit.items():
        if cell.label not in labels:
            raise refusal
    remarks = (LeftOutRemark(cell=str(cell), why=_reason(why)) for cell, why in unfit.items())
    return fitting, tuple(remarks)


def _fitted(use: WorkloadUse, topology: Topology, path: Path, place: int) -> BoundWorkload:
    key = f"workloads[{place}].parameters"
    with named_in(path, f"workloads[{place}].name"):
        workload = load_workload(use.name)
    bound = resolve(workload, use.parameters, topology, file=path, key=key)
    return changed(bound, use.guest, topology, path, f"workloads.{use.label}.guest")


def _reason(error: UserError) -> str:
    return " ".join(error.message.split())[: LeftOutRemark.LONGEST]


def _with_sampler(bound: BoundWorkload, capture: CaptureSpec) -> BoundWorkload:
    """Prefix the command with the sampler if plug-ins add sources."""
    if not capture.added:
        return bound
    program = sampler()
    what = [word for source in capture.added for word in (source.name, source.path)]
    period = str(capture.sample_ms)
    argv = (f"{IN_GUEST}/{program.stem}", SAMPLED_IN_GUEST, period, *what, "--", *bound.argv)
    return replace(bound, argv=argv, programs=(*bound.programs, program))


def _check_packages(workloads: Mapping[Cell, BoundWorkload], recipe: Recipe, path: Path) -> None:
    """Raise UserError if the image lacks a package of a workload."""
    for workload in workloads.values():
        for package in workload.packages:
            if package not in recipe.packages:
                having = [name for name in list_recipes() if package in load_recipe(name).packages]
                reason = f"{recipe.name} lacks the package {package} of {workload.name}"
                raise UserError(reason, file=path, key="image", choices=having)


def require_measure(plan: Plan, name: str, key: str) -> None:
    """Raise UserError if no cell of the plan has this measure, named by `key`."""
    check_any_has(name, plan.topologies, plan.workloads, None, key)


def _check_emulator(study: Study, path: Path) -> None:
    if study.machine.emulator is None:
        return
    with named_in(path, "machine.emulator"):
        find_emulator(study.machine.emulator)


def _check_tunables(study: Study, path: Path) -> None:
    for use in study.workloads:
        _check_job(use.guest.tunables, use.guest.env, path, f"workloads.{use.label}.guest")
    for name, variant in study.variants.items():
        _check_job(variant.tunables, {}, path, f"variants.{name}")
        for use in study.workloads:
            for tunable in use.guest.tunables:
                if tunable in variant.tunables:
                    reason = f"variant {name} and workload {use.label} both set {tunable}"
                    raise UserError(reason, file=path, key=f"variants.{name}.tunables")


def _check_job(
    tunables: Mapping[str, str | int], env: Mapping[str, str], path: Path, key: str
) -> None:
    try:
        Job(("true",), tunables={key: str(value) for key, value in tunables.items()}, env=env)
    except UserError as error:
        raise UserError(str(error), file=path, key=key) from None


def _runs(study: Study, topologies: Mapping[str, Topology], path: Path) -> tuple[PlannedRun, ...]:
    runs = tuple(_matrix(study, topologies))
    if not runs:
        raise UserError("include and exclude leave no run", file=path)
    for run in runs:
        if len(run.id) > LONGEST_ID:
            reason = f"the name of a run has {len(run.id)} characters, more than {LONGEST_ID}"
            raise UserError(f"{reason}: {run.id}", file=path)
    return runs


def _matrix(study: Study, topologies: Mapping[str, Topology]) -> Iterator[PlannedRun]:
    for seed in study.seeds:
        for topology in topologies:
            for label in study.labels:
                for variant in study.variants:
                    if study.has(topology, label, variant, seed):
                        yield planned_run(Cell(topology, label), variant, seed)
