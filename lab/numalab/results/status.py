"""Reads the progress of a study from the folder of its results, also while it runs."""

import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import StrEnum

from numalab.errors import UserError
from numalab.files import open_regular
from numalab.guest.console import parse_beat, printable
from numalab.locks import is_locked
from numalab.results.layout import Results
from numalab.results.manifest import Manifest, RunStatus
from numalab.results.plan import PlannedRun, StoredPlan
from numalab.results.reader import load_manifest, load_plan, load_study, load_unfinished
from numalab.run_dir import RunDir

_NO_MANIFEST = "its manifest cannot be read"
_LAST_BYTES = 4096
_LONGEST_REASON = 400  # characters


class State(StrEnum):
    """The state of a planned run."""

    DONE = "done"
    RUNNING = "running"
    FAILED = "failed"
    INTERRUPTED = "interrupted"
    WAITING = "waiting"
    LEFT_OUT = "left out"  # by a budget of time


@dataclass(frozen=True)
class RunState:
    """The state of a run; `seconds` is its duration so far, or in all."""

    run: str
    state: State
    text: str = ""
    seconds: float | None = None
    cell: str = ""


@dataclass(frozen=True)
class Progress:
    """The progress of a study; `active` while a numalab process executes it.

    `out_of_time` is how many runs a budget leaves out, also while it is unknown which.
    """

    study: str
    active: bool
    runs: tuple[RunState, ...]
    out_of_time: int = 0

    def count(self, state: State) -> int:
        """Count the runs in a state."""
        return sum(run.state == state for run in self.runs)

    @property
    def seconds_left(self) -> float | None:
        """The estimated rest, from the durations of finished runs; None without any."""
        durations = [run.seconds for run in self.runs if run.state is State.DONE and run.seconds]
        if not durations or not self.active:
            return None
        mean = sum(durations) / len(durations)
        under_way = [run for run in self.runs if run.state is State.RUNNING]
        idle = self.count(State.WAITING) + self.count(State.LEFT_OUT)
        left = mean * (max(0, idle - self.out_of_time) + len(under_way))
        left -= sum(min(mean, run.seconds or 0.0) for run in under_way)
        return left / max(1, len(under_way))


def read_progress(results: Results) -> Progress:
    """Read the progress of results. Raises UserError for no or damaged results."""
    plan = load_plan(results)
    active = is_locked(results.path)
    if results.is_compact:
        ended = {**load_unfinished(results, plan)}
        ended |= {run.id: run.manifest for run in load_study(results)[1]}
    else:
        ended = {name: load_manifest(directory) for name, directory in results.finished().items()}
    states = [
        _ended(run, ended[run.id])
        if run.id in ended
        else unfinished_state(results, run, active=active)
        for run in plan.runs
    ]
    left_out = out_of_time(plan, (run.run for run in states if run.state is State.WAITING))
    runs = (replace(run, state=State.LEFT_OUT) if run.run in left_out else run for run in states)
    return Progress(plan.study, active, tuple(runs), plan.out_of_time)


def out_of_time(plan: StoredPlan, waiting: Iterable[str]) -> frozenset[str]:
    """Return which of the runs that never started a budget of time left out, by the plan.

    The plan only counts them: all, or none where another end left more.
    """
    runs = frozenset(waiting)
    return runs if len(runs) <= plan.out_of_time else frozenset()


def _ended(run: PlannedRun, about: Manifest) -> RunState:
    """Return the state of a run by its manifest, which may name a failure."""
    states = {RunStatus.OK: State.DONE, RunStatus.INTERRUPTED: State.INTERRUPTED}
    state = states.get(about.status or RunStatus.FAILED, State.FAILED)
    text = "" if state is State.DONE else _first_line(about.reason)
    return RunState(run.id, state, text, about.seconds, str(run.cell))


def unfinished_state(results: Results, planned: PlannedRun, *, active: bool) -> RunState:
    """Return the state of a planned run without result; `active` if its study is under way."""
    run, cell = planned.id, str(planned.cell)
    running, failed, final = results.running(run), results.failed(run), results.run(run)
    if running.path.is_dir():
        if not active:
            return RunState(run, State.INTERRUPTED, "numalab was killed", cell=cell)
        return RunState(run, State.RUNNING, _last_beat(running), _age(running), cell)
    if failed.path.is_dir():
        reason = _NO_MANIFEST
        with suppress(UserError):
            reason = load_manifest(failed).reason
        return RunState(run, State.FAILED, _first_line(reason), cell=cell)
    if final.path.is_dir() and not final.manifest.exists():
        # The folder got this name with its manifest, so a copy lost it.
        return RunState(run, State.FAILED, f"{_NO_MANIFEST} (a damaged copy?)", cell=cell)
    interrupted = results.interrupted(run).path.is_dir()
    return RunState(run, State.INTERRUPTED if interrupted else State.WAITING, cell=cell)


def _first_line(reason: str) -> str:
    return printable(reason[:_LONGEST_REASON].partition("\n")[0])


def _age(directory: RunDir) -> float | None:
    """Return the seconds since the domain of a run was written."""
    try:
        return max(0.0, time.time() - directory.domain_xml.stat().st_mtime)
    except OSError:
        return None


def _last_beat(directory: RunDir) -> str:
    """Return the phase of the last heartbeat."""
    try:
        with open_regular(directory.heartbeat, follow=False) as file:
            file.seek(max(0, file.seek(0, 2) - _LAST_BYTES))
            lines = file.read().decode("utf-8", "replace").splitlines()
    except OSError:
        return "starting"
    for line in reversed(lines):
        with suppress(ValueError):
            beat = parse_beat(line)
            return f"{beat.phase}, {beat.uptime:.1f} s of guest time"
    return "starting"
