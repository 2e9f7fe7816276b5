"""The results of a study: folder, lock, stored plan, and missing runs."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from datetime import datetime
from functools import partial
from itertools import count
from pathlib import Path

from numalab.campaign.build import BuiltStudy
from numalab.campaign.task import Task, make_tasks
from numalab.errors import UserError
from numalab.files import make_dir, write_json
from numalab.locks import locked
from numalab.places import project_dir
from numalab.results.layout import Results, has_ended, newest_first
from numalab.results.plan import RepetitionsRemark, StoredPlan
from numalab.results.reader import load_manifest, load_plan
from numalab.study.model import differing_inputs, study_digest, study_table
from numalab.study.plan import Plan, select

LOCK_PATIENCE = 10.0  # seconds until the workers of a killed numalab have ended

OnWait = Callable[[Path], None]


def new_results(plan: Plan) -> Results:
    """Make a folder for new results of a plan; two that start in one second get two."""
    path = project_dir() / "reports" / plan.name / f"{datetime.now():%Y%m%d-%H%M%S}"
    make_dir(path.parent)
    for number in count(1):
        candidate = path if number == 1 else path.with_name(f"{path.name}-{number}")
        with suppress(FileExistsError):
            candidate.mkdir(mode=0o700)
            return Results(candidate)
    raise AssertionError("unreachable")


_NONE = "there are no results to go on with (damaged ones or another version's cannot be resumed)"


def newest_results(plan: Plan) -> Results:
    """Return the newest results of a plan, to resume them. Raises UserError where none exist."""
    parent = project_dir() / "reports" / plan.name
    reasons = []
    for results in newest_first(parent):
        with suppress(UserError):  # damaged, or of another version
            if not (what := _differs(load_plan(results), plan)):
                return results
            reasons.append(f"the results {results.path.name} {what}, and are kept")
    reason = next(iter(reasons), _NONE)
    raise UserError(f"{reason}; start anew without --resume", file=parent)


def _differs(old: StoredPlan, plan: Plan) -> str:
    """Say how the runs of a stored plan differ from a study, but for claims; empty if equal."""
    if old.study != plan.name:
        return f"are of the study {old.study}"
    new = study_table(plan.study)
    if study_digest(old.file) == study_digest(new):
        return ""
    return f"differ from the study in {', '.join(differing_inputs(old.file, new))}"


@contextmanager
def held_results(
    plans: Sequence[tuple[Plan, Results]], on_wait: OnWait | None = None
) -> Iterator[list[int]]:
    """Lock the results of some plans, which may take these plans.

    Gives the descriptors of the locks. `on_wait` is called with results that another numalab
    holds. Raises UserError when they belong to another study, HostError when the other numalab
    keeps them.
    """
    wait = on_wait or (lambda _: None)
    with ExitStack() as stack:
        locks = []
        for plan, results in plans:
            lock = locked(
                results.path, partial(wait, results.path), wait=False, patience=LOCK_PATIENCE
            )
            locks.append(stack.enter_context(lock))
            _stored_plan(plan, results)
        yield locks


def with_repetitions(study: BuiltStudy) -> BuiltStudy:
    """Return a study with the repetitions that a rule has added to its results, each with a run of
    every variant.

    Raises UserError where the results belong to another study.
    """
    plan, old = study.plan, _stored_plan(study.plan, study.results)
    stored = old.remarks if old else ()
    remarks = [remark for remark in stored if isinstance(remark, RepetitionsRemark)]
    if old is None or not remarks:
        return study
    planned = {run.id for run in plan.runs}
    further = ((r.cell, r.seed) for r in old.runs if r.id not in planned and r.cell in plan.cells)
    added = [run for where in dict.fromkeys(further) for run in plan.repetition(*where)]
    runs = dict.fromkeys((*plan.runs, *added))
    return replace(study, plan=select(plan, runs, *remarks))


def write_plan(plan: Plan, results: Results) -> None:
    """Write plan.json. Raises UserError where the results belong to another study.

    Runs that were added to the plan and have ended stay in it, with the remarks on them.
    """
    runs, remarks = plan.runs, plan.remarks
    if (old := _stored_plan(plan, results)) is not None:
        names = {run.id for run in plan.runs}
        added = tuple(r for r in old.runs if r.id not in names and has_ended(results, r.id))
        runs += added
        if added:
            remarks += tuple(remark for remark in old.remarks if remark not in remarks)
    stored = StoredPlan(
        study=plan.name,
        digest=plan.digest,
        path=path_in_project(plan.path) or plan.path.name,
        preset=plan.preset,
        file=study_table(plan.study),
        remarks=remarks,
        runs=runs,
    )
    write_json(results.plan, stored.model_dump(mode="json"))


def _stored_plan(plan: Plan, results: Results) -> StoredPlan | None:
    """Return the plan of results, None where there is none yet.

    Raises UserError where they belong to another study.
    """
    if results.is_compact:
        raise UserError("these results are compact, and take no new runs", file=results.path)
    if not results.plan.exists():
        return None
    if what := _differs(old := load_plan(results), plan):
        reason = f"these results {what}; name another folder with --output for new ones"
        raise UserError(reason, file=results.path)
    return old


def missing_tasks(study: BuiltStudy) -> list[Task]:
    """Return the tasks of a study whose runs its results lack.

    Raises UserError where a stored run was made from other inputs: the runs cannot be compared.
    """
    finished, missing = study.results.finished(), []
    for task in make_tasks(study):
        if task.run.id not in finished:
            missing.append(task)
        elif what := load_manifest(finished[task.run.id]).differs_from(task.inputs):
            raise UserError(
                f"{task.run.id} differs from today's inputs in {what};"
                " start anew instead of resuming",
                file=study.results.path,
            )
    return missing


def path_in_project(path: Path) -> str:
    """Return the path of a study relative to the project; empty if it lies elsewhere."""
    with suppress(ValueError):
        return str(path.resolve().relative_to(project_dir().resolve()))
    return ""
