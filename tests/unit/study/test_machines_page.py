"""docs/results/machines.md says what the stored runs of published machines measured."""

import pytest

from numalab.places import project_dir
from numalab.results.layout import Results
from numalab.results.reader import StoredRun, load_runs
from numalab.study.plan import plan_study
from numalab.topology.load import list_topologies, load_topology
from numalab.topology.topology import Topology
from support.machines_page import EXAMPLE, PAGE, measured_machines, render, value

STUDY = project_dir() / "studies/published-machines.toml"
RUNS = load_runs(Results(EXAMPLE))[1]
MACHINES = list(measured_machines(RUNS))


def test_the_page_is_what_the_stored_results_say(request: pytest.FixtureRequest) -> None:
    page = PAGE.read_text(encoding="utf-8")
    rendered = render(page)
    if request.config.getoption("--regenerate"):
        PAGE.write_text(rendered, encoding="utf-8")
    assert rendered == PAGE.read_text(encoding="utf-8")


@pytest.mark.parametrize(("topology", "run"), MACHINES, ids=lambda part: getattr(part, "name", ""))
def test_a_chase_takes_what_the_file_says(topology: Topology, run: StoredRun) -> None:
    assert run.manifest.memory is not None
    latency = run.manifest.memory.latency_ns
    pairs = [
        (near, far)
        for near, node in enumerate(topology.nodes)
        for far in range(len(topology.nodes))
        if node.cpus
    ]
    for near, far in pairs:
        measured = value(run, f"chase_ns_{near}-{far}")
        assert latency[near][far] <= measured <= 1.03 * latency[near][far], (near, far)


def test_every_machine_with_published_figures_was_measured() -> None:
    published = {name for name in list_topologies() if load_topology(name).published}
    assert {topology.name for topology, _ in MACHINES} == published


def test_each_machine_has_a_preset_of_its_name() -> None:
    for topology, _ in MACHINES:
        assert set(plan_study(STUDY, topology.name).topologies) == {topology.name}
