"""What tells cells apart, and which measures a short table has room for."""

from dataclasses import replace
from io import StringIO

from rich.console import Console

from numalab.measure import Direction
from numalab.report.cell_tables import (
    CellAxis,
    alike,
    axis,
    headlines,
    listed_comparisons,
    nothing_shown,
    sections,
)
from numalab.report.comparisons import compare_variants
from numalab.report.document import CellReport, StudyResults
from numalab.report.formats.changelog import render_changelog
from numalab.report.formats.mmtests import render_mmtests
from numalab.report.formats.terminal import render_terminal
from numalab.report.formats.threads import render_threads
from support.report_sample import sample_report, thread_cells


def with_(report: CellReport, label: str, **parameters: int) -> CellReport:
    return replace(
        report,
        workload=replace(report.workload, name="w", label=label, parameters=parameters),
        cell=f"ring-4, {label}",
    )  # fmt: skip


def test_one_parameter_that_differs_names_the_cells() -> None:
    cells = [with_(sample_report(), f"w-{n}", threads=n, rounds=7) for n in (1, 8)]
    assert axis(cells) == CellAxis("Threads", ("1", "8"), ", w, on ring-4")


def test_what_was_not_compared_is_counted_apart() -> None:
    rows = sample_report().comparisons
    assert (
        nothing_shown(rows) == f"5 of {len(rows)} measures: no difference shown; 1 not comparable"
    )
    alone = [row for row in rows if None in row.summaries]
    assert nothing_shown(alone) == "1 measure, not compared"


def test_two_parameters_that_differ_do_not() -> None:
    cells = [with_(sample_report(), f"w-{n}", threads=n, rounds=n) for n in (1, 8)]
    assert axis(cells) == CellAxis("Workload", ("w-1", "w-8"), ", on ring-4")


def test_other_machines_name_the_cells_of_one_use_and_both_name_the_rest() -> None:
    on_ring = with_(sample_report(), "w")
    on_mesh = replace(on_ring, topology=replace(on_ring.topology, name="mesh-8"), cell="mesh-8, w")
    assert axis([on_ring, on_mesh]) == CellAxis("Machine", (on_ring.topology.name, "mesh-8"), ", w")
    other = replace(on_mesh, workload=replace(on_mesh.workload, label="v"), cell="mesh-8, v")
    assert axis([on_ring, other]) == CellAxis("Cell", ("ring-4, w", "mesh-8, v"))


def test_a_short_table_has_the_key_measures_and_what_was_printed() -> None:
    """Times, counts of perf and counters of /proc/vmstat have tables of their own."""
    report = replace(thread_cells()[0], key_measures=("throughput", "elapsed_time"))
    assert [row.measure for row in headlines(report)] == ["throughput", "wakeup_p99_5"]


def test_a_table_lists_the_key_measures_then_what_differs_then_the_metrics() -> None:
    report = replace(sample_report(), key_measures=("sched_swap_numa",))
    assert {
        section.heading: [row.measure for row in section.rows] for section in sections(report)
    } == {
        "key measures": ["sched_swap_numa"],  # the same in both
        "differences": [
            "idle_while_overloaded",
            "task_time_share_node1",
            "task_time_share_node3",
            "sched_stick_numa",
            "vmstat_numa_pages_migrated",
            "task_migrations_node1_node3",
        ],
    }


def test_a_table_of_two_variants_lists_what_differs_between_these() -> None:
    report = sample_report()
    names = [row.measure for row in report.comparisons if row.differs(1)]
    same, other = (
        {name: [float(base + n) for n in range(3)] for name in names} for base in (1, 90)
    )
    sides = {"before": same, "with": same, "off": other}
    report = replace(
        report,
        variants=tuple(replace(report.variants[0], name=name) for name in sides),
        key_measures=(),
        comparisons=compare_variants([report.measure(name) for name in names], (), sides),
    )
    assert not sections(report, "with")
    assert {row.measure for row in listed_comparisons(report, "off")} == set(names)
    assert {row.measure for row in listed_comparisons(report)} == set(names)
    study = StudyResults.of(report)
    out = StringIO()
    Console(file=out, width=100).print(render_terminal(report))
    means = render_changelog(study).partition("\n\nTrace events")[0]
    table = render_threads(study).partition("\n\n")[2]
    for text in (out.getvalue(), means, table):
        assert text.count(names[0]) == 1, text


def test_without_key_measures_what_differs_comes_first_then_the_metrics_of_the_workload() -> None:
    same = replace(thread_cells()[0].measure("throughput"), name="rate", direction=Direction.HIGHER)
    whole = replace(thread_cells()[0], key_measures=())
    rate = compare_variants(
        [same], (), {"before": {"rate": [1.0, 2.0, 3.0]}, "after": {"rate": [1.0, 2.0, 3.0]}}
    )
    report = replace(
        whole, measures=(same, *whole.measures), comparisons=(*rate, *whole.comparisons)
    )
    assert [
        (section.heading, [row.measure for row in section.rows]) for section in sections(report)
    ] == [
        ("differences", ["throughput", "wakeup_p99_5"]),
        ("metrics of the workload", ["rate"]),
    ]
    changelog = render_changelog(StudyResults.of(report))
    assert changelog.index("throughput") < changelog.index("wakeup_p99_5") < changelog.index("rate")


def test_of_a_single_variant_a_table_lists_all_measures_but_counters() -> None:
    report = sample_report()
    alone = replace(
        report,
        variants=report.variants[:1],
        comparisons=tuple(
            replace(row, summaries=row.summaries[:1], changes=(None,), versus=(None,))
            for row in report.comparisons
        ),
    )
    listed = {row.measure for row in listed_comparisons(alone)}
    every = {row.measure for row in report.comparisons}
    assert listed == every - {"vmstat_numa_pages_migrated"}


def test_cells_of_different_variants_have_tables_of_their_own() -> None:
    """A study's `exclude` takes a variant out of one cell: its figures fit below no other's."""
    whole = sample_report()
    part = replace(
        whole,
        cell="ring-4, other",
        variants=(whole.variants[0],),
        comparisons=tuple(
            replace(row, summaries=row.summaries[:1], changes=row.changes[:1], versus=())
            for row in whole.comparisons
        ),
    )
    assert alike([part, whole, part]) == [[part, part], [whole]]
    study = StudyResults.of(part, whole)
    assert render_changelog(study).count("Machine:") == 2
    assert render_mmtests(study).count(" -- ") == 2
    table = render_threads(StudyResults.of(whole)).partition("\n\n")[2]
    assert table in render_threads(study)
