"""The domain XML: golden files, libvirt's own schema, and what must never change by accident."""

import os
import pwd
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from lxml import etree

from numalab.errors import UserError
from numalab.host.privilege import Privilege, privilege, render_privilege
from numalab.host.processes import Owner
from numalab.machine.memory import trace_region, unwanted_regions
from numalab.machine.model import CpuModel, Machine, Mode, PageKind
from numalab.placement.planner import Placement, plan
from numalab.qemu.cmdline import render_cmdline
from numalab.qemu.domain_xml import (
    OWNER_NAMESPACE,
    QEMU_NAMESPACE,
    Drive,
    GuestFiles,
    parse_owner,
    render_domain,
)
from numalab.topology.load import load_topology
from numalab.topology.topology import Interconnect
from support.host_tree import small_host

SCHEMA = Path("/usr/share/libvirt/schemas/domain.rng")


def make_machine(mode: Mode, topology: str = "ring-4") -> Machine:
    return Machine(load_topology(topology), Path("/k/bzImage"), Path("/r.erofs"), mode, 7, "m")


def make_files(mode: Mode = "icount", prefix: str = "/run") -> GuestFiles:
    return GuestFiles(
        Path(f"{prefix}/console.log"),
        Path(f"{prefix}/heartbeat.jsonl"),
        Drive(Path("/r.erofs"), 182 << 20),
        Drive(Path(f"{prefix}/job.img"), 128 << 20),
        Path("/cache/qemu-one-thread") if mode == "tcg" else None,
    )


def render(
    machine: Machine, host_cpus: tuple[int, ...] = (0, 1), files: GuestFiles | None = None
) -> str:
    region = trace_region(machine.topology, machine.trace_memory_mib)
    return render_domain(
        machine,
        plan(machine.topology, small_host(1, 64, 1), machine.mode, host_cpus),
        files or make_files(machine.mode),
        name="m-1",
        cmdline=render_cmdline(
            region,
            mode=machine.mode,
            unwanted=unwanted_regions(machine.topology),
        ),
        owner=Owner(4242, 99),
        privilege=Privilege(own_sandbox=True, run_as=(64055, 64055)),
    )


CASES: dict[str, tuple[str, Mode, tuple[int, ...]]] = {
    "ring-4-tcg": ("ring-4", "tcg", (0, 1)),
    "ring-4-icount": ("ring-4", "icount", (1,)),
    "ring-4-timed": ("ring-4", "timed", (1,)),
    "ring-4-kvm": ("ring-4", "kvm", tuple(range(16))),
    "memoryless-4-tcg": ("memoryless-4", "tcg", (0, 1)),
    "slow-memory-3-icount": ("slow-memory-3", "icount", (0,)),
}


@pytest.mark.parametrize("case", CASES)
def test_golden(case: str, golden: Callable[[str, str], None]) -> None:
    topology, mode, cpus = CASES[case]
    golden(f"machine/{case}.xml", render(make_machine(mode, topology), cpus))


@pytest.mark.parametrize("case", CASES)
def test_valid_against_libvirts_schema(case: str) -> None:
    topology, mode, cpus = CASES[case]
    schema = etree.RelaxNG(etree.parse(SCHEMA))
    document = etree.fromstring(render(make_machine(mode, topology), cpus).encode())
    assert schema.validate(document), schema.error_log


def test_the_schema_can_refuse() -> None:
    schema = etree.RelaxNG(etree.parse(SCHEMA))
    text = render(make_machine("tcg")).replace("<on_crash>preserve", "<on_crash>ignore")
    assert not schema.validate(etree.fromstring(text.encode()))


@pytest.mark.parametrize("model", ["host", "host-no-arch-capabilities", "qemu64"])
def test_kvm_cpu_models(model: CpuModel) -> None:
    domain = ET.fromstring(render(replace(make_machine("kvm"), cpu_model=model)))
    cpu = domain.find("cpu")
    assert cpu is not None
    disabled = [f.get("name") for f in cpu.findall("feature") if f.get("policy") == "disable"]
    assert (cpu.get("mode") == "host-passthrough") == (model != "qemu64")
    assert disabled == (["arch-capabilities"] if model == "host-no-arch-capabilities" else [])


def arguments(text: str) -> list[str]:
    line = ET.fromstring(text).find(f"{{{QEMU_NAMESPACE}}}commandline")
    assert line is not None
    return [arg.get("value", "") for arg in line]


def test_qemus_own_random_numbers_are_those_of_one_seed() -> None:
    icount = arguments(render(make_machine("icount"), (0,)))
    assert icount[icount.index("-seed") + 1] == "1"
    assert icount[icount.index("-icount") + 1] == "shift=3,sleep=off"
    assert "-seed" not in arguments(render(make_machine("tcg")))


def test_the_root_cannot_be_written_by_the_guest() -> None:
    backends = [arg for arg in arguments(render(make_machine("tcg"))) if "mem-path=" in arg]
    assert ["readonly=on" in arg for arg in backends] == [True, False]


def test_no_network_no_graphics_no_usb() -> None:
    devices = ET.fromstring(render(make_machine("icount"))).find("devices")
    assert devices is not None
    assert {device.tag for device in devices} == {
        "controller", "serial", "audio", "memballoon", "panic",
    }  # fmt: skip
    assert [device.get("model") for device in devices.findall("controller")] == ["none"]


def test_a_file_name_that_qemu_would_split_is_refused() -> None:
    with pytest.raises(UserError, match="comma"):
        render(make_machine("tcg"), files=make_files(prefix="/a,readonly=off"))


def test_markup_in_paths_is_escaped() -> None:
    domain = ET.fromstring(render(make_machine("tcg"), files=make_files(prefix="/a<b>&\"'")))
    paths = [source.get("path") for source in domain.findall("devices/serial/source")]
    assert paths[0] == "/a<b>&\"'/console.log"


def test_interconnects_are_told() -> None:
    machine = make_machine("tcg")
    links = (Interconnect(0, 1, 90, 10_000_000), Interconnect(1, 0, None, 5))
    machine = replace(machine, topology=replace(machine.topology, interconnects=links))
    numa = ET.fromstring(render(machine)).find("cpu/numa/interconnects")
    assert numa is not None
    assert [(e.tag, e.get("value")) for e in numa] == [
        ("latency", "90"), ("bandwidth", "9999360"), ("bandwidth", "1024"),  # whole MiB/s
    ]  # fmt: skip


def test_the_owner_can_be_read_back() -> None:
    owner = ET.fromstring(render(make_machine("tcg"))).find(f"metadata/{{{OWNER_NAMESPACE}}}owner")
    assert owner is not None
    assert parse_owner(ET.tostring(owner, encoding="unicode")) == Owner(4242, 99)


@pytest.mark.parametrize("text", ["", "<owner/>", '<owner pid="x" started="1"/>', "<"])
def test_foreign_metadata_is_no_owner(text: str) -> None:
    with pytest.raises(ValueError):
        parse_owner(text)


def test_qemu_gives_up_root_within_its_sandbox() -> None:
    words = arguments(render(make_machine("tcg")))
    assert words[words.index("-runas") + 1] == "64055:64055"
    sandbox = words[words.index("-sandbox") + 1].split(",")
    assert {"on", "obsolete=deny", "spawn=deny", "resourcecontrol=deny"} <= set(sandbox)
    assert "elevateprivileges=allow" in sandbox  # to give up its own; it has none afterwards
    newer = Privilege(own_sandbox=True, run_as=(64055, 64055), runs_with=True)
    assert render_privilege(newer)[2:] == ["-run-with", "user=64055:64055"]  # 10.0 has no -runas
    kept = render_privilege(Privilege(own_sandbox=True))
    assert kept[1].split(",")[2] == "elevateprivileges=deny" and "-runas" not in kept
    assert render_privilege(Privilege(own_sandbox=False, label=(0, 0))) == []


def test_who_qemu_becomes(monkeypatch: pytest.MonkeyPatch) -> None:
    def decided(user: int, capabilities: int, *, embedded: bool = True) -> Privilege:
        monkeypatch.setattr("numalab.host.privilege.os.geteuid", lambda: user)
        monkeypatch.setattr("numalab.host.privilege.effective_capabilities", lambda: capabilities)
        return privilege(embedded=embedded)

    assert decided(1000, 0) == Privilege(own_sandbox=True)
    assert decided(1000, 0, embedded=False) == Privilege(own_sandbox=False)
    assert decided(0, -1, embedded=False).label == (0, os.getegid())
    lacking = ~(1 << 19)  # CAP_SYS_PTRACE: root could not read the proof of another user's process
    assert decided(0, lacking) == Privilege(own_sandbox=True)
    user = pwd.struct_passwd(("libvirt-qemu", "x", 64055, 107, "", "/", "/bin/false"))
    monkeypatch.setattr("numalab.host.privilege.pwd.getpwnam", lambda _: user)
    assert decided(0, -1).run_as == (64055, 64055)
    assert not privilege(embedded=True, version=(9, 0)).runs_with
    assert privilege(embedded=True, version=(10, 0)).runs_with


def test_a_daemon_is_told_as_whom_to_start_qemu() -> None:
    label = render_bound(BOUND, "memfd").find("seclabel[@model='dac']")
    assert label is not None and label.get("relabel") == "no"
    assert label.findtext("label") == "+0:+0"


def test_anonymous_memory_is_nobody_elses() -> None:
    backing = render_bound(BOUND, "anonymous").find("memoryBacking")
    assert backing is not None
    assert backing.find("source[@type='anonymous']") is not None
    assert backing.find("access") is None


def test_a_shell_has_a_terminal_and_its_clock_waits() -> None:
    machine = replace(make_machine("icount"), gdb=Path("/run/gdb"))
    files = replace(make_files(), socket=Path("/run/socket"))
    text = render_domain(
        machine, plan(machine.topology, small_host(1, 64, 1), "icount", (0,)), files,
        name="m", cmdline="x", owner=Owner(1, 2),
        privilege=Privilege(own_sandbox=True),
    )  # fmt: skip
    etree.RelaxNG(etree.parse(SCHEMA)).assertValid(etree.fromstring(text.encode()))
    first, second = ET.fromstring(text).findall("devices/serial")
    assert (first.get("type"), second.get("type")) == ("unix", "file")
    assert first.find("source[@mode='bind'][@path='/run/socket']") is not None
    log = first.find("log")
    assert log is not None and log.get("file") == "/run/console.log"
    words = arguments(text)
    assert words[words.index("-icount") + 1] == "shift=3,sleep=on"
    assert words[words.index("-gdb") + 1] == "unix:/run/gdb,server=on,wait=off"
    with pytest.raises(UserError, match="comma"):
        render(replace(machine, gdb=Path("/a,b")))


BOUND = Placement((0, 1, 8, 9), (2,), False, host_nodes=(8, 0), bound=True, dedicated=True)


def render_bound(placement: Placement, pages: PageKind, *, locked: bool = False) -> ET.Element:
    machine = make_machine("kvm", "ring-2")
    nodes = tuple(replace(node, memory_mib=1024) for node in machine.topology.nodes)
    machine = replace(machine, topology=replace(machine.topology, nodes=nodes), pages=pages)
    xml = render_domain(
        machine, placement, make_files(), name="m", cmdline="x", owner=Owner(1, 2), locked=locked,
        privilege=Privilege(own_sandbox=False, label=(0, 0)),
    )  # fmt: skip
    etree.RelaxNG(etree.parse(SCHEMA)).assertValid(etree.fromstring(xml))
    return ET.fromstring(xml)


def test_memory_is_bound_locked_and_there_before_the_start() -> None:
    domain = render_bound(BOUND, "1G", locked=True)
    nodes = [element.attrib for element in domain.iterfind("numatune/memnode")]
    assert nodes == [
        {"cellid": "0", "mode": "strict", "nodeset": "8"},
        {"cellid": "1", "mode": "strict", "nodeset": "0"},
    ]
    backing = domain.find("memoryBacking")
    assert backing is not None
    page = backing.find("hugepages/page")
    assert page is not None and page.attrib == {"size": "1048576", "unit": "KiB"}
    assert backing.find("locked") is not None
    assert backing.find("allocation[@mode='immediate']") is not None
    assert domain.find("features/kvm/hint-dedicated") is not None


def test_memory_of_a_guest_that_is_not_dedicated_is_only_preferred() -> None:
    domain = render_bound(replace(BOUND, dedicated=False), "memfd")
    modes = {element.get("mode") for element in domain.iterfind("numatune/memnode")}
    assert modes == {"preferred"}
    for path in ("hugepages", "locked", "allocation"):
        assert domain.find(f"memoryBacking/{path}") is None
    assert domain.find("features/kvm") is None


def test_qemus_threads_are_left_to_numalab_where_they_allocate_on_nodes() -> None:
    def pin(placement: Placement, pages: PageKind) -> str | None:
        element = render_bound(placement, pages).find("cputune/emulatorpin")
        return None if element is None else element.get("cpuset")

    shared, one_node = replace(BOUND, dedicated=False), replace(BOUND, bound=False)
    assert pin(BOUND, "memfd") is None and pin(shared, "2M") is None
    assert pin(shared, "memfd") == pin(one_node, "2M") == "2"


def test_memory_on_a_host_with_one_node_is_not_bound() -> None:
    assert render_bound(replace(BOUND, bound=False), "2M").find("numatune") is None


def test_the_root_of_the_host_cannot_be_written_by_the_guest() -> None:
    text = render(replace(make_machine("tcg"), host_root=True))
    etree.RelaxNG(etree.parse(SCHEMA)).assertValid(etree.fromstring(text.encode()))
    (shared,) = ET.fromstring(text).findall("devices/filesystem")
    source = shared.find("source")
    assert source is not None and source.get("dir") == "/"
    assert shared.find("readonly") is not None
    assert ET.fromstring(render(make_machine("tcg"))).find("devices/filesystem") is None


@pytest.mark.parametrize("mode", ["icount", "timed"])
def test_a_mode_that_repeats_to_the_byte_has_no_root_of_the_host(mode: Mode) -> None:
    with pytest.raises(UserError, match=f"mode {mode} repeats to the byte"):
        replace(make_machine(mode), host_root=True)
