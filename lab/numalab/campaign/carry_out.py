"""Runs the tasks of some studies on an executor, several at once, until each has ended."""

import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Literal

from numalab.campaign.executors.processes import Executor, News, Phase
from numalab.campaign.task import Ended, Task
from numalab.errors import UserError
from numalab.files import write_json
from numalab.locks import locked
from numalab.places import project_dir
from numalab.results.layout import Results
from numalab.results.plan import StoredPlan
from numalab.results.reader import load_manifest, load_plan
from numalab.study.model import study_table
from numalab.study.plan import Plan

LOCK_PATIENCE = 10.0  # seconds until the workers of a numalab that was killed have ended
_LISTEN = 0.5  # seconds
_LOOK_AHEAD = 64  # tasks


@dataclass(frozen=True)
class Happening:
    """Something to show: what a run does or how it ended, and how many have ended by now."""

    kind: Literal["started", "phase", "done", "failed", "retry"]
    task: Task
    text: str
    ended: int
    seconds: float = 0.0


Tell = Callable[[Happening], None]
OnWait = Callable[[Path], None]


@dataclass(frozen=True)
class Failure:
    """A run of a study that gave no result, and why."""

    study: str
    results: Results
    ended: Ended


@contextmanager
def claimed(
    plans: Sequence[tuple[Plan, Results]], on_wait: OnWait | None = None
) -> Iterator[list[int]]:
    """Hold the results of some plans and write what is planned to them.

    Gives the descriptors of their locks. `on_wait` is told of results that another numalab uses.
    Raises UserError when they belong to another study, HostError when that numalab goes on.
    """
    wait = on_wait or (lambda _: None)
    with ExitStack() as stack:
        locks = []
        for plan, results in plans:
            held = locked(
                results.path, partial(wait, results.path), wait=False, patience=LOCK_PATIENCE
            )
            locks.append(stack.enter_context(held))
            claim_results(plan, results)
        yield locks


def claim_results(plan: Plan, results: Results) -> None:
    """Write plan.json. Raises UserError where there is that of another study.

    Runs that were added to it and have finished stay in it, and so does what was said of them.
    """
    runs, remarks = plan.runs, plan.remarks
    if results.plan.exists():
        old = load_plan(results)
        if old.digest != plan.digest:
            reason = "these results are of another study or an older version"
            raise UserError(reason, file=results.path)
        names, finished = {run.id for run in plan.runs}, results.finished()
        added = tuple(run for run in old.runs if run.id not in names and run.id in finished)
        runs += added
        if added:
            remarks += tuple(remark for remark in old.remarks if remark not in remarks)
    stored = StoredPlan(
        study=plan.name,
        digest=plan.digest,
        path=_shown_path(plan.path),
        preset=plan.preset,
        file=study_table(plan.study),
        remarks=remarks,
        runs=runs,
    )
    write_json(results.plan, stored.model_dump(mode="json"))


def lacking(tasks: Sequence[Task], results: Results) -> list[Task]:
    """Return the tasks of which `results` lack the run.

    Raises UserError where a run is there that was made from other inputs: the two could not stand
    beside each other.
    """
    finished = results.finished()
    for task in tasks:
        if task.run.id in finished:
            stored = load_manifest(finished[task.run.id])
            if key := stored.differs_from(task.inputs):
                raise UserError(
                    f"{task.run.id} was made with another {key}; start anew instead of resuming",
                    file=results.path,
                )
    return [task for task in tasks if task.run.id not in finished]


def carry_out(
    tasks: Iterable[Task],
    executor: Executor,
    tell: Tell,
    *,
    fail_fast: bool = False,
    deadline: float = math.inf,
) -> tuple[Failure, ...]:
    """Execute tasks in their order, as many at once as fit; returns the failures.

    After `deadline`, a time of the monotonic clock, those that wait are not started any more.

    A run that the host made fail is tried once more; if it fails so again, the host is taken to be
    broken and no other run starts. One whose worker is gone is tried again elsewhere. A run that
    its guest made fail is not tried again, and the others go on (unless `fail_fast`, which returns
    while some may be under way). The caller closes the executor, which ends those.
    """
    campaign = _Campaign(tasks, executor, tell)
    while campaign.start_what_fits() or campaign.running or campaign.waiting:
        for news in executor.news(_LISTEN):
            campaign.note(news)
        if time.monotonic() > deadline:
            campaign.waiting.clear()
        if fail_fast and campaign.failures:
            break
    return tuple(campaign.failures)


class _Campaign:
    """Which tasks wait, which run, which were tried before."""

    def __init__(self, tasks: Iterable[Task], executor: Executor, tell: Tell) -> None:
        self.waiting = deque(tasks)
        self.running: dict[str, Task] = {}
        self.failures: list[Failure] = []
        self._tried: set[str] = set()
        self._ended = 0
        self._executor, self._tell = executor, tell

    def start_what_fits(self) -> bool:
        """Start waiting tasks in order while they fit; says whether any started.

        Where the next one does not, one close behind it may: it can belong on another host.
        """
        started = False
        while (place := self._next()) is not None:
            task = self.waiting[place]
            del self.waiting[place]
            self.running[task.key] = task
            self._executor.start(task)
            self._tell(Happening("started", task, "starting", self._ended))
            started = True
        return started

    def _next(self) -> int | None:
        ahead = enumerate(islice(self.waiting, _LOOK_AHEAD))
        return next((place for place, task in ahead if self._executor.fits(task)), None)

    def note(self, news: News) -> None:
        """Take in what a run said."""
        key = news.key
        task = self.running[key]
        if isinstance(news, Phase):
            self._tell(Happening("phase", task, news.text, self._ended))
            return
        del self.running[key]
        ended = news.ended
        if ended.lost or (ended.by_host and key not in self._tried):
            if not ended.lost:
                self._tried.add(key)
            self.waiting.appendleft(task)
            self._tell(Happening("retry", task, f"tried again: {ended.error}", self._ended))
            return
        self._ended += 1
        if ended.ok:
            self._tell(Happening("done", task, "done", self._ended, ended.seconds))
            return
        self.failures.append(Failure(task.inputs.study, task.results, ended))
        self._tell(Happening("failed", task, f"failed: {ended.error}", self._ended, ended.seconds))
        if ended.by_host:
            self.waiting.clear()


def _shown_path(path: Path) -> str:
    """Return a study's path as it would be typed in the project, or only its name."""
    with suppress(ValueError):
        return str(path.resolve().relative_to(project_dir().resolve()))
    return path.name
