"""The annotated patch and lcov's tracefile."""

from numalab.reach.annotated import annotated_files
from numalab.reach.lcov import render_lcov
from numalab.reach.model import (
    BranchReach,
    CodeChange,
    FunctionReach,
    LineKind,
    LineReach,
    LineState,
    PatchReach,
    RunReach,
    Side,
)
from numalab.reach.text import reach_lines
from numalab.report.page.reach import render_reach


def line(number: int, kind: LineKind, count: int = 0, state: LineState | None = None) -> LineReach:
    ran = LineState.REACHED if count else LineState.NOT_REACHED
    branches = (BranchReach(taken=3, taken_line=9, not_taken=0, not_taken_line=2),)
    return LineReach(
        file="kernel/sched/<b>.c",
        number=number,
        kind=kind,
        text=f"{kind} {number} <script>",
        state=state or ran,
        executions=count,
        branches=branches if count else (),
    )


def side(name: Side, *lines: LineReach) -> RunReach:
    return RunReach(series="x", kernel=name, side=name, code=CodeChange.LINES, lines=lines)


REACH = PatchReach(
    series="x",
    code=CodeChange.LINES,
    baseline=side("baseline", line(10, "removed", 7), line(11, "removed"), line(40, "removed")),
    patched=side(
        "patched",
        line(9, "context", 7),
        line(10, "added", 5),
        line(11, "context", state=LineState.NO_CODE),
        line(39, "context", 2),
    ),
)


def test_removed_lines_stand_before_the_lines_that_replace_them() -> None:
    (file,) = annotated_files(REACH)
    rows = [(row.sign, row.number, row.count, row.tone) for row in file.rows]
    assert rows == [
        (" ", 9, "7", "reached"),
        ("-", 10, "7", "reached"),
        ("-", 11, "not reached", "missed"),
        ("+", 10, "5", "reached"),
        (" ", 11, "", "silent"),
        ("-", 40, "not reached", "missed"),
        (" ", 39, "2", "reached"),
    ]


def test_a_function_with_changed_lines_may_differ_by_these_alone() -> None:
    assert REACH.patched is not None
    lines = tuple(
        item.model_copy(update={"functions": ("own",)} if item.is_changed else {})
        for item in REACH.patched.lines
    )
    functions = tuple(FunctionReach(name=name, file="b.o") for name in ("own", "further"))
    patched = side("patched", *lines).model_copy(update={"functions": functions})
    reach = REACH.model_copy(update={"patched": patched})
    text = "\n".join(reach_lines(reach))
    assert "own() may differ in code that no changed line has" in text
    assert "further() differs in code that no changed line has" in text
    page = render_reach(reach)
    assert page.index("own()") < page.index("<td>may differ</td>") < page.index("further()")
    assert page.count("<td>differs</td>") == 1


def test_the_baseline_alone_has_its_own_context() -> None:
    alone = PatchReach(series="x", code=CodeChange.LINES, baseline=REACH.baseline)
    (file,) = annotated_files(alone)
    assert [row.number for row in file.rows] == [10, 11, 40]


def test_the_page_escapes_the_patch() -> None:
    page = render_reach(REACH)
    assert "kernel/sched/&lt;b&gt;.c" in page
    assert "added 10 &lt;script&gt;" in page
    assert "<b>.c" not in page


def test_lcov_has_a_record_for_each_kernel() -> None:
    assert render_lcov(REACH) == (
        "TN:baseline\nSF:kernel/sched/<b>.c\nBRDA:10,0,0,3\nBRDA:10,0,1,0\nBRF:2\nBRH:1\n"
        "DA:10,7\nDA:11,0\nDA:40,0\nLF:3\nLH:1\nend_of_record\n"
        "TN:patched\nSF:kernel/sched/<b>.c\nBRDA:9,0,0,3\nBRDA:9,0,1,0\nBRDA:10,0,0,3\n"
        "BRDA:10,0,1,0\nBRDA:39,0,0,3\nBRDA:39,0,1,0\nBRF:6\nBRH:3\n"
        "DA:9,7\nDA:10,5\nDA:39,2\nLF:3\nLH:3\nend_of_record\n"
    )


def several(reach: RunReach | None, runs: int) -> RunReach:
    assert reach is not None
    return reach.model_copy(update={"runs": runs})


def test_kernels_with_other_numbers_of_runs_are_compared_by_a_mean_run() -> None:
    """7 executions in 8 runs and 5 in 2 are 0.875 and 2.5 a run."""
    both = {"baseline": several(REACH.baseline, 8), "patched": several(REACH.patched, 2)}
    reach = REACH.model_copy(update=both)
    (file,) = annotated_files(reach)
    assert [row.count for row in file.rows if row.tone == "reached"] == ["3.5", "0.875", "2.5", "1"]
    assert "branch: 0.375 to line 9, 0 to line 2" in [row.details for row in file.rows]
    page = render_reach(reach)
    assert "executions a run</th>" in page
    assert "means of 8 runs of baseline (baseline) and of 2 runs of patched (patched)." in page
    text = "\n".join(reach_lines(reach))
    assert [line.split() for line in text.splitlines() if "times a run" in line] == [
        ["line", "times", "a", "run", "CPUs", "first", "source"]
    ] * 2
    assert ["10", "0.875"] in [line.split()[:2] for line in text.splitlines()]
    assert "DA:10,1\nDA:11,0" in render_lcov(reach)
    assert "DA:9,4\nDA:10,3\nDA:39,1" in render_lcov(reach)
