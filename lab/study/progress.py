"""How far results are, as their folder tells: nothing has to run for that, or anything may."""

import time
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal

from lab.errors import UserError
from lab.machine.console import parse_beat, printable
from lab.store import Results, RunDir, is_locked, read_json
from lab.study.stored import damage_explained, load_plan

State = Literal["done", "running", "failed", "interrupted", "waiting"]
_LAST_BYTES = 4096


@dataclass(frozen=True)
class RunState:
    """A run, what became of it or what it does, and for how many seconds so far or in all."""

    run: str
    state: State
    text: str = ""
    seconds: float | None = None


@dataclass(frozen=True)
class Progress:
    """How far a study is; `active`: some numalab is at it."""

    study: str
    active: bool
    runs: tuple[RunState, ...]

    def count(self, state: State) -> int:
        """Count the runs in a state."""
        return sum(each.state == state for each in self.runs)

    @property
    def seconds_left(self) -> float | None:
        """Estimate the rest from the runs that are done; None while there is none."""
        known = [each.seconds for each in self.runs if each.state == "done" and each.seconds]
        if not known or not self.active:
            return None
        mean = sum(known) / len(known)
        under_way = [each for each in self.runs if each.state == "running"]
        left = mean * (self.count("waiting") + len(under_way))
        left -= sum(min(mean, each.seconds or 0.0) for each in under_way)
        return left / max(1, len(under_way))


def read_progress(results: Results) -> Progress:
    """Read how far results are. Raises UserError for what are none, or damaged ones."""
    if not results.plan.exists():
        raise UserError("these are no results of a study: there is no plan", file=results.path)
    active = is_locked(results.path)
    with damage_explained(results.path):
        plan = load_plan(results)
        finished = results.finished()
        states = tuple(
            _done(finished[run["id"]])
            if run["id"] in finished
            else _unfinished(results, run["id"], active=active)
            for run in plan["runs"]
        )
        return Progress(plan["study"], active, states)


def _done(directory: RunDir) -> RunState:
    return RunState(directory.path.name, "done", "", read_json(directory.manifest)["seconds"])


def _unfinished(results: Results, run: str, *, active: bool) -> RunState:
    running, failed = results.running(run), results.failed(run)
    interrupted = running.path.with_suffix(".interrupted")
    if running.path.is_dir():
        if not active:
            return RunState(run, "interrupted", "numalab was killed")
        return RunState(run, "running", _last_beat(running), _age(running))
    if failed.path.is_dir():
        try:
            reason = str(read_json(failed.manifest).get("reason", ""))
        except UserError:
            reason = ""
        return RunState(run, "failed", printable(reason.partition("\n")[0]))
    return RunState(run, "interrupted" if interrupted.is_dir() else "waiting")


def _age(directory: RunDir) -> float | None:
    """Return for how long a run has been under way: since its domain was written."""
    try:
        return max(0.0, time.time() - directory.domain_xml.stat().st_mtime)
    except OSError:
        return None


def _last_beat(directory: RunDir) -> str:
    """Return what the guest last said of itself."""
    try:
        with directory.heartbeat.open("rb") as file:
            file.seek(max(0, file.seek(0, 2) - _LAST_BYTES))
            lines = file.read().decode("utf-8", "replace").splitlines()
    except OSError:
        return "starting"
    for line in reversed(lines):
        with suppress(ValueError):
            beat = parse_beat(line)
            return f"{beat.phase}, {beat.uptime:.1f} s of guest time"
    return "starting"
