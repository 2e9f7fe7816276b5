"""What the model of mode timed is made of, and what was measured beside it, as text."""

from dataclasses import replace

import pytest

from numalab.places import project_dir
from numalab.report.build.modelled import measured_lines, model_lines
from numalab.results.layout import Results
from numalab.results.reader import StoredRun, load_runs
from numalab.topology.load import load_topology

EXAMPLES = project_dir() / "reports" / "examples"
RING = load_topology("ring-4")


def runs_of(example: str) -> tuple[StoredRun, ...]:
    return load_runs(Results(EXAMPLES / example))[1]


def test_the_model_is_that_of_the_manifest() -> None:
    lines = model_lines(runs_of("what-distance-costs")[0].manifest)
    assert lines[0] == "an instruction in 2 ns, each vCPU 10 us before the others catch up"
    assert lines[2:5] == (
        "latency [ns], from a node's CPUs (row) to a node's memory",
        "  node   0   1   2   3",
        "    0:  90 180 270 180",
    )
    assert lines[-1] == "interrupts from CPU to CPU: 1000 to 1180 ns, and up to a quantum"


def test_each_pair_is_beside_what_the_model_says() -> None:
    runs = runs_of("what-distance-costs")
    lines = measured_lines(runs, RING)
    assert len(lines) == 3 * (1 + 1 + 4)
    assert lines[0] == (
        "a chase of pointers [ns], expected / measured: stock, the mean of 3 runs; "
        "largest difference +0.3 %"
    )
    assert lines[2].split(":")[1].split()[:3] == ["90", "/", "90.3"]
    # 128 bytes in two waits of 90 ns and 18 instructions of 2 ns.
    near = sum(run.measures["copy_rate_0-0"].value or 0 for run in runs) / 3
    assert lines[8].split(":")[1].split()[:3] == ["593", "/", f"{near:.1f}"]
    assert lines[12].startswith("a copy by all threads of a node [MB/s], expected / measured:")
    both = sum(run.measures["copy_rate_all_0-2"].value or 0 for run in runs) / 3
    assert lines[14].split(":")[1].split()[6:9] == ["373", "/", f"{both:.1f}"]


def test_nothing_is_expected_of_a_model_that_would_be_another_today() -> None:
    runs = runs_of("what-distance-costs")
    memory = load_topology("ring-4").memory
    other = replace(RING, memory=memory.model_copy(update={"bandwidth_mb_s": 500}))
    lines = measured_lines(runs, other)
    assert lines[0].startswith("a chase of pointers [ns], expected / measured:")
    assert lines[6].startswith("a copy by one thread [MB/s], measured:")
    assert lines[12].startswith("a copy by all threads of a node [MB/s], measured:")


def test_a_pair_that_was_not_measured_is_left_empty() -> None:
    (run, *_) = runs_of("what-distance-costs")
    measures = {name: value for name, value in run.measures.items() if name != "chase_ns_0-1"}
    lines = measured_lines([replace(run, measures=measures)], RING)
    assert lines[0].split(";")[0].endswith("stock, 1 run")
    assert "".join(lines[2].split(":")[1].split()) == "90/90.3270/270.3180/180.3"


def test_a_load_beside_readers_has_a_column_for_each_pause() -> None:
    """The more bandwidth the readers take, the longer a load waits."""
    runs = [run for run in runs_of("published-machines") if "kunpeng-920_loaded" in run.id]
    title, *rows = measured_lines(runs, load_topology("kunpeng-920"))
    idle = runs[0].measures["idle_ns"].value
    assert title == f"a load while other CPUs read, {idle:.1f} ns without: stock, 1 run"
    rates, latencies, times = ([float(text) for text in row.split(":")[1].split()] for row in rows)
    assert len(rates) == len(latencies) == 13
    assert rates == sorted(rates)
    assert times[-1] == pytest.approx(latencies[-1] / (idle or 0), abs=0.01)
    assert times[-1] == max(times) > 1.1


def test_sixteen_nodes_are_six_at_once_and_fit_in_a_terminal() -> None:
    runs = [run for run in runs_of("published-machines") if "ft-2500" in run.id]
    lines = measured_lines(runs, load_topology("ft-2500"))
    heads = [line.split()[1:] for line in lines if line.startswith("  node")]
    assert heads[:3] == [[str(node) for node in part] for part in SIXES]
    assert len(lines) == 2 * (1 + 3 * 17)
    assert max(len(line) for line in lines if line.startswith("  ")) <= 90


SIXES = (range(6), range(6, 12), range(12, 16))


def test_runs_without_pairs_or_without_a_model_have_no_such_lines() -> None:
    assert measured_lines(runs_of("what-balancing-gains"), RING) == ()
    counted = runs_of("group-construction")
    assert measured_lines(counted, RING) == ()
    assert model_lines(counted[0].manifest) == ()
    assert measured_lines([], RING) == ()
