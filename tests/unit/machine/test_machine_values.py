"""Machine, Job, command line, placement and memory layout: values that refuse nonsense."""

import os
import shlex
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from numalab.errors import HostError, UserError
from numalab.machine.memory import (
    HeldMemory,
    Region,
    check_addressable,
    hold_memory,
    trace_region,
    unwanted_regions,
)
from numalab.machine.model import Job, Machine, PageKind, usual_shift, with_memory_first
from numalab.qemu.cmdline import render_cmdline
from numalab.qemu.jobdisk import render_job
from numalab.topology.load import load_topology, load_topology_file
from numalab.topology.predict.prediction import predict
from numalab.topology.topology import CpuShape, Node, Topology

BOOTS = Path(__file__).parents[2] / "data" / "topology" / "boots"
TOPOLOGIES = Path(__file__).parents[3] / "topologies"
RING = load_topology("ring-4")
MIB = 1 << 20


def with_memory(*mib: int) -> Machine:
    nodes = tuple(Node(i, (i,), size) for i, size in enumerate(mib))
    topology = replace(RING, nodes=nodes)
    return Machine(topology, Path("/k"), Path("/r"), "tcg", 1, "m")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"mode": "xen"}, "unknown mode 'xen' (valid: kvm, tcg, icount, timed)"),
        ({"name": "../x"}, "an invalid name for a machine"),
        ({"seed": -1}, "not a number from 0"),
        ({"icount_shift": 11}, "not a number from 0 to 10"),
    ],
)
def test_a_machine_refuses(change: dict[str, object], message: str) -> None:
    machine = Machine(RING, Path("/k"), Path("/r"), "tcg", 1, "m")
    with pytest.raises(UserError) as caught:
        replace(machine, **change)  # type: ignore[arg-type]
    assert message in str(caught.value)


@pytest.mark.parametrize("path", sorted(TOPOLOGIES.glob("*.toml")), ids=lambda path: path.stem)
def test_an_instruction_takes_8_ns_on_every_machine_of_the_project(path: Path) -> None:
    assert usual_shift("icount", load_topology_file(path)) == 3


@pytest.mark.parametrize(
    ("shape", "nodes", "cpus", "shift"),
    [
        ("full", 32, 2, 3),
        ("ring", 32, 2, 3),
        ("full", 64, 2, 2),
        ("ring", 64, 2, 1),
        ("full", 62, 4, 1),
        ("ring", 62, 4, 0),
    ],
)
def test_instructions_take_less_time_where_ticks_would_fill_the_guest(
    tmp_path: Path, shape: str, nodes: int, cpus: int, shift: int
) -> None:
    hops = 1 if shape == "full" else nodes // 2
    distances = [10 + 5 * hop for hop in range(hops + 1)]
    path = tmp_path / "large.toml"
    path.write_text(
        f'summary = "large"\nnodes = {nodes}\ncpus = {cpus}\nmemory_mib = 64\n'
        f'[shape]\nkind = "{shape}"\ndistances = {distances}\n'
    )
    topology = load_topology_file(path)
    machine = Machine(topology, Path("/k"), Path("/r"), "icount", 1, "m")
    assert machine.shift == shift
    assert replace(machine, icount_shift=3).shift == 3
    assert replace(machine, mode="timed").shift == 2


@pytest.mark.parametrize(
    ("job", "message"),
    [
        ({"argv": ()}, "no command"),
        ({"argv": ("a\0b",)}, "a NUL in"),
        ({"argv": ("a",), "env": {"A-B": "x"}}, "environment variable"),
        ({"argv": ("a",), "tunables": {"/etc/passwd": "x"}}, "below /proc/sys"),
        ({"argv": ("a",), "tunables": {"/proc/sys/../x": "x"}}, "below /proc/sys"),
        ({"argv": ("a",), "tunables": {"/proc/sys/a": " "}}, "not one line"),
        ({"argv": ("a",), "events": ("sched:",)}, "system:event"),
        ({"argv": ("a",), "events": ("a:b\nc:d",)}, "system:event"),
        ({"argv": ("a",), "clock": "mono; reboot"}, "trace clock"),
        ({"argv": ("a",), "files": {"../x": b""}}, "relative file name"),
        ({"argv": ("a",), "files": {"/x": b""}}, "relative file name"),
    ],
)
def test_a_job_refuses(job: dict[str, object], message: str) -> None:
    with pytest.raises(UserError) as caught:
        Job(**job)  # type: ignore[arg-type]
    assert message in str(caught.value)


words = st.text(st.characters(exclude_characters="\0", codec="utf-8"))


@given(st.lists(words, min_size=1).map(tuple), words)
def test_a_shell_reads_the_job_back_as_it_was(argv: tuple[str, ...], value: str) -> None:
    files = render_job(Job(argv, env={"A": value}), "lab", 1)
    assert tuple(shlex.split(files["argv"].decode())) == ("set", "--", *argv)
    assert shlex.split(files["env"].decode()) == [f"A={value}"]


def test_the_job_is_flat_files() -> None:
    job = Job(("a", "b c"), events=("sched:x\tpid == 1",), tunables={"/proc/sys/k": "1 2"})
    files = render_job(replace(job, files={"d/e": b"\0"}), "", 7)
    assert files["argv"] == b"set -- a 'b c'\n"
    assert files["events"] == b"sched:x\tpid == 1\n"
    assert files["tunables"] == b"/proc/sys/k 1 2\n"
    assert files["trace_instance"] == b""
    assert files["seed"] == b"7\n"
    assert files["files/d/e"] == b"\0"


def test_the_command_line() -> None:
    region = Region(0x10000000, 32 * MIB)
    line = render_cmdline(region, mode="icount", extra=("quiet", "foo=1"))
    assert (
        " memmap=0x2000000$0x10000000 trace_instance=lab@0x10000000:0x2000000 quiet foo=1" in line
    )
    assert "tsc=reliable" in line
    assert "tsc=reliable" not in render_cmdline(None, mode="kvm")
    assert "tsc=reliable" not in render_cmdline(None, mode="tcg")
    assert "memmap" not in render_cmdline(None, mode="kvm")


@pytest.mark.parametrize(
    ("release", "modular", "has", "lacks"),
    [
        ("", False, {"sched_verbose"}, {"mitigations=off", "nokaslr"}),
        ("6.12.117", False, {"sched_verbose"}, {"mitigations=off", "nokaslr"}),
        ("6.1.0-56-amd64", True, {"sched_verbose", "mitigations=off", "nokaslr"}, {"sched_debug"}),
        ("6.12.1+deb", True, {"mitigations=off", "nokaslr"}, {"sched_debug"}),
        ("5.10.223", False, {"sched_debug", "mitigations=off"}, {"sched_verbose", "nokaslr"}),
        ("5.4.0", False, {"rootfstype=erofs"}, {"rootfstype=ext4"}),
        ("4.12.0", False, {"rootfstype=ext4", "sched_debug"}, {"rootfstype=erofs"}),
        ("v5", False, {"sched_verbose", "rootfstype=erofs"}, {"sched_debug"}),
    ],
)
def test_words_that_not_every_kernel_has(
    release: str, modular: bool, has: set[str], lacks: set[str]
) -> None:
    words = set(render_cmdline(None, mode="kvm", release=release, modular=modular).split())
    assert has <= words
    assert not lacks & words


@pytest.mark.parametrize("extra", [("a b",), ("",), ("x\n",), ("y" * 2048,)])
def test_the_command_line_refuses(extra: tuple[str, ...]) -> None:
    with pytest.raises(UserError):
        render_cmdline(None, mode="kvm", extra=extra)


@pytest.mark.parametrize(
    ("pages", "mib", "message"),
    [
        ("4MiB", 512, "unknown page size '4MiB' (valid: memfd, anonymous, 2M, 1G)"),
        ("2M", 511, "node 0 has 511 MiB, no multiple of 2M"),
        ("1G", 1536, "node 0 has 1536 MiB, no multiple of 1G"),
    ],
)
def test_memory_is_whole_pages(pages: PageKind, mib: int, message: str) -> None:
    with pytest.raises(UserError) as caught:
        replace(with_memory(mib, mib), pages=pages)
    assert message in str(caught.value)


def test_a_node_without_memory_is_no_whole_page() -> None:
    machine = with_memory(1024, 0)
    message = "pages: node 1 has no memory, for which QEMU holds 128 MiB, no multiple of 1G"
    with pytest.raises(UserError, match=message):
        replace(machine, pages="1G")
    assert replace(machine, pages="2M").huge


def test_the_trace_region_lies_in_node_0_below_the_firmwares_tables() -> None:
    machine = with_memory(512, 512)
    assert trace_region(machine.topology, 32) == Region((512 - 16 - 32) * MIB, 32 * MIB)
    assert trace_region(machine.topology, 0) is None
    large = with_memory(8192)
    assert trace_region(large.topology, 32) == Region((2048 - 16 - 32) * MIB, 32 * MIB)


def test_too_little_memory_for_a_trace_is_refused() -> None:
    with pytest.raises(UserError, match="too little to reserve 32 MiB"):
        trace_region(with_memory(160, 512).topology, 32)


def test_more_memory_than_an_emulated_cpu_addresses_is_refused() -> None:
    check_addressable(with_memory(960 << 10).topology)
    with pytest.raises(UserError, match=r"memory_mib: 983168 MiB in all; .* at most 983040"):
        check_addressable(with_memory(960 << 10, 0).topology)


def test_a_node_without_memory_gives_its_own_away() -> None:
    assert unwanted_regions(with_memory(512, 0, 512, 0).topology) == (
        Region(512 * MIB, 128 * MIB),
        Region(1152 * MIB, 128 * MIB),
    )
    # A node whose memory lies on both sides of the hole, which begins at 2 GiB here.
    assert unwanted_regions(with_memory(2000, 0, 1024).topology) == (
        Region(2000 * MIB, 48 * MIB),
        Region(4096 * MIB, 80 * MIB),
    )
    # Past 2.75 GiB q35 keeps 2 GiB below 4 GiB and the rest above.
    assert unwanted_regions(with_memory(4096, 0).topology) == (
        Region((4096 + 2048) * MIB, 128 * MIB),
    )


def test_a_node_with_memory_is_qemus_first() -> None:
    """The kernel lies at address 0, and numbers nodes by their CPUs whatever QEMU calls them."""
    topology = load_topology(BOOTS / "memoryless0.toml")
    asked = replace(with_memory(1, 1), topology=topology, host_nodes=(3, 2, 1, 0))
    machine = with_memory_first(asked)
    assert [node.memory_mib for node in machine.topology.nodes] == [512, 0, 384, 512]
    assert [node.cpus for node in machine.topology.nodes] == [(2, 3), (0, 1), (4, 5), ()]
    assert machine.topology.distances[1] == (15, 10, 20, 30)
    assert machine.host_nodes == (2, 3, 1, 0)
    assert predict(machine.topology).cpus == predict(topology).cpus
    assert with_memory_first(machine) is machine


def test_saved_memory_keeps_its_holes(tmp_path: Path) -> None:
    path = tmp_path / "memory"
    with path.open("wb") as file:
        file.truncate(64 * MIB)
        file.seek(33 * MIB)
        file.write(b"trace")
    memory = HeldMemory((os.open(path, os.O_RDONLY),))
    memory.save(Region(32 * MIB, 16 * MIB), tmp_path / "saved")
    assert (tmp_path / "saved").stat().st_mode & 0o777 == 0o600
    memory.close()
    saved = tmp_path / "saved"
    assert saved.stat().st_size == 16 * MIB
    assert saved.read_bytes()[MIB : MIB + 5] == b"trace"
    assert saved.stat().st_blocks * 512 < 8 * MIB


def test_only_memory_of_the_expected_shape_is_held() -> None:
    with pytest.raises(HostError, match=r"sizes \[\], not \[4096\]"):
        hold_memory(os.getpid(), [4096])


def machine_of(topology: Topology) -> Machine:
    return Machine(topology, Path("/k"), Path("/r"), "kvm", 1, "m")


def wide(shape: CpuShape) -> Topology:
    """One node per socket."""
    cpus = shape.cpus // shape.sockets
    nodes = tuple(
        Node(socket, tuple(range(socket * cpus, (socket + 1) * cpus)), 512)
        for socket in range(shape.sockets)
    )
    row = (10,) * shape.sockets
    return Topology("wide", "", "", nodes, (row,) * shape.sockets, shape)


@pytest.mark.parametrize(
    ("shape", "last"),
    [
        (CpuShape(2, 1, 128, 1), 255),
        # Five cores need three bits, so the sockets' ids are eight apart: fewer CPUs than ids.
        (CpuShape(33, 1, 5, 1), 260),
        (CpuShape(4, 2, 8, 2), None),
        (CpuShape(5, 1, 51, 1), 306),
        (CpuShape(15, 1, 17, 1), 464),
    ],
)
def test_more_cpus_than_a_guest_can_have(shape: CpuShape, last: int | None) -> None:
    if last is None:
        assert machine_of(wide(shape)).topology.cpu_count == shape.cpus
        return
    with pytest.raises(UserError) as caught:
        machine_of(wide(shape))
    assert f"cpus: wide has {shape.cpus} CPUs, the last with APIC id {last}" in str(caught.value)
    assert "remapping ends at 254" in str(caught.value)


def test_a_placement_by_hand_is_one_number_for_each() -> None:
    machine = machine_of(load_topology("ring-2"))
    assert replace(machine, vcpu_cpus=(0, 0, 1, 1), host_nodes=(0, 0)).host_nodes == (0, 0)
    with pytest.raises(UserError, match="vcpu_cpus: 3 host CPUs for 4 vCPUs"):
        replace(machine, vcpu_cpus=(0, 0, 1))
    with pytest.raises(UserError, match="nodes: 1 host nodes for 2 guest nodes"):
        replace(machine, host_nodes=(0,))
