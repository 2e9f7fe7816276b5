"""Compares commands on machines: the same seeds, the same measures, one error rate."""

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path

from numalab.errors import UserError
from numalab.measure import Measure, MeasureInfo, Number
from numalab.programs.machines import LabMachine, listed
from numalab.progress import Progress, no_progress
from numalab.statistics.comparison import FEWEST, Comparison, compare_table

# What a program's user asks first. Declared before the runs, so that they share one error rate.
MEASURES = (
    *("elapsed_time", "user_time", "system_time", "memory_local_share", "memory_stall_share"),
    *("task_node_migrations", "vmstat_numa_pages_migrated", "queue_imbalance"),
)

_SETTING = re.compile(r"(?P<name>[A-Za-z_]\w*|/(?:proc/sys|sys)/[^=]+)=(?P<value>.*)", re.DOTALL)
_QUOTED = re.compile(r"""'[^']*'|"(?:\\.|[^"\\])*"|\\.""", re.DOTALL)
# Patterns of names, braces and a comment, too (bash(1), EXPANSION); not the [] of `a=[1]`, nor {}.
_OF_SHELL = re.compile(
    r"[|&;<>`*?]|\$(?=[\w{(@*#?!$'-])|(?<!=)\[[^\s\]]+\]|\{[^\s{}]*(?:,|\.\.)[^\s{}]*\}"
    r"|(?<!\S)(?:#|(?:[A-Za-z_]\w*=)?~)"
)
_Runs = list[Mapping[str, Measure]]


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
    """Two commands on one machine, `seeds` runs each; what differs comes first.

    `left_out` are measures that no run could take.
    """

    machine: str
    mode: str
    seeds: int
    before: str
    after: str
    rows: tuple[ComparedMeasure, ...]
    left_out: tuple[str, ...] = ()

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
        lines = [f"{head}: {worse} worse, {better} better", *map(str, self.rows)]
        for why, names in groupby(sorted(self.left_out, key=self._why), key=self._why):
            lines.append(f"no run measured {', '.join(names)}{why}")
        return "\n".join(lines)

    def _why(self, name: str) -> str:
        """Return why no run of this mode measured something; empty where the mode can."""
        if name.startswith("memory_") and self.mode != "timed":
            return " (mode timed counts accesses)"
        if name in ("user_time", "system_time") and self.mode == "icount":
            return " (mode icount cannot separate user from system time)"
        return ""


@dataclass(frozen=True)
class ProgramVariant:
    """A command and its settings: `env` is added to its environment.

    `tunables` are files below /proc/sys or /sys, and the values that the guest writes to them
    before the command.
    """

    words: Sequence[str | Path]
    env: Mapping[str, str] = field(default_factory=dict)
    tunables: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        """Return it as `parse_variant` reads it."""
        settings = (
            f"{name}={value}" for name, value in (*self.tunables.items(), *self.env.items())
        )
        return shlex.join([*settings, *map(str, self.words)])


@dataclass(frozen=True)
class _Pair:
    """Two commands on a machine and the measures of their runs, which are not compared yet."""

    machine: LabMachine
    before: ProgramVariant
    after: ProgramVariant
    runs_before: _Runs
    runs_after: _Runs
    measured: Mapping[str, MeasureInfo]


def parse_variant(text: str) -> ProgramVariant:
    """Read `SETTING=VALUE ... COMMAND`, quoted as for a shell.

    A setting is a variable of the environment, or a file below /proc/sys or /sys. Raises UserError
    for a text without a command, and for what only a shell does, such as a pipe. Between quotes
    all characters stand for themselves.
    """
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise UserError(f"{text!r}: {error}") from None
    if sign := _OF_SHELL.search(_QUOTED.sub(lambda quoted: "'" * len(quoted[0]), text)):
        how = "or use sh -c 'COMMAND', with --add FILE for files of this host"
        written = text[slice(*sign.span())]
        raise UserError(f"{text!r} is not run by a shell: quote the {written}, {how}")
    env, tunables = dict[str, str](), dict[str, str]()
    while words and (match := _SETTING.fullmatch(words[0])):
        (tunables if match["name"].startswith("/") else env)[match["name"]] = match["value"]
        del words[0]
    if not words:
        raise UserError(f"{text!r} has no command")
    return ProgramVariant(tuple(words), env, tunables)


def compare_programs(
    machine: LabMachine,
    before: Sequence[str | Path] | ProgramVariant,
    after: Sequence[str | Path] | ProgramVariant,
    *,
    seeds: int = 5,
    measures: Sequence[str] = MEASURES,
    tasks: Sequence[str] = (),
    add: Sequence[str] = (),
    on_progress: Progress = no_progress,
) -> ProgramComparison:
    """Run two commands with the seeds 1 to `seeds`, and compare their measures.

    Each run is a guest of its own. Measures that no run could take are left out; those of memory
    accesses need mode timed. p values are corrected for all measures (Holm); see
    docs/explanation/statistics.md. `tasks` are names of tasks, by default all of the command.
    Raises UserError for fewer than three seeds or an unknown measure, and what
    `LabMachine.measure` raises.
    """
    (result,) = compare_variants(
        machine, before, [after], seeds=seeds, measures=measures, tasks=tasks, add=add,
        on_progress=on_progress,
    )  # fmt: skip
    return result


def compare_variants(
    machine: LabMachine,
    before: Sequence[str | Path] | ProgramVariant,
    after: Sequence[Sequence[str | Path] | ProgramVariant],
    *,
    seeds: int = 5,
    measures: Sequence[str] = MEASURES,
    tasks: Sequence[str] = (),
    add: Sequence[str] = (),
    on_progress: Progress = no_progress,
) -> tuple[ProgramComparison, ...]:
    """Compare each variant in `after` with the same runs of `before`; as `compare_programs`.

    All comparisons share one error rate.
    """
    return compare_on_machines(
        [machine], before, after, seeds=seeds, measures=measures, tasks=tasks, add=add,
        on_progress=on_progress,
    )  # fmt: skip


def compare_on_machines(
    machines: Iterable[LabMachine],
    before: Sequence[str | Path] | ProgramVariant,
    after: Sequence[Sequence[str | Path] | ProgramVariant],
    *,
    seeds: int = 5,
    measures: Sequence[str] = MEASURES,
    tasks: Sequence[str] = (),
    add: Sequence[str] = (),
    on_progress: Progress = no_progress,
) -> tuple[ProgramComparison, ...]:
    """Compare as `compare_variants` on each machine, which is taken when its turn comes.

    The comparisons on all machines share one error rate: one worse measure decides the outcome.
    """
    if seeds < FEWEST:
        raise UserError(f"{seeds} seeds show nothing; use {FEWEST} or more", key="seeds")
    measures = tuple(dict.fromkeys(measures))
    commands = [_variant(side) for side in (before, *after)]
    pairs: list[_Pair] = []
    for machine in machines:
        sides: list[_Runs] = [[] for _ in commands]
        turns = [(seed, place) for seed in range(1, seeds + 1) for place in range(len(commands))]
        for turn, (seed, place) in enumerate(turns):
            command = commands[place]
            on_progress(f"{machine.topology.name}, {command}, seed {seed}", turn / len(turns))
            run = machine.measure(
                command.words, seed=seed, tasks=tasks, env=command.env, tunables=command.tunables,
                add=add,
            )  # fmt: skip
            _check_measures(measures, run)
            sides[place].append(run)
        pairs += [
            _Pair(
                machine, commands[0], command, sides[0], side, _measured(measures, sides[0], side)
            )
            for command, side in zip(commands[1:], sides[1:], strict=True)
        ]
    table = [
        (_values(pair.runs_before, name), _values(pair.runs_after, name), info.direction)
        for pair in pairs
        for name, info in pair.measured.items()
    ]
    comparisons = iter(compare_table(table))
    return tuple(_compared(pair, measures, seeds, comparisons) for pair in pairs)


def _compared(
    pair: _Pair, measures: Sequence[str], seeds: int, comparisons: Iterator[Comparison]
) -> ProgramComparison:
    """Return a pair with its comparisons, which are the next ones; what differs comes first."""
    rows = [ComparedMeasure(info, next(comparisons)) for info in pair.measured.values()]
    rows.sort(key=lambda row: not row.comparison.shown)
    return ProgramComparison(
        pair.machine.topology.name,
        pair.machine.mode,
        seeds,
        str(pair.before),
        str(pair.after),
        tuple(rows),
        tuple(name for name in measures if name not in pair.measured),
    )


def _variant(side: Sequence[str | Path] | ProgramVariant) -> ProgramVariant:
    return side if isinstance(side, ProgramVariant) else ProgramVariant(listed(side, "words"))


def _check_measures(names: Sequence[str], run: Mapping[str, Measure]) -> None:
    if unknown := [name for name in names if name not in run and name not in MEASURES]:
        raise UserError(f"no measure {unknown[0]!r}", key="measures", choices=sorted(run))


def _measured(names: Sequence[str], *sides: _Runs) -> dict[str, MeasureInfo]:
    """Return the measures that a run of any side could take."""
    return {
        name: next(run[name].info for side in sides for run in side if name in run)
        for name in names
        if any(value is not None for side in sides for value in _values(side, name))
    }


def _values(runs: _Runs, name: str) -> list[Number]:
    return [run[name].value if name in run else None for run in runs]
