"""Measures the reach map: one run of each cell, with every line of the scheduler counted."""

import math
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from pydantic import ValidationError

from numalab.artifact.kinds import Kind, register_kind
from numalab.campaign.build import BuiltStudy, Setting, build_plan, choose_mode
from numalab.campaign.execute import Failure, OnEvent, Schedule, TaskEvent, execute
from numalab.campaign.resume import LOCK_PATIENCE
from numalab.files import make_dir, read_regular, write_text
from numalab.image.recipe import load_recipe
from numalab.kernel.kernel_artifact import BuiltKernel
from numalab.kernel.kernel_build import ensure_kernel
from numalab.kernel.kernel_specs import KernelSpec
from numalab.locks import locked
from numalab.progress import Progress, no_progress
from numalab.reach.counting import read_reach
from numalab.reach.kernel_code_artifact import kernel_code
from numalab.reach.line_table import LineTable
from numalab.reach.model import CodeChange
from numalab.reach.prepare import ReachPlan
from numalab.reach.reach_map import MAPPED, CellReach, cell_reach, map_table
from numalab.reach.source_text import parse_config
from numalab.results.layout import Results
from numalab.results.reader import load_study
from numalab.study.model import Study, Variant, WorkloadUse
from numalab.study.plan import Plan, make_plan, select
from numalab.workload.workload import list_workloads, load_workload

FORMAT = 1  # raise it when a map changes its content
# Two large nodes, four in a ring, eight, SMT, and nodes without memory.
MACHINES = ("ring-4", "full-2", "opteron-8", "xeon-8269cy", "memoryless-4")
# Those that run on every machine; the others on the first one only.
EVERYWHERE = ("hogs", "memory-users", "mixed-server")
MOST_SECONDS = 12.0  # of guest time in one run
MOST_CPUS = 64  # of a machine
_MOST_BYTES = 64 << 20

REACH_MAPS = register_kind(Kind(name="reach-map", folder="reach-maps"))


def map_folder(kernel: BuiltKernel) -> Path:
    """Return the folder of a kernel's map in the cache."""
    return REACH_MAPS.entry(f"{kernel.digest}-{FORMAT}")


def load_map(kernel: BuiltKernel) -> tuple[CellReach, ...]:
    """Return the measured cells of a kernel's map, which may be a part of it."""
    cells = []
    for path in sorted(map_folder(kernel).glob("*.json")):
        try:
            cells.append(CellReach.model_validate_json(read_regular(path, _MOST_BYTES)))
        except (OSError, ValidationError):
            path.unlink(missing_ok=True)  # it is measured again
    return tuple(cells)


def lines_of(
    spec: KernelSpec, kernel: BuiltKernel, on_progress: Progress = no_progress
) -> LineTable:
    """Return the table of every mapped line of a kernel. Raises what `kernel_code` raises."""
    code = kernel_code(spec, kernel, MAPPED, (), on_progress)
    config = parse_config(kernel.config.read_text(encoding="utf-8") if kernel.config else "")
    return map_table(spec.name, code, int(config.get("HZ", "250")))


def plan_map(spec: KernelSpec, machines: Sequence[str] = MACHINES) -> Plan:
    """Return one run of each workload of the image `base` on the first machine, some on all."""
    recipe = load_recipe("base")
    names = [
        name
        for name in list_workloads()
        if name != "hunt" and set(load_workload(name).table.packages) <= set(recipe.packages)
    ]
    study = Study(
        question=f"Which lines of {spec.name} does the lab reach?",
        topologies=tuple(machines),
        seeds=(1,),
        variants={"map": Variant(kernel=spec.name)},
        workloads=tuple(WorkloadUse(name=name, label=name) for name in names),
    )
    plan = make_plan(study, Path("reach-map"), kernels={spec.name: spec})
    runs = [
        run
        for run in plan.runs
        if plan.workload_of(run).seconds <= MOST_SECONDS
        and plan.topologies[run.topology].cpu_count <= MOST_CPUS
        and (run.topology == machines[0] or run.workload in EVERYWHERE)
    ]
    return select(plan, runs)


def measure_map(
    spec: KernelSpec,
    on_schedule: Callable[[Schedule], OnEvent],
    *,
    machines: Sequence[str] = MACHINES,
    mode: str = "icount",
    jobs: int | None = None,
    deadline: float = math.inf,
    on_progress: Progress = no_progress,
) -> tuple[Failure, ...]:
    """Run the cells that a kernel's map lacks; return the failures.

    An interrupted map keeps its finished cells. Raises what `build` and `execute` raise, HostError
    also where another numalab measures this map.
    """
    kernel = ensure_kernel(spec, on_progress=on_progress)
    with _held(kernel) as (folder, results):
        table = lines_of(spec, kernel, on_progress)
        plan = plan_map(spec, machines)
        finished = {(cell.topology, cell.workload) for cell in load_map(kernel)}
        runs = [run for run in plan.runs if (run.topology, run.workload) not in finished]
        if not runs:
            return ()
        plan = select(plan, runs)
        builds = build_plan(plan, on_progress)
        choice = choose_mode(mode, builds, Setting.connection, on_progress)
        reach = ReachPlan("map", CodeChange.LINES, {kernel.digest: table})
        make_dir(results.path)
        setting = replace(Setting(choice), allow_mismatch=True, reach=reach)
        study = BuiltStudy(plan, builds, results, setting)

        def collecting(schedule: Schedule) -> OnEvent:
            on_event = on_schedule(schedule)

            def collect(event: TaskEvent) -> None:
                on_event(event)
                if event.kind == "done":
                    _collect(results, folder)

            return collect

        try:
            return execute([study], jobs, collecting, deadline=deadline)
        finally:
            _collect(results, folder)


@contextmanager
def _held(kernel: BuiltKernel) -> Iterator[tuple[Path, Results]]:
    """Hold the map of a kernel against other processes; gives its folder, and that of its runs.

    Earlier runs are removed, and so are those of the caller. Raises HostError where another
    numalab keeps the map, or a worker that it left its runs.
    """
    folder = map_folder(kernel)
    results = Results(folder / "runs")
    make_dir(folder)
    with locked(folder, wait=False, patience=LOCK_PATIENCE):
        if results.path.exists():
            with locked(results.path, wait=False, patience=LOCK_PATIENCE):
                shutil.rmtree(results.path, ignore_errors=True)
        try:
            yield folder, results
        finally:
            shutil.rmtree(results.path, ignore_errors=True)


def _collect(results: Results, folder: Path) -> None:
    """Move the reach of finished runs to the map."""
    for run in load_study(results)[1] if results.plan.exists() else ():
        reach = read_reach(run.directory)
        if reach is None:
            continue
        about = run.manifest
        cell = cell_reach(about.topology, about.workload.label, about.seconds or 0.0, reach)
        write_text(folder / f"{cell.topology}--{cell.workload}.json", cell.model_dump_json())
        run.directory.reach.unlink()
