"""Progress of runs: a live table on a terminal, otherwise a line every few seconds."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from numalab.cli.output import PLAIN_INTERVAL, say
from numalab.units import format_seconds, runs_of

if TYPE_CHECKING:
    from rich.console import RenderableType

    from numalab.campaign.execute import Schedule, TaskEvent

    Watch = Callable[[Schedule], Callable[[TaskEvent], None]]

_BAR = 20  # characters


@dataclass
class _Run:
    """An active run: its cost, its start, and its phase."""

    name: str
    cost: float
    began: float
    text: str = "starting"

    def share(self, now: float) -> float:
        """Return the finished share, estimated from its cost; at most 0.99."""
        return min(0.99, (now - self.began) / max(self.cost, 0.1))


class Overview:
    """The active tasks and the remaining time, from their events."""

    def __init__(self) -> None:
        self.total = 0
        self.ended = 0
        self.failed = 0
        self.jobs = 1
        self.running: dict[str, _Run] = {}
        self._costs: dict[str, float] = {}
        self._expected = self._took = 0.0  # of the tasks that are done

    def plan(self, schedule: "Schedule") -> None:
        """Start a schedule."""
        self.total, self.jobs = len(schedule.tasks), schedule.jobs
        pairs = zip(schedule.tasks, schedule.costs, strict=True)
        self._costs = {task.key: cost.seconds for task, cost in pairs}

    def note(self, event: "TaskEvent", now: float) -> None:
        """Apply an event at a time (seconds)."""
        key = event.task.key
        self.ended = event.ended
        match event.kind:
            case "started":
                name = event.task.run.id
                self.running[key] = _Run(name, self._costs.get(key, 0.0), now)
            case "phase":
                if key in self.running:  # not one that still waits
                    self.running[key].text = event.text
            case "retry":
                self.running.pop(key, None)
            case "done" | "failed":
                run = self.running.pop(key, None)
                cost = self._costs.pop(key, 0.0)
                if event.kind == "done" and run is not None:
                    self._expected += cost
                    self._took += now - run.began
                self.failed += event.kind == "failed"

    def seconds_left(self, now: float) -> float:
        """Estimate the remaining time: what the tasks cost, at the pace of those that are done."""
        pace = self._took / self._expected if self._expected else 1.0
        under_way = [(pace * run.cost, now - run.began) for run in self.running.values()]
        left = pace * sum(self._costs.values()) - sum(map(min, under_way))
        longest = max((cost - spent for cost, spent in under_way), default=0.0)
        return max(left / self.jobs, longest, 0.0)


@contextmanager
def live_runs() -> Iterator["Watch"]:
    """Yield a callback for schedules that shows the runs."""
    overview = Overview()
    with _screen(overview) if sys.stderr.isatty() else _lines(overview) as show:

        def watch(schedule: "Schedule") -> "Callable[[TaskEvent], None]":
            overview.plan(schedule)
            if schedule.tasks:
                left = format_seconds(overview.seconds_left(time.monotonic()))
                runs = runs_of(len(schedule.tasks))
                say(f"{runs} to do, {schedule.jobs} at once, about {left}")

            def tell(event: "TaskEvent") -> None:
                overview.note(event, time.monotonic())
                show(event)

            return tell

        yield watch


@contextmanager
def _lines(overview: Overview) -> Iterator["Callable[[TaskEvent], None]"]:
    said = 0.0

    def show(event: "TaskEvent") -> None:
        nonlocal said
        now = time.monotonic()
        if event.kind in ("done", "failed", "retry"):
            said = now
            say(ending_line(event, overview, now))
        elif event.kind == "phase" and now - said >= PLAIN_INTERVAL:
            said = now
            say(f"runs: {overview.ended}/{overview.total} {event.task.run.id}: {event.text}")

    yield show


def ending_line(event: "TaskEvent", overview: Overview, now: float) -> str:
    """Return the text for a run that has ended, with the time left in its first line."""
    text, *more = event.text.split("\n")  # what the guest printed, and where its files are
    line = f"[{overview.ended}/{overview.total}] {event.task.run.id}: {text}"
    if event.kind == "done":
        line += f" ({event.seconds:.1f} s)"
    if overview.ended < overview.total and event.kind != "retry":
        line += f", {format_seconds(overview.seconds_left(now))} left"
    return "\n".join([line, *more])


@contextmanager
def _screen(overview: Overview) -> Iterator["Callable[[TaskEvent], None]"]:
    from rich.console import Console  # noqa: PLC0415 - costs 50 ms that --help need not pay
    from rich.live import Live  # noqa: PLC0415

    console = Console(stderr=True)
    view = Live(
        console=console,
        transient=True,
        refresh_per_second=4,
        get_renderable=lambda: _table(overview),
    )
    with view:

        def show(event: "TaskEvent") -> None:
            if event.kind in ("done", "failed", "retry"):
                console.print(ending_line(event, overview, time.monotonic()), markup=False)

        yield show


def _table(overview: Overview) -> "RenderableType":
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    now = time.monotonic()
    table = Table.grid(padding=(0, 2))
    for run in overview.running.values():
        filled = round(_BAR * run.share(now))
        bar = Text("━" * filled, "blue") + Text("━" * (_BAR - filled), "dim")
        table.add_row(
            Text(run.name), bar, Text(format_seconds(now - run.began)), Text(run.text, "dim")
        )
    failed = f", {overview.failed} failed" if overview.failed else ""
    left = format_seconds(overview.seconds_left(now))
    total = f"{overview.ended} of {runs_of(overview.total)} ended{failed}, {left} left"
    table.add_row(Text(total, "bold"))
    return table
