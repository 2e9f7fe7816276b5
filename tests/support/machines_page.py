"""docs/results/machines.md: its tables are made from the stored runs of published machines."""

import re
import tomllib
from collections.abc import Iterator, Mapping
from itertools import pairwise

from numalab.places import project_dir
from numalab.report.build.modelled import measured_lines
from numalab.results.layout import Results
from numalab.results.reader import StoredRun, load_runs
from numalab.topology.load import load_topology
from numalab.topology.topology import Topology

PAGE = project_dir() / "docs/results/machines.md"
EXAMPLE = project_dir() / "reports/examples/published-machines"
UNDER_LOAD = project_dir() / "tests/data/timed/published-under-load.toml"
_TABLE = re.compile(r"(<!-- machines: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
_WORST = re.compile(r"a (chase|copy by one|copy by all)\b.*; largest difference (\S+ %)$")
_PAIRS = (
    "| machine | published | nearest, ns | farthest, ns | chase | copy, one thread | all threads | "
    "far / near bandwidth |\n|---|---|---|---|---|---|---|---|"
)
_LOAD = (
    "| machine | share of the most bandwidth: times the idle latency, published / here |\n|---|---|"
)


def render(page: str) -> str:
    """Return the page with its tables between `<!-- machines: NAME -->` and `<!-- end -->`."""
    runs = load_runs(Results(EXAMPLE))[1]
    tables = {"pairs": [_PAIRS, *_pairs(runs)], "load": [_LOAD, *_under_load(runs)]}
    return _TABLE.sub(
        lambda match: "\n".join([match[1] + "\n".join(tables[match[2]]), match[3]]), page
    )


def measured_machines(runs: tuple[StoredRun, ...]) -> Iterator[tuple[Topology, StoredRun]]:
    """Return each machine with the run that measured its pairs of nodes."""
    for run in runs:
        if "chase_ns_0-0" in run.measures:
            yield load_topology(run.id.split("_")[0]), run


def value(run: StoredRun, name: str) -> float:
    measured = run.measures[name].value
    assert measured is not None
    return measured


def _pairs(runs: tuple[StoredRun, ...]) -> Iterator[str]:
    for topology, run in measured_machines(runs):
        memory, published = run.manifest.memory, topology.published
        assert memory is not None
        assert published is not None
        worst = {
            match[1]: match[2]
            for line in measured_lines([run], topology)
            if (match := _WORST.match(line))
        }
        latency = {
            (near, far): ns
            for near, row in enumerate(memory.latency_ns)
            for far, ns in enumerate(row)
            if f"chase_ns_{near}-{far}" in run.measures
        }
        cells = [topology.name, f"{', '.join(published.figures)}: {published.date}"]
        for pair in (min(latency, key=latency.__getitem__), max(latency, key=latency.__getitem__)):
            took = value(run, "chase_ns_{}-{}".format(*pair))
            cells.append(f"{latency[pair]} / {took:.1f}")
        cells += [worst.get(what, "") for what in ("chase", "copy by one", "copy by all")]
        far = min(
            (pair for pair in latency if pair[0] == 0),
            key=lambda pair: memory.bandwidth_mb_s[pair[0]][pair[1]],
        )
        rates = [f"copy_rate_all_{near}-{memory_of}" for near, memory_of in ((0, 0), far)]
        of_file = memory.bandwidth_mb_s[0][far[1]] / memory.bandwidth_mb_s[0][0]
        is_given = "bandwidth" in published.figures and all(rate in run.measures for rate in rates)
        cells.append(
            f"{of_file:.2f} / {value(run, rates[1]) / value(run, rates[0]):.2f}" if is_given else ""
        )
        yield f"| {' | '.join(cells)} |"


def _under_load(runs: tuple[StoredRun, ...]) -> Iterator[str]:
    published = tomllib.loads(UNDER_LOAD.read_text(encoding="utf-8"))
    for run in runs:
        machine = run.id.split("_")[0]
        if "idle_ns" in run.measures and machine in published:
            yield f"| {machine} | {_beside(published[machine], run)} |"


def _beside(published: list[list[float]], run: StoredRun) -> str:
    memory = run.manifest.memory
    assert memory is not None
    most, idle = max(rate for rate, _ in published), published[0][1]
    curve = _curve(run, memory.bandwidth_mb_s[0][0])
    texts = []
    for rate, ns in published[1:]:
        here = _at(curve, rate / most)
        texts.append(f"{rate / most:.2f}: {ns / idle:.2f} / {f'{here:.2f}' if here else '-'}")
        if rate == most:
            break
    share, last = max(curve.items())
    return f"{', '.join(texts)}; here at most {share:.2f}: {last:.2f}"


def _curve(run: StoredRun, mb_s: float) -> Mapping[float, float]:
    """Return times the idle latency by share of the bandwidth."""
    names = [name for name in run.measures if name.startswith("loaded_ns_")]
    return {0.0: 1.0} | {
        value(run, name.replace("_ns_", "_rate_")) / mb_s: value(run, name) / value(run, "idle_ns")
        for name in names
    }


def _at(curve: Mapping[float, float], share: float) -> float | None:
    for (low, before), (high, after) in pairwise(sorted(curve.items())):
        if low <= share <= high:
            return before + (after - before) * (share - low) / (high - low)
    return None
