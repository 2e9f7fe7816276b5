"""Runs the tasks of some studies in a room, several at once, until each has ended."""

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

from lab.errors import UserError
from lab.store import FORMAT, Results, locked, project_dir, read_json, write_json
from lab.study import manifest
from lab.study.model import study_table
from lab.study.plan import Plan
from lab.study.stored import damage_explained
from lab.study.task import Ended, Task
from lab.study.workers import News, Phase, Room

LOCK_PATIENCE = 10.0  # seconds until the workers of a numalab that was killed have ended
_LISTEN = 0.5  # seconds
_LOOK_AHEAD = 64  # tasks


@dataclass(frozen=True)
class Happening:
    """Something to show: what a run does or how it ended, and how many have ended by now."""

    kind: Literal["started", "phase", "done", "failed", "again"]
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
            with damage_explained(results.path):
                claim_results(plan, results)
        yield locks


def claim_results(plan: Plan, results: Results) -> None:
    """Write plan.json. Raises UserError where there is that of another study.

    Runs that were added to it and have finished stay in it, and so does what was said of them.
    """
    runs, remarks = [vars(run) for run in plan.runs], list(plan.remarks)
    if results.plan.exists():
        old = read_json(results.plan)
        if old.get("digest") != plan.digest:
            reason = "these results are of another study or an older version"
            raise UserError(reason, file=results.path)
        names, finished = {run.id for run in plan.runs}, results.finished()
        added = [run for run in old["runs"] if run["id"] not in names and run["id"] in finished]
        runs += added
        if added:
            remarks += [remark for remark in old["remarks"] if remark not in remarks]
    write_json(
        results.plan,
        {
            "format": FORMAT,
            "study": plan.name,
            "digest": plan.digest,
            "path": _shown_path(plan.path),
            "preset": plan.preset,
            "file": study_table(plan.study),
            "remarks": remarks,
            "runs": runs,
        },
    )


def lacking(tasks: Sequence[Task], results: Results) -> list[Task]:
    """Return the tasks of which `results` lack the run.

    Raises UserError where a run is there that was made from other inputs: the two could not stand
    beside each other.
    """
    finished = results.finished()
    with damage_explained(results.path):
        for task in tasks:
            if task.run.id not in finished:
                continue
            found = read_json(finished[task.run.id].manifest)
            for key in manifest.IDENTITY:
                if found.get(key) != task.record[key]:
                    raise UserError(
                        f"{task.run.id} was made with another {key};"
                        " start anew instead of resuming",
                        file=results.path,
                    )
    return [task for task in tasks if task.run.id not in finished]


def carry_out(
    tasks: Iterable[Task],
    room: Room,
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
    while some may be under way). The caller closes the room, which ends those.
    """
    campaign = _Campaign(tasks, room, tell)
    while campaign.start_what_fits() or campaign.running or campaign.waiting:
        for news in room.news(_LISTEN):
            campaign.note(news)
        if time.monotonic() > deadline:
            campaign.waiting.clear()
        if fail_fast and campaign.failures:
            break
    return tuple(campaign.failures)


class _Campaign:
    """Which tasks wait, which run, which were tried before."""

    def __init__(self, tasks: Iterable[Task], room: Room, tell: Tell) -> None:
        self.waiting = deque(tasks)
        self.running: dict[str, Task] = {}
        self.failures: list[Failure] = []
        self._tried: set[str] = set()
        self._ended = 0
        self._room, self._tell = room, tell

    def start_what_fits(self) -> bool:
        """Start waiting tasks in order while they fit; says whether any started.

        Where the next one does not, one close behind it may: it can belong on another host.
        """
        started = False
        while (place := self._next()) is not None:
            task = self.waiting[place]
            del self.waiting[place]
            self.running[task.key] = task
            self._room.start(task)
            self._tell(Happening("started", task, "starting", self._ended))
            started = True
        return started

    def _next(self) -> int | None:
        ahead = enumerate(islice(self.waiting, _LOOK_AHEAD))
        return next((place for place, task in ahead if self._room.fits(task)), None)

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
            self._tell(Happening("again", task, f"tried again: {ended.error}", self._ended))
            return
        self._ended += 1
        if ended.ok:
            self._tell(Happening("done", task, "done", self._ended, ended.seconds))
            return
        self.failures.append(Failure(str(task.record["study"]), task.results, ended))
        self._tell(Happening("failed", task, f"failed: {ended.error}", self._ended, ended.seconds))
        if ended.by_host:
            self.waiting.clear()


def _shown_path(path: Path) -> str:
    """Return a study's path as it would be typed in the project, or only its name."""
    with suppress(ValueError):
        return str(path.resolve().relative_to(project_dir().resolve()))
    return path.name
