"""Executes stored runs again from the inputs in their manifests, and compares the results."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from numalab.campaign.build import build_study
from numalab.campaign.execute import OnEvent, Schedule, execute
from numalab.campaign.run_task import run_task
from numalab.campaign.task import Execute
from numalab.errors import UserError
from numalab.files import make_dir
from numalab.measure import differing
from numalab.places import cache_dir
from numalab.progress import Progress
from numalab.qemu.hypervisor import EMBED
from numalab.results.layout import Results
from numalab.results.manifest import EXECUTION, NONE, Manifest, brief
from numalab.results.reader import (
    StoredRun,
    load_all_events,
    load_findings,
    load_runs,
    load_study,
)
from numalab.scratch import scratch_folder
from numalab.study.plan import select
from numalab.study.stored import plan_stored

# Inputs that decide what a run does, by their name in messages.
_INPUTS: Mapping[str, Callable[[Manifest], Any]] = {
    "kernel": lambda run: run.kernel.digest,
    "kernel source": lambda run: run.kernel.source_version,
    "series": lambda run: [asdict(series) for series in run.kernel.series],
    "kernel configuration": lambda run: run.kernel.config_hash,
    "compiler": lambda run: run.kernel.compiler,
    "bzImage": lambda run: run.kernel.bzimage_sha256,
    "scheduler": lambda run: run.scheduler.model_dump() if run.scheduler else NONE,
    "image": lambda run: run.image.written.digest,
    "topology": lambda run: run.machine,
    "command": lambda run: run.workload.argv,
    "parameters": lambda run: run.workload.parameters,
    "tasks": lambda run: run.workload.tasks,
    "allowed CPUs": lambda run: run.workload.allowed_cpus,
    "files of the workload": lambda run: run.workload.files,
    "tunables": lambda run: run.tunables,
    "pages": lambda run: run.pages,
    "seed": lambda run: run.seed,
    "mode": lambda run: run.mode,
    "instruction time": lambda run: run.icount_shift,
    "quantum": lambda run: run.quantum_ns,
    "emulator": lambda run: run.emulator.sha256 if run.emulator else None,
    "kernel command line": lambda run: run.cmdline,
    "QEMU": lambda run: run.versions.qemu,
}
# The same, which older manifests lack: then nothing differs.
_LATER = {key: EXECUTION[key] for key in ("memory", "metrics")}


@dataclass(frozen=True)
class Verification:
    """The comparison of a stored run with its repetition.

    `differs` names the inputs that are not those of the stored run, `events` where the two event
    tables first differ (empty: nowhere), `measures` the measures with another value,
    `redefined` those that another numalab defined otherwise, which are not compared, `not_measured`
    those that this lab lacks, such as a plug-in's, `not_stored` those that the stored run lacks,
    `error` why there is no repetition. `compared` is what was compared: a run may have no events
    stored. `other_findings`: the matrices and lists in the stored `analysis.json` are not the
    repetition's, of which a newer analysis may be the cause.
    """

    run: str
    mode: str
    differs: tuple[str, ...] = ()
    events: str = ""
    measures: tuple[str, ...] = ()
    redefined: tuple[str, ...] = ()
    not_measured: tuple[str, ...] = ()
    not_stored: tuple[str, ...] = ()
    other_findings: bool = False
    error: str = ""
    compared: str = "events and measures"

    @property
    def identical(self) -> bool:
        """Whether the repetition gave the same events and measures."""
        return not (self.events or self.measures or self.error)


def verify(
    results: Results,
    wanted: Sequence[str],
    *,
    own: Path | None = None,
    output: Path | None = None,
    jobs: int | None,
    connection: str = EMBED,
    on_progress: Progress | None,
    on_schedule: Callable[[Schedule], OnEvent],
    run: Execute = run_task,
) -> tuple[Verification, ...]:
    """Execute runs again (all without `wanted`) and compare measures and events, row by row.

    The repetitions are kept as whole results in `output`; runs that it already has are not executed
    again. Nothing in `results` is changed, built or followed as a path: kernels, machines and
    images are those of the user's lab, or of `own`, the user's file of the study. Raises UserError
    for what are no results, for a run that they lack and for a name that the lab lacks, and what
    building raises.
    """
    if output is not None and output.exists() and output.samefile(results.path):
        raise UserError("holds the stored runs; name another folder", file=output, key="--output")
    stored, runs = load_runs(results)
    chosen = _chosen(results, runs, wanted)
    names = {run.id for run in chosen}
    runs_again = (run for run in stored.runs if run.id in names)
    plan = select(plan_stored(stored, results, own), runs_again)
    with scratch_folder(cache_dir("verify"), "verify-") as scratch:
        repeated = Results(output or scratch / "results")  # which has a lock of its own
        make_dir(repeated.path)
        mode = chosen[0].manifest.mode
        study = build_study(
            plan, repeated, mode, connection=connection, on_progress=on_progress,
            allow_mismatch=any(run.manifest.topology_differences for run in chosen),
        )  # fmt: skip
        failures = execute([study], jobs, on_schedule, run=run)
        errors = {failure.ended.run: failure.ended.error for failure in failures}
        repetitions = load_study(repeated)[1] if repeated.exist else ()
        second = {repetition.id: repetition for repetition in repetitions}
        return tuple(compare_runs(stored_run, second, errors) for stored_run in chosen)


def _chosen(results: Results, runs: Sequence[StoredRun], wanted: Sequence[str]) -> list[StoredRun]:
    by_name = {run.id: run for run in runs}
    for name in wanted:
        if name not in by_name:
            raise UserError(f"no run {name!r}", file=results.path, key="--run", choices=by_name)
    return [run for name, run in by_name.items() if not wanted or name in wanted]


def compare_runs(
    run: StoredRun, second: Mapping[str, StoredRun], errors: Mapping[str, str]
) -> Verification:
    """Compare a stored run with its repetition among the runs `second`.

    Measures that `numalab measure` added are left out. `errors` are the reasons of failed runs.
    """
    name, mode = run.id, run.manifest.mode
    if name not in second:
        return Verification(name, mode, error=errors.get(name, "it was not done again"))
    other = second[name]
    if run.manifest.started and run.manifest == other.manifest:
        return Verification(name, mode, error="the output has a copy of it, and no repetition")
    with_events = not run.compact and run.directory.events.exists()
    stored = [name for name in run.measures if name not in run.added and name in other.measures]
    redefined = [
        name for name in stored if differing((run.measures[name].info, other.measures[name].info))
    ]
    both = [name for name in stored if name not in redefined]
    return Verification(
        run=name,
        mode=mode,
        differs=tuple(_differences(run.manifest, other.manifest)),
        events=_events(run, other) if with_events else "",
        compared="events and measures" if with_events else "measures",
        error="" if with_events or both else "there was nothing to compare",
        measures=tuple(name for name in both if run.value(name) != other.value(name)),
        redefined=tuple(redefined),
        not_measured=tuple(sorted(run.measures.keys() - run.added - other.measures.keys())),
        not_stored=tuple(sorted(other.measures.keys() - run.measures.keys())),
        other_findings=_other_findings(run, other),
    )


def _other_findings(run: StoredRun, other: StoredRun) -> bool:
    sides = [side.directory for side in (run, other)]
    return all(side.analysis.exists() for side in sides) and (
        load_findings(sides[0]) != load_findings(sides[1])
    )


def _differences(old: Manifest, new: Manifest) -> Iterator[str]:
    inputs = [(name, get(old), get(new)) for name, get in _INPUTS.items()]
    later = [(name, old.execution(key), new.execution(key)) for key, name in _LATER.items()]
    inputs += [values for values in later if None not in values]
    for name, first, second in inputs:
        if first != second:
            yield f"{name}: {', now '.join(brief((first, second)))}"


def _events(run: StoredRun, other: StoredRun) -> str:
    """Return where two event tables first differ; empty where every field of every row is equal."""
    first, second = (load_all_events(side.directory) for side in (run, other))
    if first.equals(second, null_equal=True):
        return ""
    if first.columns != second.columns:
        return f"other columns: {', '.join(sorted(set(first.columns) ^ set(second.columns)))}"
    counts = f"{first.height} events, now {second.height}"
    for row, (old, new) in enumerate(zip(first.iter_rows(), second.iter_rows(), strict=False)):
        if old != new:
            pairs = zip(first.columns, old, new, strict=True)
            what = next(f"{name} {a!r}, now {b!r}" for name, a, b in pairs if a != b)
            return f"{counts}; the first that differs is number {row + 1}: {what}"
    return counts
