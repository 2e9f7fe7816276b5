"""Guests that differ from the prediction, and guests whose kernel it does not know."""

from pathlib import Path

import pytest

from numalab.campaign.check import check_topology, kernel_remarks
from numalab.errors import TopologyMismatch
from numalab.kernel.patched_kernel import find_kernel
from numalab.results.guest_output import read_guest_view
from numalab.run_dir import RunDir
from numalab.topology.load import load_topology
from numalab.topology.predict.prediction import predict


@pytest.mark.parametrize(("version", "remarks"), [("6.12.117", 0), ("7.3.4", 0), ("8.0.1-x", 1)])
def test_an_unknown_kernel_is_remarked_on_and_compared(
    tmp_path: Path, version: str, remarks: int
) -> None:
    directory = RunDir(tmp_path)
    directory.sysfs.mkdir(parents=True)
    directory.sched_domains.write_text("")
    directory.dmesg.write_text(f"Linux version {version} (x) #1 SMP\n")
    texts = kernel_remarks(read_guest_view(directory), load_topology("ring-4"))
    assert len(texts) == remarks
    assert all("Linux 8.0.1 is not known to numalab" in text for text in texts)
    newest = predict(load_topology("ring-4"), "7.3")
    assert remarks == 0 or predict(load_topology("ring-4"), version).cpus == newest.cpus


@pytest.mark.parametrize(
    ("words", "allowed"),
    [
        ((), False),
        (("quiet",), False),
        (("nosmp",), True),
        (("maxcpus=2",), True),
        (("nr_cpus=256",), False),
        (("maxcpus=8", "possible_cpus=4"), True),
    ],
)
def test_fewer_cpus_on_request_are_no_mismatch(
    tmp_path: Path, words: tuple[str, ...], allowed: bool
) -> None:
    directory = RunDir(tmp_path)
    directory.sysfs.mkdir(parents=True)
    directory.sched_domains.write_text("")
    directory.dmesg.write_text("Linux version 6.12.117 (x) #1 SMP\n")
    view = read_guest_view(directory)
    machine, kernel = load_topology("ring-4"), find_kernel("debian-6.12")
    texts = kernel_remarks(view, machine, words)
    assert [text.partition(":")[0] for text in texts] == [*words[-1:]] * allowed
    if allowed:
        assert not check_topology(machine, kernel, view, reserved_mib=0, allow=False, cmdline=words)
        return
    with pytest.raises(TopologyMismatch, match="ring-4"):
        check_topology(machine, kernel, view, reserved_mib=0, allow=False, cmdline=words)
