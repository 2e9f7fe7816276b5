"""What differs between variants, by cell: its order, its corrections, and what never differs."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from numalab.analysis.measures.family import register_measure
from numalab.errors import UserError
from numalab.measure import Direction, MeasureInfo, MeasureKind, MeasureSource, SourceKind
from numalab.report.comparisons import compare_variants
from numalab.report.differences import OUTCOMES, MeasureDifference, compared, over_all_cells
from numalab.report.document import CellReport, StudyResults
from numalab.report.formatting import differences_title, differences_verdict
from numalab.statistics.comparison import holm
from support.report_sample import sample_report, thread_cells

LOWER, HIGHER, NONE = Direction.LOWER, Direction.HIGHER, Direction.NONE


def info(
    name: str,
    direction: Direction = NONE,
    source: SourceKind = SourceKind.TRACE,
    unit: str = "events",
    kind: MeasureKind = MeasureKind.PLACEMENT,
) -> MeasureInfo:
    return MeasureInfo(name, unit, direction, kind, "A test's.", (MeasureSource(source),))


def differences(
    infos: Sequence[MeasureInfo], keys: Sequence[str], after: Mapping[str, Sequence[float]]
) -> tuple[MeasureDifference, ...]:
    before = {item.name: (100.0, 101.0, 102.0) for item in infos}
    rows = compare_variants(infos, keys, {"before": before, "after": {**before, **after}})
    return compared(infos, keys, rows)


def cell(name: str, after: Mapping[str, Sequence[float]], keys: Sequence[str] = ()) -> CellReport:
    infos = (info("delay", LOWER), info("work", HIGHER, SourceKind.WORKLOAD), info("moves"))
    before = {item.name: (100.0, 101.0, 102.0) for item in infos}
    rows = compare_variants(infos, keys, {"before": before, "after": {**before, **after}})
    return replace(
        sample_report(),
        measures=infos,
        key_measures=tuple(keys),
        comparisons=rows,
        cell=f"ring-4, {name}",
    )


def test_too_few_runs_are_not_called_no_difference() -> None:
    few = cell("a", {key: [100.0] for key in ("delay", "work", "moves")})
    study = replace(StudyResults.of(few), reports=(few,))
    assert differences_title(study).startswith("too few runs to compare (at least 3")
    assert differences_verdict(few.compared).startswith("Too few runs to compare")
    enough = cell("b", {})
    assert differences_verdict(enough.compared) == "No difference shown"
    both = replace(study, reports=(few, enough))
    assert differences_title(both) == "no difference shown in 1 cell; too few runs in 1"


FAR, NEAR = (900.0, 901.0, 902.0), (1.0, 2.0, 3.0)


def test_key_measures_come_first_then_metrics_then_the_worse_before_the_better() -> None:
    infos = [
        info("moves"),
        info("delay", LOWER),
        info("idle", LOWER),
        info("key", HIGHER),
        info("work", HIGHER, SourceKind.WORKLOAD),
    ]
    compared_measures = differences(
        infos, ["key"], {"moves": FAR, "delay": FAR, "idle": NEAR, "key": FAR, "work": FAR}
    )
    assert [(item.measure, item.role, item.outcome) for item in compared_measures] == [
        ("key", "key", "better"),
        ("work", "metric", "better"),
        ("delay", "other", "worse"),
        ("idle", "other", "better"),
        ("moves", "other", "different"),
    ]
    assert {item.variant for item in compared_measures} == {"after"}


def test_cells_with_something_worse_come_first_and_all_cells_are_listed() -> None:
    study = StudyResults.of(
        cell("none", {}),
        cell("better", {"delay": NEAR}),
        cell("different", {"moves": FAR}),
        cell("worse", {"delay": FAR, "work": FAR}),
    )
    assert [entry.cell.partition(", ")[2] for entry in study.differences] == [
        "worse", "better", "different", "none"
    ]  # fmt: skip
    assert [len(entry.shown) for entry in study.differences] == [2, 1, 1, 0]
    assert all(entry.machine == "ring-4" for entry in study.differences)


def test_what_should_differ_and_does_not_is_listed_as_the_same() -> None:
    (entry,) = StudyResults.of(cell("same", {"moves": FAR}, keys=["delay"])).differences
    assert [item.measure for item in entry.shown] == ["moves"]
    assert [(item.measure, item.role) for item in entry.same] == [
        ("delay", "key"),
        ("work", "metric"),
    ]


def test_over_all_cells_the_key_measures_are_one_family_and_the_rest_another() -> None:
    every = [
        compared(report.measures, report.key_measures, report.comparisons)
        for report in (
            cell("one", {"delay": FAR, "moves": NEAR}, keys=["delay"]),
            cell("two", {"delay": NEAR, "work": (99.0, 104.0, 101.0)}, keys=["delay"]),
        )
    ]
    whole = [item for entry in over_all_cells(every) for item in entry]
    for key in (True, False):
        tests = [
            item
            for item in whole
            if (item.role == "key") == key and item.comparison.p_value is not None
        ]
        expected = holm([item.comparison.p_value or 0 for item in tests])
        assert tuple(item.overall for item in tests) == expected
    assert all(item.overall is None for item in whole if item.comparison.p_value is None)


@given(st.lists(st.floats(0, 1e6), min_size=3, max_size=5))
def test_a_correction_over_more_cells_never_makes_a_difference_surer(after: list[float]) -> None:
    report = cell("one", {"delay": after, "moves": FAR})
    alone = compared(report.measures, report.key_measures, report.comparisons)
    single_cell = over_all_cells([alone])[0]
    three_cells = over_all_cells([alone, alone, alone])[0]
    for single, among in zip(single_cell, three_cells, strict=True):
        assert (single.overall is None) == (among.overall is None)
        assert (among.overall or 0) >= (single.overall or 0)
        assert not (among.sure and not single.sure)
        assert single.outcome in OUTCOMES


def test_an_identifier_is_never_compared_and_does_not_enlarge_the_family() -> None:
    kinds = [
        info("last_cpu", unit="cpu"),
        info("leader", unit="PID"),
        info("where", kind=MeasureKind.IDENTIFIER, unit="anything"),
    ]
    real = [info("moves"), info("delay", LOWER), info("cpus_used", unit="CPUs")]
    far = dict.fromkeys(("last_cpu", "leader", "where", "moves", "delay", "cpus_used"), FAR)
    compared_measures = differences([*kinds, *real], [], far)
    assert {item.measure for item in compared_measures} == {"moves", "delay", "cpus_used"}
    assert {item.comparison.family for item in compared_measures} == {3}


def test_a_unit_in_the_singular_names_a_measure_with_a_better_direction_no_identifier() -> None:
    assert info("a", unit="node").is_identifier
    assert not info("a", HIGHER, unit="node").is_identifier
    assert not info("a", unit="nodes").is_identifier


def test_the_threads_of_a_study_differ_in_every_cell() -> None:
    study = StudyResults.of(*thread_cells())
    assert len(study.differences) == len(study.reports)
    first = study.differences[0].shown[0]
    assert (first.measure, first.role, first.outcome) == ("throughput", "key", "better")
    assert first.sure


def test_an_identifier_with_a_better_direction_is_refused() -> None:
    with pytest.raises(UserError, match="last_core_x is an identifier"):
        register_measure("last_core_x", unit="cpu", direction="lower", kind="identifier")


def test_a_verdict_names_the_variants() -> None:
    """The second of three is not `after`, and a side without a value has its name."""
    sides = {"without": (1.0, 2.0, 3.0), "with": (2.0, 3.0, 4.0), "off": (9.0, 9.5, 10.0)}
    (row,) = compare_variants(
        [info("delay", LOWER)], (), {name: {"delay": values} for name, values in sides.items()}
    )
    texts = [versus.verdict.partition(" (")[0] for versus in row.versus if versus]
    assert texts == [
        "the 3 runs of with and the 3 of without overlap",
        "all 3 runs of off are above all 3 of without",
    ]
    (row,) = compare_variants([info("delay")], (), {"on": {"delay": (1.0,)}, "off": {}})
    assert row.verdict == "no run of off could measure it"
