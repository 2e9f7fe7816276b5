"""Guests that differ from the prediction, and guests whose kernel it does not know."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from numalab.campaign import boot as boot_module
from numalab.campaign.boot import Booted
from numalab.campaign.check import check_topology, kernel_remarks
from numalab.campaign.measure import absent_notes
from numalab.errors import TopologyMismatch, WorkloadFailed
from numalab.guest.proof import Proof
from numalab.guest.run import Outcome
from numalab.guest.witness import Timing
from numalab.kernel.patched_kernel import find_kernel
from numalab.machine.model import Machine
from numalab.qemu.collect import Collected
from numalab.results.guest_output import read_guest_view
from numalab.results.run_files import RunFiles
from numalab.run_dir import RunDir
from numalab.topology.load import load_topology
from numalab.topology.predict.prediction import predict

BOOT = Path(__file__).parents[2] / "data" / "topology" / "boots" / "ring-2.6.12.txt"
OFF_LINE = "CPU 3 went off line after the boot: measures take that for idle time"


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


def test_optional_events_of_the_study_that_the_kernel_lacks_are_noted(tmp_path: Path) -> None:
    """Not those of named sets, which older kernels lack."""
    directory = RunDir(tmp_path)
    directory.absent_events.parent.mkdir()
    directory.absent_events.write_text("sched:sched_skip_vma_numa\nsched:sched_swich\n")
    absent = RunFiles(directory).absent_events
    assert list(absent_notes(["sched:sched_swich", "sched:sched_waking"], absent)) == [
        "not in this kernel: sched:sched_swich"
    ]
    assert not list(absent_notes(["sched:sched_waking"], absent))


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


@pytest.mark.parametrize(
    "line",
    [
        'Unknown kernel command line parameters "{}", will be passed to user space.',
        "Unknown command line parameters: {}",
    ],
)
@pytest.mark.parametrize(
    ("words", "listed", "unknown"),
    [
        (("nohz_full=1",), "NUMALAB_HOLD=24000 nohz_full=1", "nohz_full=1"),
        (("quiet", "nohz_full=1", "x"), "NUMALAB_HOLD=24000 nohz_full=1 x", "nohz_full=1, x"),
        (("quiet", "kvm.none=1"), "NUMALAB_HOLD=24000", ""),
        (("hold=24000",), "NUMALAB_HOLD=24000", ""),
        (('NAME="a b"',), "NUMALAB_HOLD=24000 NAME=a b", "NAME=a b"),
        (("x=1", "x=2"), "x=2", "x=2"),
        (("x", "--", "y"), "x", "x"),
        (("--", "x"), "x", ""),
    ],
)
def test_words_that_the_kernel_does_not_know_are_remarked_on(
    tmp_path: Path, line: str, words: tuple[str, ...], listed: str, unknown: str
) -> None:
    directory = RunDir(tmp_path)
    directory.sysfs.mkdir(parents=True)
    directory.sched_domains.write_text("")
    log = f"Linux version 6.12.117 (x) #1 SMP\n[    0.192267] {line.format(listed)}\nnext\n"
    directory.dmesg.write_text(log)
    texts = kernel_remarks(read_guest_view(directory), load_topology("ring-2"), words)
    expected = f"the kernel does not know {unknown}: it gave this to init (dmesg.txt)"
    assert texts == ((expected,) if unknown else ())
    # The kernel's line begins so: a guest may write the text a million times into one line.
    directory.dmesg.write_text(log.replace("Unknown", "x Unknown"))
    assert not kernel_remarks(read_guest_view(directory), load_topology("ring-2"), words)


def ended(
    directory: RunDir,
    *after_boot: str,
    of_boot: str = "",
    node: str = "2-3",
    dmesg: str | None = None,
    console: str = "",
) -> None:
    """Leave what a guest of ring-2 does, whose log has more lines after those of its boot."""
    nodes, domains, log = re.split(r"^# \w+\n", BOOT.read_text(), flags=re.M)[1:]
    for line in nodes.splitlines():
        path, _, text = line.partition(":")
        (directory.sysfs / path).parent.mkdir(parents=True, exist_ok=True)
        (directory.sysfs / path).write_text(node if path == "node1/cpulist" else text)
    directory.sched_domains.write_text(domains)
    lines = [log + of_boot, "Freeing unused kernel image (initmem) memory: 1048K", *after_boot]
    directory.dmesg.write_text("\n".join(lines) if dmesg is None else dmesg)
    directory.console.write_text(console, newline="")
    directory.stdout.write_text("all went well\n")
    directory.stderr.write_text("")


HALVES = (
    *(f"CPU{cpu} attaching NULL sched-domain." for cpu in range(4)),
    "CPU0 attaching sched-domain(s):\n domain-0: span=0-1 level=MC\n"
    "  groups: 0:{ span=0 }, 1:{ span=1 }",
)
OFF = ("CPU3 attaching NULL sched-domain.", "smpboot: CPU 3 is now offline")


@pytest.fixture
def boots(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Booted]:
    """Return a function that boots a guest of ring-2 which leaves what `ended` says."""
    monkeypatch.setenv("NUMALAB_CACHE", str(tmp_path / "cache"))
    topology = load_topology("ring-2")

    def run(*words: str, **left: Any) -> Booted:
        def run_guest(_machine: object, _job: object, directory: RunDir, **_: object) -> Outcome:
            ended(directory, *left.pop("after_boot", ()), **left)
            proof, timing = Proof((), (), ""), Timing(False, (), ())
            versions = {"qemu": "10.0.0"}
            return Outcome(0, {}, 9.0, proof, timing, Collected({}, ()), "", versions, ())

        monkeypatch.setattr(boot_module, "run_guest", run_guest)
        machine = Machine(topology, Path(), Path(), "icount", 1, "b", extra_cmdline=words)
        return boot_module.boot(machine, find_kernel("debian-6.12"), ("true",))

    return run


@pytest.mark.parametrize(
    ("after_boot", "node", "notes"),
    [
        ((), "2-3", ()),
        (HALVES, "2-3", ()),  # a partition of cpusets
        (OFF, "2-3", (OFF_LINE,)),  # by the command
        (OFF, "2", (OFF_LINE,)),  # by a tunable, so before the nodes were read
    ],
)
def test_what_is_done_to_domains_after_the_boot_is_no_mismatch(
    boots: Callable[..., Booted], after_boot: tuple[str, ...], node: str, notes: tuple[str, ...]
) -> None:
    booted = boots(after_boot=after_boot, node=node)
    assert (booted.differences, booted.outcome.notes) == ((), notes)


def test_of_another_machine_the_words_are_named_and_the_output_is_kept(
    boots: Callable[..., Booted],
) -> None:
    of_boot = "CPU3 attaching NULL sched-domain.\n"
    with pytest.raises(TopologyMismatch) as caught:
        boots("quiet", "isolcpus=3", of_boot=of_boot, after_boot=HALVES)
    first, *_ = str(caught.value).splitlines()
    assert first == (
        "the guest is not the machine that ring-2 describes; isolcpus=3 may be why"
        " (`boot` and `run` take --allow-mismatch)"
    )
    assert "CPU 3, sched domains" in str(caught.value)
    assert caught.value.printed == (b"all went well\n", b"")
    with pytest.raises(TopologyMismatch, match="describes\n"):
        boots("quiet", of_boot=of_boot)
    with pytest.raises(TopologyMismatch, match="node 1, CPUs"):
        boots(node="2")


@pytest.mark.parametrize(
    ("console", "compared"),
    [
        (
            "[    0.000000] Linux version 6.12.117 (x) #1 SMP\r\n[    0.000000] BUG: at boot\r\n"
            "[    8.100000] mine: 1\r\n[    8.200000] mine: 2\r\n",
            "sched domains were not",
        ),
        ("", "the guest was not"),  # with `quiet`
    ],
)
def test_a_guest_whose_kernel_printed_more_than_its_log_holds(
    boots: Callable[..., Booted], tmp_path: Path, console: str, compared: str
) -> None:
    log = "[    8.200000] mine: 2\n[    8.300000] BUG: at the end\n"
    booted = boots(dmesg=log, console=console)
    assert (booted.stdout, booted.differences) == (b"all went well\n", ())
    assert booted.outcome.notes == (
        "the beginning of dmesg.txt is lost, as the kernel printed more than its log holds, or"
        f" the command cleared it: {compared} compared with the prediction",
    )
    directory = RunDir(tmp_path)
    ended(directory, dmesg=log, console=console)
    before = console.replace("\r", "").partition("[    8.2")[0]
    assert RunFiles(directory).dmesg == before + log


def test_without_any_kernel_log_nothing_says_what_was_booted(boots: Callable[..., Booted]) -> None:
    with pytest.raises(WorkloadFailed, match="left no kernel log"):
        boots(dmesg="")
