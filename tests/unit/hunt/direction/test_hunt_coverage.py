"""The coverage of a hunt names the changed lines that never ran."""

from numalab.hunt.case import Case
from numalab.hunt.direction.corpus import Corpus
from numalab.hunt.direction.coverage import (
    HuntCoverage,
    coverage_lines,
    hunt_coverage,
    is_unreached,
)
from numalab.reach.merge import merged
from numalab.reach.model import Reached, RunReach
from numalab.reach.reach_map import SCHEDULER
from unit.hunt.direction.counted import boot, line


def coverage(case: Case, *boots: RunReach) -> HuntCoverage:
    corpus = Corpus()
    for number, reach in enumerate(boots):
        corpus.add(number, case, reach)
    result = hunt_coverage(merged(("", reach) for reach in boots), corpus)
    assert result is not None
    return result


def test_lines_and_branches_are_summed_with_the_number_of_boots(drawn_case: Case) -> None:
    result = coverage(
        drawn_case,
        boot(line(5, "added", 3, (3, 0)), line(6), line(9, "function", 2, (1, 1), (0, 0))),
        boot(line(5, "added", 4, (4, 0)), line(6), line(9, "function", 0, (0, 0), (0, 0))),
    )
    assert (result.boots, result.verdict) == (2, Reached.PARTLY)
    assert [(item.line, item.executions, item.boots) for item in result.lines] == [
        (6, 0, 0),
        (5, 7, 2),
    ]
    first, second = result.branches
    assert (first.line, first.taken.executions, first.taken.boots) == (5, 7, 2)
    assert first.is_open
    assert (second.line, second.not_taken.boots, second.is_open) == (9, 1, False)
    assert (result.outcomes, result.ways) == (3, 6), "a branch that did not run has two ways, too"
    assert HuntCoverage.model_validate_json(result.model_dump_json()) == result


def test_the_terminal_names_lines_that_never_ran_first(drawn_case: Case) -> None:
    lines = [line(number, text=f"  if ({number})\t{{") for number in range(1, 20)]
    ran = [line(number, "function", 2, (1, 0), (1, 1)) for number in range(30, 60)]
    result = coverage(drawn_case, boot(line(20, "added", 1), *lines, *ran))
    shown = list(coverage_lines(result))
    assert len(shown) <= 20
    assert shown[0].startswith("reach: x: partly reached, 1 of 20 changed lines with code ran")
    assert shown[1] == "  never ran: kernel/sched/fair.c:1 decide(): if (1) {"
    assert "13 more changed lines" in shown[7]
    assert shown[8] == (
        "  kernel/sched/fair.c:30 decide(): branch 1 times to line 90 (1 boot), never to elsewhere"
    )
    assert not is_unreached(result)


def test_lines_of_headers_that_never_ran_come_last(drawn_case: Case) -> None:
    header = {"file": "include/trace/events/sched.h", "functions": ("TRACE_EVENT(sched_new)",)}
    result = coverage(drawn_case, boot(line(7).model_copy(update=header), line(6)))
    assert [text.strip() for text in coverage_lines(result)][1:3] == [
        "never ran: kernel/sched/fair.c:6 decide(): x",
        "never ran: include/trace/events/sched.h:7 TRACE_EVENT(sched_new): x",
    ]


def test_a_patch_whose_lines_never_ran_is_not_reached(drawn_case: Case) -> None:
    result = coverage(drawn_case, boot(line(5), line(9, "function", 2, (1, 1))))
    assert is_unreached(result)
    assert result.verdict is Reached.NOT


def test_the_whole_scheduler_is_summed_by_file(drawn_case: Case) -> None:
    lines = [
        line(number, "function", 1, (number, 0)).model_copy(
            update={"file": f"kernel/sched/{'rt' if number < 40 else 'fair'}.c"}
        )
        for number in range(30, 300)
    ]
    both = line(500, "function", 1, (9000, 1))
    whole = boot(*lines, both).model_copy(update={"series": SCHEDULER})
    result = coverage(drawn_case, whole, whole)
    assert result.is_whole and not is_unreached(result) and not result.lines
    assert [(file.file, file.outcomes, file.ways) for file in result.files] == [
        ("kernel/sched/fair.c", 262, 522),
        ("kernel/sched/rt.c", 10, 20),
    ]
    assert len(result.branches) == 200, "those that went both ways, and rare ones, are left out"
    assert (result.branches[0].line, result.branches[0].executions) == (299, 598)
    shown = list(coverage_lines(result))
    assert shown[0] == "reach: 272 of 542 branch outcomes of the scheduler, in 2 boots"
    assert shown[1] == "  kernel/sched/fair.c: 262 of 522"
    assert len(shown) <= 20
