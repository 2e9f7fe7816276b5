"""Compares two commands on one machine: the same seeds, the same measures, one error rate."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from numalab.errors import UserError
from numalab.measure import Measure, MeasureInfo, Number
from numalab.programs.machines import LabMachine
from numalab.progress import Progress, no_progress
from numalab.statistics.comparison import FEWEST, Comparison, compare_table

# What a program's user asks first. Declared before the runs, so that they share one error rate.
MEASURES = (
    *("elapsed_time", "user_time", "system_time", "memory_local_share", "memory_stall_share"),
    *("task_node_migrations", "vmstat_numa_pages_migrated", "queue_imbalance"),
)


@dataclass(frozen=True)
class ComparedMeasure:
    """One measure of two commands. `info` has its unit and its better direction."""

    info: MeasureInfo
    comparison: Comparison

    def __str__(self) -> str:
        """Return one line: the means, the change and the verdict."""
        result = self.comparison
        if result.before is None or result.after is None:
            return f"{self.info.name}: {result.verdict}"
        change = "" if result.change is None else f" ({result.change:+.1f} %)"
        means = f"{result.before.mean:.4g} to {result.after.mean:.4g} {self.info.unit}{change}"
        return f"{self.info.name}: {means}: {result.outcome}; {result.verdict}"


@dataclass(frozen=True)
class ProgramComparison:
    """Two commands on one machine, `seeds` runs each; what differs comes first."""

    machine: str
    mode: str
    seeds: int
    rows: tuple[ComparedMeasure, ...]

    def __getitem__(self, name: str) -> Comparison:
        """Return the comparison of one measure. Raises UserError for another name."""
        for row in self.rows:
            if row.info.name == name:
                return row.comparison
        raise UserError(f"no measure {name!r}", choices=[row.info.name for row in self.rows])

    @property
    def worse(self) -> tuple[ComparedMeasure, ...]:
        """The measures that are worse after than before."""
        return tuple(row for row in self.rows if row.comparison.outcome == "worse")

    @property
    def better(self) -> tuple[ComparedMeasure, ...]:
        """The measures that are better after than before."""
        return tuple(row for row in self.rows if row.comparison.outcome == "better")

    def __str__(self) -> str:
        """Return a line for each measure, what differs first."""
        worse, better = len(self.worse), len(self.better)
        head = f"{self.machine}, mode {self.mode}, {self.seeds} runs of each command"
        return "\n".join([f"{head}: {worse} worse, {better} better", *map(str, self.rows)])


def compare_programs(
    machine: LabMachine,
    before: Sequence[str | Path],
    after: Sequence[str | Path],
    *,
    seeds: int = 5,
    measures: Sequence[str] = MEASURES,
    tasks: Sequence[str] = (),
    env_before: Mapping[str, str] | None = None,
    env_after: Mapping[str, str] | None = None,
    add: Sequence[str] = (),
    on_progress: Progress = no_progress,
) -> ProgramComparison:
    """Run two commands with the seeds 1 to `seeds`, and compare their measures.

    Each run is a guest of its own. Measures that no run could take are left out; those of memory
    accesses need mode timed. p values are corrected for all measures (Holm); see
    docs/explanation/statistics.md. `tasks` are names of tasks, by default those of the programs.
    Raises UserError for fewer than three seeds or an unknown measure, and what
    `LabMachine.measure` raises.
    """
    if seeds < FEWEST:
        raise UserError(f"{seeds} seeds show nothing; use {FEWEST} or more", key="seeds")
    sides: tuple[list[Mapping[str, Measure]], ...] = ([], [])
    for seed in range(1, seeds + 1):
        for side, words, env in ((0, before, env_before), (1, after, env_after)):
            name = "before" if side == 0 else "after"
            done = (2 * (seed - 1) + side) / (2 * seeds)
            on_progress(f"{machine.topology.name}, {name}, seed {seed}", done)
            sides[side].append(machine.measure(words, seed=seed, tasks=tasks, env=env, add=add))
    first_run = sides[0][0]
    if unknown := [name for name in measures if name not in first_run and name not in MEASURES]:
        raise UserError(f"no measure {unknown[0]!r}", key="measures", choices=sorted(first_run))
    columns = [
        (name, [_value(run, name) for run in sides[0]], [_value(run, name) for run in sides[1]])
        for name in measures
    ]
    taken = [row for row in columns if any(value is not None for value in (*row[1], *row[2]))]
    table = [(first, second, first_run[name].info.direction) for name, first, second in taken]
    rows = [
        ComparedMeasure(first_run[name].info, comparison)
        for (name, _, _), comparison in zip(taken, compare_table(table), strict=True)
    ]
    rows.sort(key=lambda row: not row.comparison.shown)
    return ProgramComparison(machine.topology.name, machine.mode, seeds, tuple(rows))


def _value(run: Mapping[str, Measure], name: str) -> Number:
    return run[name].value if name in run else None
