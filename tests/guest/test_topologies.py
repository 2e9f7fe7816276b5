"""Every shipped machine, booted: what its kernel says is what was predicted."""

import dataclasses
from pathlib import Path

import pytest

from numalab.campaign.check import check_topology
from numalab.kernel.kernel_build import ensure_kernel
from numalab.kernel.patched_kernel import find_kernel
from numalab.results.guest_output import read_guest_view
from numalab.topology.importers.numactl import parse_numactl
from numalab.topology.load import list_topologies, load_topology
from numalab.topology.predict.prediction import predict
from support.guest_types import Boot, MakeMachine

ODD = Path(__file__).parents[1] / "data" / "topology" / "boots"
SHOW = "debian-6.12-show-predicted"
UNDO = "debian-6.12-undo-group-construction"


def agrees(boot: Boot, make_machine: MakeMachine, topology: str, kernel: str) -> None:
    """Boot `topology` on `kernel` and compare all that the guest says with the prediction."""
    spec = find_kernel(kernel)
    machine = dataclasses.replace(make_machine(topology), bzimage=ensure_kernel(spec).bzimage)
    outcome, run_dir = boot("true", machine=machine)
    assert outcome.status == 0
    differences = check_topology(
        machine.topology,
        spec,
        read_guest_view(run_dir),
        reserved_mib=machine.trace_memory_mib,
        allow=True,
    )
    assert not differences, "\n".join(map(str, differences))


@pytest.mark.parametrize("name", list_topologies())
def test_a_shipped_machine(boot: Boot, make_machine: MakeMachine, name: str) -> None:
    agrees(boot, make_machine, name, "debian-6.12")


@pytest.mark.parametrize("name", ["ring-4", "mesh-8", "opteron-8", "line-4"])
def test_the_old_group_construction(boot: Boot, make_machine: MakeMachine, name: str) -> None:
    agrees(boot, make_machine, name, UNDO)


@pytest.mark.timeout(1800)  # where the kernel is not built yet
@pytest.mark.parametrize("name", ["mesh-8", "backplane-8", "pairs-4", "epyc-nps4"])
def test_the_type_and_the_allowed_imbalance(
    boot: Boot, make_machine: MakeMachine, name: str
) -> None:
    """What only the kernel's memory shows, printed by one that has three more lines."""
    agrees(boot, make_machine, name, SHOW)


@pytest.mark.parametrize("name", ["uneven", "cpuless1", "swap", "snc"])
def test_an_odd_machine(boot: Boot, make_machine: MakeMachine, name: str) -> None:
    agrees(boot, make_machine, str(ODD / f"{name}.toml"), "debian-6.12")


def test_what_the_guests_numactl_prints_imports(boot: Boot, make_machine: MakeMachine) -> None:
    """The table of Srikar Dronamraju's 4-node machine comes back out of a guest."""
    outcome, run_dir = boot("numactl", "-H", machine=make_machine("pairs-4"))
    assert outcome.status == 0
    printed = run_dir.stdout.read_text()
    imported = parse_numactl(printed, name="pairs-4", source="", file="stdout").topology
    shipped = load_topology("pairs-4")
    assert imported.distances == shipped.distances
    assert [node.cpus for node in imported.nodes] == [node.cpus for node in shipped.nodes]
    assert imported.cpu_shape == shipped.cpu_shape
    assert predict(imported).cpus == predict(shipped).cpus
