"""Reports of any study fit their limits, and name what they leave out."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from numalab.measure import Direction, MeasureInfo, MeasureKind, MeasureSource, SourceKind
from numalab.report.build.artifacts import summary
from numalab.report.cell_tables import listed_comparisons
from numalab.report.comparisons import compare_variants
from numalab.report.document import StudyResults
from numalab.report.fitting import KEPT, ReportPart, characters, fit
from numalab.report.formats.changelog import MOST_LINES, render_changelog
from numalab.report.formats.markdown import MOST_CHARACTERS, render_markdown
from support.report_sample import sample_report, thread_cells

PARTS = st.lists(
    st.builds(
        ReportPart,
        st.lists(st.text("ab", max_size=9), min_size=1, max_size=4).map(tuple),
        st.integers(0, 3),
        st.sampled_from(["row of measures", "claim", ""]),
    ),
    max_size=20,
)


def left_out(text: str) -> list[str]:
    return ["", f"Left out: {text}."]


@given(PARTS, st.integers(0, 60))
def test_what_is_kept_fits_or_all_that_may_go_is_gone(parts: list[ReportPart], most: int) -> None:
    lines = fit(parts, most, left_out)
    kept = [line for part in parts if part.spare == KEPT for line in part.lines]
    least = len(kept) + 2
    assert len(lines) <= max(most, least)
    whole = [line for part in parts for line in part.lines]
    if len(whole) <= most:
        assert lines == whole


@given(PARTS, st.integers(0, 200))
def test_the_least_important_goes_first(parts: list[ReportPart], most: int) -> None:
    numbered = [
        replace(part, lines=tuple(f"{place} {line}" for line in part.lines))
        for place, part in enumerate(parts)
    ]
    lines = fit(numbered, most, left_out, characters)
    gone = [part for part in numbered if part.lines[0] not in lines]
    kept = [part for part in numbered if part.lines[0] in lines]
    assert max((part.spare for part in kept), default=0) <= min(
        (part.spare for part in gone), default=9
    )


def test_what_is_left_out_is_counted() -> None:
    parts = [ReportPart((str(number),), 1, "row of measures") for number in range(5)]
    assert fit(parts, 4, left_out) == ["0", "1", "", "Left out: 3 rows of measures."]


def matrix(cells: int, measures: int = 60) -> StudyResults:
    """A study of many cells in which every second measure differs, among them long names."""
    names = [f"measure_of_a_user_with_a_name_that_is_long_{number}" for number in range(measures)]
    infos = tuple(
        MeasureInfo(
            name,
            "ms",
            Direction.LOWER if place % 3 else Direction.NONE,
            MeasureKind.TIMING,
            "A test's.",
            (MeasureSource(SourceKind.WORKLOAD if place % 5 == 0 else SourceKind.TRACE),),
        )
        for place, name in enumerate(names)
    )
    sides = {
        "before": {name: [1.0, 1.1, 1.2] for name in names},
        "after": {
            name: [9.0, 9.1, 9.2] if place % 2 else [1.0, 1.2, 1.1]
            for place, name in enumerate(names)
        },
    }
    rows = compare_variants(infos, (), sides)
    whole = sample_report()
    reports = [
        replace(
            whole,
            measures=infos,
            key_measures=(),
            comparisons=rows,
            topology=replace(whole.topology, name=f"machine-{number}"),
            workload=replace(whole.workload, label=f"load-{number}", command="a command " * 20),
            cell=f"machine-{number}, load-{number}",
            runs=(),
        )
        for number in range(cells)
    ]
    return StudyResults.of(*reports)


@pytest.mark.parametrize("cells", [2, 11, 60])
def test_a_changelog_of_several_cells_fits_120_lines(cells: int) -> None:
    study = matrix(cells)
    lines = render_changelog(study).splitlines()
    assert len(lines) <= MOST_LINES
    assert all(len(line) <= 75 for line in lines)
    text = " ".join(lines)
    assert "Left out here, see report.json or index.html:" in text
    assert "rows of measures" in text
    assert "machine-0, load-0" in text


def test_a_changelog_of_one_cell_has_all_tables() -> None:
    study = matrix(1, 200)
    text = render_changelog(study)
    assert len(text.splitlines()) > MOST_LINES
    assert "Left out here" not in text
    listed = listed_comparisons(study.reports[0])
    assert text.count(" (ms)*\n") == len(listed) > 60


@pytest.mark.parametrize("cells", [1, 11, 60])
def test_markdown_of_any_study_fits_a_comment(cells: int) -> None:
    text = render_markdown(matrix(cells, 200))
    assert len(text) <= MOST_CHARACTERS
    assert "Left out here, see index.html or report.json:" in text or cells == 1
    assert "after" in text


def test_markdown_of_a_question_without_end_fits_too() -> None:
    study = replace(matrix(2), question="why? " * 40_000)
    assert len(render_markdown(study)) <= MOST_CHARACTERS


def test_the_summary_of_several_studies_fits_a_comment() -> None:
    assert len(summary([matrix(20, 200), matrix(20, 200)])) <= MOST_CHARACTERS


def test_what_differs_most_stays() -> None:
    study = matrix(11)
    shown = study.differences[0].shown[0].measure
    for text in (render_changelog(study), render_markdown(study).replace("\\", "")):
        assert shown in text


def test_a_small_study_is_whole() -> None:
    study = StudyResults.of(*thread_cells())
    for text in (render_changelog(study), render_markdown(study)):
        assert "Left out" not in text


def test_a_cell_alone_names_its_machine_and_workload() -> None:
    study = StudyResults.of(sample_report())
    for text in (render_changelog(study), render_markdown(study)):
        assert "ring-4: 4 nodes" in text
        assert "bound-hogs hogs=8" in text
