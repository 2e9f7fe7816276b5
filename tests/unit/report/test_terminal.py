import re
from collections.abc import Callable
from dataclasses import replace
from io import StringIO

from rich.console import Console

from numalab.report.document import CellReport
from numalab.report.formats.terminal import render_terminal
from numalab.results.manifest import RunStatus
from support.report_sample import assert_details, hostile_report, report_with_details, sample_report


def shown(report: CellReport, *, color: bool = False) -> str:
    out = StringIO()
    console = Console(
        file=out, width=100, force_terminal=color, color_system="256" if color else None
    )
    console.print(render_terminal(report))
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines()) + "\n"


def test_the_sample_study(golden: Callable[[str, str], None]) -> None:
    text = shown(sample_report())
    assert all(len(line) <= 100 for line in text.splitlines())
    golden("report/terminal.txt", text)


def test_three_variants_have_room() -> None:
    """A table for each against the first, and each measure on a line of its own."""
    report = sample_report()
    third = replace(report.variants[1], name="third")
    comparisons = tuple(
        replace(row, summaries=(*row.summaries, None), changes=(*row.changes, None))
        for row in report.comparisons
    )
    text = shown(replace(report, variants=(*report.variants, third), comparisons=comparisons))
    assert re.findall(r"^ +before +(\w+) *$", text, re.MULTILINE) == ["after", "third"]
    lines = [line.split() for line in text.splitlines()]
    for name in report.key_measures:
        assert sum(line[:1] == [name] for line in lines) == 2, text


def test_each_variant_is_named_with_its_kernel_and_what_else_differs() -> None:
    report = sample_report()
    off = replace(report.variants[1], tunables=("kernel/numa_balancing=0",))
    report = replace(report, variants=(report.variants[0], off))
    head = shown(report).partition("Measure")[0]
    assert re.search(
        r"^before +6\.12\.48-old-groups \+ old-group-construction: ", head, re.MULTILINE
    )
    assert re.search(r"^after +6\.12\.48 \+ kernel/numa_balancing=0$", head, re.MULTILINE)


def test_colour_adds_nothing_but_colour() -> None:
    report = sample_report()
    colored = shown(report, color=True)
    assert "\x1b[" in colored
    plain = re.sub(r"\x1b\[[0-9;]*m", "", colored)
    assert [line.rstrip() for line in plain.splitlines()] == shown(report).splitlines()


def test_a_guests_text_cannot_drive_the_terminal() -> None:
    text = shown(hostile_report())
    assert "\x1b" not in text
    assert "\x07" not in text
    assert "\u202e" not in text
    assert "\\u202e" in text
    assert "<script>alert(1)</script>" in text
    text.encode("utf-8")


def test_markup_in_a_text_stays_text() -> None:
    report = replace(sample_report(), verdict="[bold]not[/bold] [/nothing] :boom:")
    assert "[bold]not[/bold] [/nothing] :boom:" in shown(report)


def test_what_spoils_the_figures_is_said() -> None:
    report = sample_report()
    first = replace(
        report.runs[0],
        status=RunStatus.LOST,
        reason="guest hung",
        provenance=replace(report.runs[0].provenance, lost_events=3),
    )
    claims = (replace(report.claims[0], holds=False),)
    text = shown(replace(report, runs=(first, *report.runs[1:]), claims=claims))
    assert (
        "lost       3 trace events, in 1 of 6 runs; figures from the trace may be wrong in either"
        in text.partition("Measure")[0]
    )
    assert "1 of 6 runs gave no result" in text
    assert "claim FAILS" in text
    assert "n/s: no run measured it; it is not 0" in text


def test_a_verdict_is_shown_with_its_detail() -> None:
    """As in the changelog."""
    assert_details(shown(report_with_details()))


def test_each_difference_has_its_outcome_without_colour() -> None:
    report = sample_report()
    table = shown(report).partition("\nkey measures\n")[2].partition("\n\n")[0]
    outcomes = {item.measure: item.outcome for item in report.compared if item.shown}
    assert {"better", "different"} <= set(outcomes.values())
    for measure, outcome in outcomes.items():  # a long name has its figures on the next line
        line = rf"^{measure} \[[^]]+\]\s+[\d.,\s]+\s(\S+%|from 0)  {outcome}  "
        assert re.search(line, table, re.MULTILINE), table


def test_no_word_stands_for_no_difference() -> None:
    report = replace(sample_report(), key_measures=("sched_swap_numa",))
    (row,) = (line for line in shown(report).splitlines() if line.startswith("sched_swap_numa ["))
    assert not re.search("better|worse|different|not", row)
