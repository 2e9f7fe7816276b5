"""The file between numalab and the plugin, and the reach that follows from it."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from numalab.reach.counts import Counts, SiteCount, read_counts, write_sites
from numalab.reach.line_table import LineTable, TableFunction, TableLine, run_reach
from numalab.reach.lines import Jump, LineCode
from numalab.reach.merge import merged
from numalab.reach.model import CodeChange, LineState, Reached, RunReach
from numalab.reach.text import reach_lines, verdict_text

JUMP = Jump(0x20, 0x22, 0x30, is_static=False, next_line=5, target_line=9)


def table(change: CodeChange = CodeChange.LINES) -> LineTable:
    inlined = LineCode((((0x10,),), ((0x20,), (0x30, 0x40))), (JUMP,), ("pick",))
    lines = (
        TableLine("a.c", 4, "added", "\tif (x)", inlined, state=LineState.NOT_REACHED),
        TableLine("a.c", 5, "added", "/* why */", None, "comment"),
        TableLine("a.c", 9, "added", "\ty();", LineCode((((0x50,),),), (), ("pick",))),
    )
    functions = (TableFunction("other", "a.o", 0x60),)
    return LineTable("x", "k+x", "patched", change, lines, functions, jiffies=8, hz=250)


def counts() -> Counts:
    begin = (-300 * 250) & 0xFFFFFFFF
    return Counts(
        {
            0x10: SiteCount((0, 4), begin + 500),
            0x20: SiteCount((1, 0), begin + 250),
            0x30: SiteCount((6, 6), begin),
        },
        {0x20: (7, 2)},
    )


def test_sites_and_jumps_come_back_as_they_were_written(tmp_path: Path) -> None:
    path = tmp_path / "counts"
    write_sites(path, [0x30, 0x10, 0x30], [JUMP], cpus=2, jiffies=0xFFFFFFFF81A06980)
    words = np.fromfile(path, "<u8")
    assert words[1:5].tolist() == [2, 2, 1, 0xFFFFFFFF81A06980]
    assert words[5:13].tolist() == [0x10, 0, 0, 0, 0x30, 0, 0, 0]
    assert read_counts(path) == Counts({}, {0x20: (0, 0)})
    words[[6, 8]] = 12, 3
    words.tofile(path)
    assert read_counts(path).sites == {0x10: SiteCount((0, 3), 12)}


@pytest.mark.parametrize("damage", [b"", b"short", bytes(400)])
def test_another_file_holds_no_counts(tmp_path: Path, damage: bytes) -> None:
    path = tmp_path / "counts"
    path.write_bytes(damage)
    with pytest.raises(ValueError):
        read_counts(path)


def test_a_line_ran_as_often_as_its_copies_together() -> None:
    line, comment, unreached = run_reach(table(), counts()).lines
    assert (line.executions, line.cpus, line.first_s) == (5, (0, 1), 1.0)
    assert [(way.taken, way.not_taken) for way in line.branches] == [(7, 2)]
    assert (comment.state, comment.reason) == (LineState.NO_CODE, "comment")
    assert (unreached.state, unreached.executions) == (LineState.NOT_REACHED, 0)


def test_a_line_that_is_not_utf_8_can_be_stored() -> None:
    line = replace(table().lines[0], text="a; /* as Andr\udce9 said, caf\u00e9 */")
    run = run_reach(replace(table(), lines=(line,)), counts())
    assert RunReach.model_validate_json(run.model_dump_json()) == run
    assert run.lines[0].text == "a; /* as Andr\ufffd said, caf\u00e9 */"


def test_a_patch_that_only_removes_lines_is_reached_where_those_beside_it_run() -> None:
    added = table()
    first, without_code, last = added.lines
    lines = (without_code, replace(last, kind="context"), replace(first, kind="function"))
    assert [*added.changed_addresses] == [0x10, 0x20, 0x50]
    assert [*replace(added, lines=lines).changed_addresses] == [0x50]
    assert [*replace(added, lines=lines[::2]).changed_addresses] == [0x60], "of the function"


def test_runs_are_summed_with_the_loads_that_reached_a_line() -> None:
    run = run_reach(table(), counts())
    nothing = run_reach(table(), Counts({}, {}))
    reach = merged([("ring-4, a", run), ("ring-4, b", nothing), ("ring-8, a", run)])
    assert reach.patched is not None
    assert reach.patched.lines[0].executions == 10
    assert reach.patched.lines[0].loads == ("ring-4, a", "ring-8, a")
    assert reach.patched.lines[0].branches[0].taken == 14
    assert reach.verdict is Reached.PARTLY
    assert verdict_text(reach) == (
        "x: partly reached, 1 of 2 changed lines with code and 0 of 1 functions that differ ran"
    )


@pytest.mark.parametrize(
    ("state", "text"),
    [
        (LineState.NO_CODE, ""),
        (LineState.UNKNOWN, "; of the other changed lines, 1 unknown"),
        (LineState.COMPILED_OUT, "; of the other changed lines, 1 not compiled"),
    ],
)
def test_changed_lines_without_a_count_are_in_the_verdict(state: LineState, text: str) -> None:
    plan = replace(table(), functions=())
    rest = replace(plan.lines[1], state=state)
    run = run_reach(replace(plan, lines=(plan.lines[0], rest)), counts())
    ran = "reached, 1 of 1 changed lines with code ran"
    assert verdict_text(merged([("", run)])) == f"x: {ran}{text}"


def test_a_function_that_differs_and_never_ran_is_not_reached() -> None:
    plan = table()
    reach = merged([("", run_reach(replace(plan, lines=plan.lines[:1]), counts()))])
    assert verdict_text(reach) == (
        "x: partly reached, 1 of 1 changed lines with code and 0 of 1 functions that differ ran"
    )


def test_a_function_that_ran_in_one_kernel_ran() -> None:
    plan = replace(table(), lines=table().lines[:1])
    patched = run_reach(plan, Counts({**counts().sites, 0x60: SiteCount((3, 0), 0)}, {}))
    other = replace(plan, side="baseline", lines=())
    reach = merged([("", patched), ("", run_reach(other, Counts({}, {})))])
    assert verdict_text(reach) == (
        "x: reached, 1 of 1 changed lines with code and 1 of 1 functions that differ ran"
    )


def test_runs_of_an_older_version_of_the_patch_are_left_out() -> None:
    run = run_reach(table(), counts())
    older = run.model_copy(update={"lines": run.lines[:1]})
    reach = merged([("a", older), ("b", run)])
    assert reach.patched is not None
    assert (reach.patched.runs, len(reach.patched.lines)) == (1, 3)


def test_a_patch_of_which_nothing_ran_is_not_reached() -> None:
    reach = merged([("", run_reach(table(), Counts({}, {})))])
    assert reach.verdict is Reached.NOT
    assert "not reached" in "\n".join(reach_lines(reach))


def test_a_patch_of_a_comment_has_no_code() -> None:
    reach = merged([("", run_reach(table(CodeChange.NONE), Counts({}, {})))])
    assert reach.verdict is Reached.NO_CODE
    assert "compiles to the same code" in verdict_text(reach)
    comment = table(CodeChange.NONE)
    comment = replace(comment, lines=comment.lines[1:2])
    reach = merged([("", run_reach(comment, Counts({}, {})))])
    assert "no changed line has code" in verdict_text(reach)


def test_a_patch_of_which_nothing_can_be_counted_is_unknown() -> None:
    def text(*, reason: str = "", notes: tuple[str, ...] = ()) -> str:
        state = LineState.UNKNOWN if reason else LineState.NO_CODE
        line = TableLine("a.c", 7, "added", "\tz();", None, reason, state=state)
        plan = replace(table(), lines=(line,), functions=(), notes=notes)
        return verdict_text(merged([("", run_reach(plan, counts()))]))

    assert text(reason="b.o: none") == "x: unknown whether changed code ran: b.o: none"
    assert text(notes=("a Makefile",)) == "x: unknown whether changed code ran: a Makefile"
    assert text() == "x: no changed line has code in the objects that were compared"


def test_a_line_whose_code_was_merged_is_unknown_where_only_the_other_code_ran() -> None:
    shared = LineCode((((0x70,),),), (JUMP,), ("pick",), shared=(0x10,))
    line = TableLine("a.c", 7, "added", "\tz();", shared, state=LineState.NOT_REACHED)
    plan = replace(table(), lines=(line,), functions=())
    assert set(plan.addresses) == {0x70, 0x10, 0x20}
    run = run_reach(plan, counts())
    assert run.lines[0].state is LineState.UNKNOWN
    assert "merged" in run.lines[0].reason
    assert run_reach(plan, Counts({}, {})).lines[0].state is LineState.NOT_REACHED
    ran = run_reach(plan, Counts({0x70: SiteCount((2, 0), 0)}, {}))
    assert (ran.lines[0].state, ran.lines[0].reason) == (LineState.REACHED, "")
    for pair in ((run, ran), (ran, run)):
        both = merged([("", reach) for reach in pair])
        assert both.patched is not None
        assert (both.patched.lines[0].state, both.patched.lines[0].reason) == (
            LineState.REACHED,
            "",
        )
    assert merged([("", run)]).verdict is Reached.UNKNOWN
