"""The coverage of a hunt: which changed lines ran, how often each branch went each way."""

from collections.abc import Iterable, Iterator

from pydantic import BaseModel, ConfigDict

from numalab.hunt.direction.corpus import BranchOutcome, Corpus, target_lines
from numalab.reach.model import LineKind, LineReach, PatchReach, Reached, RunReach
from numalab.reach.reach_map import SCHEDULER, feature_text, needed_feature
from numalab.reach.text import verdict_text
from numalab.source.c_functions import called
from numalab.units import counted

_MOST_NEVER, _MOST_BRANCHES, _MOST_FILES = 6, 8, 6  # lines in the terminal
_MOST_OF_SCHEDULER = 200  # branches
_WIDTH = 60  # of a source line


class _Record(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class WayCoverage(_Record):
    """A way of a branch: the line it goes to (0: unknown), and how often, in how many boots."""

    to_line: int
    executions: int
    boots: int


class BranchCoverage(_Record):
    """Both ways of a branch of a line; `is_static`: the kernel patches it."""

    file: str
    line: int
    function: str
    taken: WayCoverage
    not_taken: WayCoverage
    is_static: bool

    @property
    def executions(self) -> int:
        """The executions of both ways."""
        return self.taken.executions + self.not_taken.executions

    @property
    def is_open(self) -> bool:
        """Whether it was executed and always went the same way."""
        return bool(self.taken.boots) != bool(self.not_taken.boots)


class LineCoverage(_Record):
    """A changed line with code: how often it ran, in how many boots."""

    file: str
    line: int
    kind: LineKind
    function: str
    text: str
    executions: int
    boots: int


class FileCoverage(_Record):
    """The produced outcomes of the counted branches of a file, and all their ways."""

    file: str
    outcomes: int
    ways: int


class HuntCoverage(_Record):
    """What the drawn cases of a hunt executed of the changed code, or of the whole scheduler.

    `lines` are the changed lines with code, those that never ran first; for a patch that only
    removes lines, those beside the change. `branches` are those of the changed functions that were
    executed; of the scheduler (`series` is SCHEDULER), the most frequent of those that always went
    the same way. `outcomes` of `ways` are the produced outcomes of all counted branches.
    """

    series: str
    verdict: Reached
    summary: str
    boots: int
    lines: tuple[LineCoverage, ...]
    branches: tuple[BranchCoverage, ...]
    files: tuple[FileCoverage, ...]
    outcomes: int
    ways: int

    @property
    def is_whole(self) -> bool:
        """Whether all branches of the scheduler were counted."""
        return self.series == SCHEDULER

    @property
    def never_ran(self) -> tuple[LineCoverage, ...]:
        """The changed lines that never ran."""
        return tuple(line for line in self.lines if not line.boots)


def hunt_coverage(total: PatchReach, corpus: Corpus) -> HuntCoverage | None:
    """Return the coverage of a hunt: the sum over its boots, and its corpus; None for no boot."""
    reach = total.patched
    if reach is None:
        return None
    targets = [_line(line, corpus) for line in target_lines(reach)]
    branches = tuple(_branches(reach, corpus))
    executed = [item for item in branches if item.taken.boots or item.not_taken.boots]
    files = tuple(_files(branches))
    outcomes, ways = sum(file.outcomes for file in files), sum(file.ways for file in files)
    is_whole = total.series == SCHEDULER
    if is_whole:
        one_way = (item for item in executed if item.is_open)
        executed = sorted(one_way, key=lambda item: -item.executions)[:_MOST_OF_SCHEDULER]
    return HuntCoverage(
        series=total.series,
        verdict=Reached.ALL if is_whole else total.verdict,
        summary="branches of the scheduler" if is_whole else verdict_text(total),
        boots=reach.runs,
        lines=tuple(sorted(targets, key=lambda line: (bool(line.boots), line.file.endswith(".h")))),
        branches=tuple(executed),
        files=files,
        outcomes=outcomes,
        ways=ways,
    )


def _files(branches: Iterable[BranchCoverage]) -> Iterator[FileCoverage]:
    """Return the coverage by file, the file with most branches first."""
    by_file: dict[str, list[int]] = {}
    for branch in branches:
        boots = by_file.setdefault(branch.file, [])
        boots += [branch.taken.boots, branch.not_taken.boots]
    for file, boots in sorted(by_file.items(), key=lambda item: -len(item[1])):
        yield FileCoverage(file=file, outcomes=sum(map(bool, boots)), ways=len(boots))


def _line(line: LineReach, corpus: Corpus) -> LineCoverage:
    return LineCoverage(
        file=line.file,
        line=line.number,
        kind=line.kind,
        function=_function(line),
        text=line.text,
        executions=line.executions,
        boots=corpus.produced[BranchOutcome(line.file, line.number, -1, taken=True)],
    )


def _branches(reach: RunReach, corpus: Corpus) -> Iterator[BranchCoverage]:
    """Return the branches, those of changed lines first."""
    targets = {(line.file, line.number) for line in target_lines(reach)}
    for line in sorted(reach.lines, key=lambda line: (line.file, line.number) not in targets):
        for place, branch in enumerate(line.branches):
            boots = [
                corpus.produced[BranchOutcome(line.file, line.number, place, way)]
                for way in (True, False)
            ]
            yield BranchCoverage(
                file=line.file,
                line=line.number,
                function=_function(line),
                taken=WayCoverage(
                    to_line=branch.taken_line, executions=branch.taken, boots=boots[0]
                ),
                not_taken=WayCoverage(
                    to_line=branch.not_taken_line, executions=branch.not_taken, boots=boots[1]
                ),
                is_static=branch.is_static,
            )


def _function(line: LineReach) -> str:
    return line.functions[0] if line.functions else ""


def is_unreached(coverage: HuntCoverage) -> bool:
    """Whether the hunt cannot say anything about the patch: no changed line ran."""
    return coverage.boots > 0 and coverage.verdict is Reached.NOT


def coverage_lines(coverage: HuntCoverage) -> Iterator[str]:
    """Return the coverage for the terminal: lines that never ran first."""
    outcomes = f"{coverage.outcomes} of {coverage.ways} branch outcomes of"
    boots = counted(coverage.boots, "boot")
    if coverage.is_whole:
        yield f"reach: {outcomes} the scheduler, in {boots}"
        for file in coverage.files[:_MOST_FILES]:
            yield f"  {file.file}: {file.outcomes} of {file.ways}"
    else:
        yield f"reach: {coverage.summary}, in {boots}; {outcomes} the changed functions"
    never = coverage.never_ran
    for line in never[:_MOST_NEVER]:
        needs = feature_text(needed_feature(line.file, line.function))
        place = f"{_place(line.file, line.line, line.function)}{needs and f' ({needs})'}"
        yield f"  never ran: {place}: {_text(line)}"
    if len(never) > _MOST_NEVER:
        yield f"  and {len(never) - _MOST_NEVER} more changed lines that never ran"
    branches = sorted(coverage.branches, key=lambda branch: not branch.is_open)
    for branch in branches[:_MOST_BRANCHES]:
        kind = "static branch" if branch.is_static else "branch"
        yield (
            f"  {_place(branch.file, branch.line, branch.function)}: {kind}"
            f" {_way(branch.taken)}, {_way(branch.not_taken)}"
        )
    if len(branches) > _MOST_BRANCHES:
        yield f"  and {len(branches) - _MOST_BRANCHES} more branches"


def _place(file: str, line: int, function: str) -> str:
    return f"{file}:{line}{f' {called(function)}' if function else ''}"


def _text(line: LineCoverage) -> str:
    return " ".join(line.text.split())[:_WIDTH]


def _way(way: WayCoverage) -> str:
    place = f"line {way.to_line}" if way.to_line else "elsewhere"
    if not way.boots:
        return f"never to {place}"
    return f"{way.executions:,} times to {place} ({counted(way.boots, 'boot')})"
