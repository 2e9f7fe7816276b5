"""mmtests' tables: the figures of two changelogs, and the sample study."""

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from numalab.analysis.measures.numa_balancing import (
    autonuma_cost,
    local_percent,
)
from numalab.measure import Direction
from numalab.report.document import StudyResults
from numalab.report.formats.mmtests import (
    PERCENTILE,
    MmtestsRow,
    numa_lines,
    page_range_updates,
    render_mmtests,
    table_of_operations,
    table_of_values,
)
from numalab.report.tables import gain_percent
from numalab.statistics.summary import Summary
from support.report_sample import hostile_report, sample_report, thread_cells

DATA = Path(__file__).parents[2] / "data" / "report"
VALUE = re.compile(r"(-?\d+\.\d\d) ([(*]) *(-?\d+\.\d\d)%[)*]?")
HALF = 0.005  # the most by which a figure with two decimals differs from what it stands for

# By how much a percentage made of the rounded figures that a changelog prints differs from the
# percentage there, which was made of the figures themselves. Only small figures do: of a standard
# deviation of 4.12, the rounding alone is 0.12 %. All others come out to the last digit. The key is
# statistic, operation and column.
ROUNDED_2015 = {
    ("Stddev", "real-fsmark", 1): -0.33,
    ("Stddev", "real-fsmark", 2): -0.21,
    ("Stddev", "real-fsmark", 3): -0.1,
    ("Stddev", "real-fsmark", 4): -0.12,
    ("Stddev", "syst-fsmark", 1): -0.8,
    ("Stddev", "syst-fsmark", 2): 0.04,
    ("Stddev", "syst-fsmark", 3): -0.65,
    ("Stddev", "syst-fsmark", 4): -0.45,
    ("Stddev", "real-xfsrepair", 1): 0.02,
    ("Stddev", "real-xfsrepair", 2): 0.06,
    ("Stddev", "real-xfsrepair", 3): -0.03,
    ("Stddev", "real-xfsrepair", 4): -0.07,
    ("Stddev", "syst-xfsrepair", 1): 0.31,
    ("Stddev", "syst-xfsrepair", 2): 0.28,
    ("Stddev", "syst-xfsrepair", 3): -0.14,
    ("Stddev", "syst-xfsrepair", 4): 0.05,
    ("CoeffVar", "real-fsmark", 1): 1.87,
    ("CoeffVar", "real-fsmark", 2): 0.05,
    ("CoeffVar", "real-fsmark", 3): 0.25,
    ("CoeffVar", "real-fsmark", 4): 0.67,
    ("CoeffVar", "syst-fsmark", 1): -50.92,
    ("CoeffVar", "syst-fsmark", 2): -2.12,
    ("CoeffVar", "syst-fsmark", 3): -40.11,
    ("CoeffVar", "syst-fsmark", 4): -37.89,
    ("CoeffVar", "real-xfsrepair", 1): -0.03,
    ("CoeffVar", "real-xfsrepair", 2): 0.06,
    ("CoeffVar", "real-xfsrepair", 3): 0.06,
    ("CoeffVar", "real-xfsrepair", 4): -0.22,
    ("CoeffVar", "syst-xfsrepair", 1): 0.1,
    ("CoeffVar", "syst-xfsrepair", 2): -0.26,
    ("CoeffVar", "syst-xfsrepair", 3): 0.28,
    ("CoeffVar", "syst-xfsrepair", 4): -0.24,
}
ROUNDED_2020 = {
    ("Stddev", "64", 1): -0.05,
    ("Stddev", "128", 1): 0.14,
    ("Stddev", "256", 1): 0.02,
    ("Stddev", "3312", 1): 0.01,
}


def seed(name: str) -> tuple[list[str], list[str]]:
    """Return the lines with percentages, and those without."""
    _, rows, counters = (DATA / name).read_text("utf-8").strip("\n").split("\n\n")
    return rows.splitlines(), counters.splitlines()


def parsed(line: str) -> tuple[MmtestsRow, list[float]]:
    """Return a printed line as a row, and the percentages that it prints."""
    statistic, operation, _ = line.split(maxsplit=2)
    cells = VALUE.findall(line)
    way: Direction = Direction.HIGHER if statistic == "Hmean" else Direction.LOWER
    values = tuple(float(value) for value, _, _ in cells)
    starred = tuple(mark == "*" for _, mark, _ in cells)
    return MmtestsRow(statistic, operation, values, way, starred), [float(p) for _, _, p in cells]


def differences(lines: list[str]) -> dict[tuple[str, str, int], float]:
    """Return by how much our percentages differ from those printed, where they do.

    Fails where rounding the figures they are made of does not explain a difference.
    """
    worst = {}
    for line in lines:
        row, printed = parsed(line)
        base = row.values[0]
        assert base is not None
        for place, (value, theirs) in enumerate(zip(row.values, printed, strict=True)):
            ours = gain_percent(base, value, row.direction)
            assert ours is not None
            assert value is not None
            if f"{ours:.2f}" == f"{theirs:.2f}":
                continue
            assert place > 0
            worst[row.statistic, row.operation, place] = round(round(ours, 2) - theirs, 2)
            ends = [gain_percent(b, v, row.direction) for b in (base - HALF, base + HALF)
                    for v in (value - HALF, value + HALF)]  # fmt: skip
            finite = [end for end in ends if end is not None]
            assert min(finite) - HALF <= theirs <= max(finite) + HALF, line
    return worst


def test_percentages_of_2015_come_out_as_printed_or_differ_by_the_rounding() -> None:
    assert differences(seed("mmtests-2015.txt")[0]) == ROUNDED_2015


def test_percentages_of_2020_come_out_as_printed_or_differ_by_the_rounding() -> None:
    assert differences(seed("mmtests-2020.txt")[0]) == ROUNDED_2020


def test_lines_of_2020_come_out_as_printed() -> None:
    """Byte for byte but the gap after the statistic: wider rows were cut from the changelog."""
    lines = seed("mmtests-2020.txt")[0]
    cut = MmtestsRow("Lat", "99.90th-qrtle-99", (1.0, 1.0), Direction.LOWER, (False, False))
    hmeans = [line for line in lines if "Lat" not in line]
    latencies = [line for line in lines if "Lat" in line]
    for block, more in ((hmeans, []), (latencies, [cut])):
        rows = [*(parsed(line)[0] for line in block), *more]
        ours = table_of_values(["baseline", "lbnuma-v3"], rows)[1:]
        for row, line, theirs in zip(rows, ours, block, strict=False):
            # One line lost its last bracket on its way into the changelog.
            whole = theirs if theirs.endswith(("*", ")")) else f"{theirs})"
            if (row.statistic, row.operation, 1) not in ROUNDED_2020:
                assert re.sub(r"^ (\S+) +", r" \1 ", line) == re.sub(r"^ (\S+) +", r" \1 ", whole)


def test_lines_of_2015_come_out_as_printed() -> None:
    """They have one column less for a percentage; all else is the same."""
    for theirs in seed("mmtests-2015.txt")[0]:
        row, _ = parsed(theirs)
        if (row.statistic, row.operation, 1) in ROUNDED_2015:
            continue
        ours = table_of_values(["a", "b", "c", "d", "e"], [row])[1]
        assert re.sub(r"\( *", "(", ours).split() == re.sub(r"\( *", "(", theirs).split()


def test_the_coefficient_of_variation_of_2015_is_that_of_its_mean_and_deviation() -> None:
    table = {
        (row.statistic, row.operation): row.values
        for row, _ in map(parsed, seed("mmtests-2015.txt")[0])
    }
    for (statistic, operation), values in table.items():
        if statistic != "CoeffVar":
            continue
        for place, printed in enumerate(values):
            mean, stddev = (table[name, operation][place] for name in ("Amean", "Stddev"))
            assert mean is not None
            assert stddev is not None
            assert printed == pytest.approx(
                100 * stddev / mean, abs=HALF + 100 * HALF / mean + 1e-9
            )


def counters_2015() -> list[dict[str, float]]:
    names = {
        "NUMA alloc hit": "numa_hit",
        "NUMA alloc miss": "numa_miss",
        "NUMA interleave hit": "numa_interleave",
        "NUMA alloc local": "numa_local",
        "NUMA base PTE updates": "numa_pte_updates",
        "NUMA huge PMD updates": "numa_huge_pte_updates",
        "NUMA page range updates": "range",
        "NUMA hint faults": "numa_hint_faults",
        "NUMA hint local faults": "numa_hint_faults_local",
        "NUMA hint local percent": "percent",
        "NUMA pages migrated": "numa_pages_migrated",
        "AutoNUMA cost": "cost",
    }
    table = {}
    for line in seed("mmtests-2015.txt")[1]:
        label, *values = re.split(r"\s{2,}", line.strip())
        table[names[label]] = [float(value.rstrip("%")) for value in values]
    return [{name: values[place] for name, values in table.items()} for place in range(5)]


def test_the_derived_counters_of_2015_come_out_as_printed() -> None:
    """mmtests of that year cut the decimals off, and printed the cost with a percent sign."""
    for column in counters_2015():
        assert page_range_updates(column) == column["range"]
        assert int(local_percent(column) or 0) == column["percent"]
        assert int(autonuma_cost(column) or 0) == column["cost"]


def test_the_counters_of_2020_come_out_as_printed() -> None:
    theirs = seed("mmtests-2020.txt")[1]
    printed = {line[4:].rsplit(maxsplit=2)[0].strip(): line.split()[-2:] for line in theirs}
    names = {
        "numa_pte_updates": "Ops NUMA PTE updates",
        "numa_huge_pte_updates": "Ops NUMA PMD updates",
        "numa_hint_faults": "Ops NUMA hint faults",
        "numa_hint_faults_local": "Ops NUMA hint local faults %",
        "numa_pages_migrated": "Ops NUMA pages migrated",
    }
    sides = [
        dict(
            numa_lines(
                {n: float(printed[label.removeprefix("Ops ")][side]) for n, label in names.items()}
            )
        )
        for side in (0, 1)
    ]
    lines = [(label, [sides[0][label], sides[1][label]]) for label in printed]
    assert table_of_operations(["baseline", "lbnuma-v3"], lines)[1:] == theirs


def test_faults_are_minor_and_major() -> None:
    lines = dict(numa_lines({"pgfault": 3744.0, "pgmajfault": 47.0}))
    assert (lines["Minor Faults"], lines["Major Faults"]) == (3697, 47)
    assert dict(numa_lines({"pgfault": 3744.0}))["Minor Faults"] is None


def test_a_counter_that_is_missing_is_not_0() -> None:
    lines = dict(numa_lines({"numa_hint_faults": 0.0, "numa_hint_faults_local": 0.0}))
    assert lines["NUMA hint faults"] == 0
    assert lines["NUMA hint local percent"] is None
    assert lines["NUMA base-page range updates"] is None
    assert lines["AutoNUMA cost"] is None


def test_a_base_of_0_has_no_percentage() -> None:
    rows = [
        MmtestsRow("Amean", "x", (0.0, 3.0, 0.0, None), Direction.LOWER, (False,) * 4),
        MmtestsRow("Amean", "y", (None, 3.0, 457.82, 457.80), Direction.LOWER, (False,) * 4),
    ]
    _, x, y = table_of_values(["a", "b", "c", "d"], rows)
    assert x.split("Amean")[1].split(maxsplit=1)[1] == (
        "0.00 (   0.00%)        3.00 (  from 0)        0.00 (   0.00%)         n/s           "
    )
    assert "3.00 ( no base)" in y


def test_a_loss_too_small_to_see_keeps_its_sign_as_in_2015() -> None:
    (line,) = table_of_values(
        ["a", "b"], [MmtestsRow("Max", "x", (457.80, 457.82), Direction.LOWER, (False, False))]
    )[1:]
    assert line.endswith("457.82 (  -0.00%)")


def test_rates_have_a_harmonic_mean_unless_one_is_0() -> None:
    report = sample_report()
    name = "idle_while_overloaded"
    measures = tuple(
        replace(m, direction=Direction.HIGHER) if m.name == name else m for m in report.measures
    )
    text = render_mmtests(StudyResults.of(replace(report, measures=measures)))
    # 3 / (1/0.72 + 1/0.94 + 1/1.21) = 0.915; the arithmetic mean is 0.957.
    assert re.search(rf"Hmean +{name} \[%\] +99\.83 \( +0\.00%\) +0\.91 \*", text)
    assert "Amean" in render_mmtests(StudyResults.of(report))


def test_what_was_measured_as_0_has_no_variation_and_one_run_no_spread() -> None:
    report = sample_report()
    (row, *rest) = report.comparisons
    none = Summary(3, 0.0, 0.0, 0.0, 0.0)
    zero = replace(row, summaries=(none, none))
    text = render_mmtests(StudyResults.of(replace(report, comparisons=(zero, *rest))))
    line = next(line for line in text.splitlines() if line.startswith(f" CoeffVar {row.measure}"))
    assert line.split()[3:] == ["0.00", "(", "0.00%)"] * 2
    single = replace(row, summaries=(replace(none, n=1, stddev=None),) * 2)
    text = render_mmtests(StudyResults.of(replace(report, comparisons=(single,))))
    assert "n/s: one run has no spread; it is not 0" in text


def test_the_sample_study(golden: Callable[[str, str], None]) -> None:
    golden("report/mmtests.txt", render_mmtests(StudyResults.of(sample_report())))


def test_a_study_of_several_cells(golden: Callable[[str, str], None]) -> None:
    golden("report/cells-mmtests.txt", render_mmtests(StudyResults.of(*thread_cells())))


def test_hostile_texts_stay_plain_ascii() -> None:
    text = render_mmtests(StudyResults.of(hostile_report()))
    assert all(" " <= char <= "~" or char == "\n" for char in text)


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("latency_p50", ("50", None)),
        ("latency_p50_1", ("50", "1")),
        ("latency_p99_5", ("99_5", None)),
        ("latency_p99_9_16", ("99_9", "16")),
        ("latency_p99_16", ("99", "16")),
    ],
)
def test_percentiles_and_their_loads_are_told_apart(name: str, shown: tuple[str, str]) -> None:
    match = PERCENTILE.fullmatch(name)
    assert match is not None
    assert (match["percent"], match["label"]) == shown
    assert PERCENTILE.fullmatch("tcp_stream_64") is None


def test_percentiles_of_several_metrics_have_their_names() -> None:
    report = thread_cells()[0]
    info = report.measure("wakeup_p99_5")
    assert re.search(r"^ Lat +99.50th-qrtle ", render_mmtests(StudyResults.of(report)), re.M)
    row = next(row for row in report.comparisons if row.measure == info.name)
    report = replace(
        report,
        measures=(*report.measures, replace(info, name="read_p99_5")),
        comparisons=(*report.comparisons, replace(row, measure="read_p99_5")),
    )
    text = render_mmtests(StudyResults.of(report))
    assert re.findall(r"^ Lat +(\S+)", text, re.M) == ["wakeup-99.50th-qrtle", "read-99.50th-qrtle"]
