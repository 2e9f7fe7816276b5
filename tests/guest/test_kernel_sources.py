"""Guests of other kernels: with an initramfs, built elsewhere, of other versions, with a patch."""

import dataclasses
import json
import re
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

from numalab.campaign.build import with_kernel
from numalab.campaign.check import check_topology
from numalab.capture.decode import decode_trace
from numalab.image.ext4_artifact import ensure_ext4
from numalab.image.image_artifact import BuiltImage
from numalab.kernel.initramfs import make_initramfs
from numalab.kernel.kernel_build import BuiltKernel, built_kernel, ensure_kernel
from numalab.kernel.kernel_specs import KernelSpec, load_kernels
from numalab.kernel.patched_kernel import find_kernel
from numalab.machine.model import Machine
from numalab.results.guest_output import read_guest_view
from support.guest_types import Boot, MakeMachine
from support.trace_report import assert_as_reported

NUMALAB = [sys.executable, "-c", "from numalab.cli.entry import main; main()"]
SERIES = "kernel-configs/series/undo-group-construction"
# Other versions take minutes to build, so that only those which somebody has built are booted;
# where nobody has, another configuration of the same version is.
OTHERS = [
    spec
    for spec in load_kernels().values()
    if "linux-source-6.12" not in spec.source and built_kernel(spec)
] or [find_kernel("debian-6.12-xfs")]


def test_an_initramfs_hands_over_to_the_root(
    boot: Boot, make_machine: MakeMachine, tmp_path: Path
) -> None:
    """The same init as a distribution's kernel gets; this kernel has all drivers built in."""
    initrd = tmp_path / "initrd"
    initrd.write_bytes(make_initramfs([]))
    machine = dataclasses.replace(make_machine("ring-4"), initrd=initrd)
    outcome, run_dir = boot("cat", "/proc/mounts", machine=machine)
    assert outcome.status == 0
    mounts = [line.split()[:3] for line in run_dir.stdout.read_text().splitlines()]
    assert ["/dev/pmem0", "/", "erofs"] in mounts
    assert ["/dev/pmem1", "/job", "ext4"] in mounts
    assert "Run /init as init process" in run_dir.dmesg.read_text()


def test_a_kernel_by_its_path(kernel: BuiltKernel) -> None:
    words = ["boot", "ring-2", "--mode", "icount", "--kernel", str(kernel.bzimage)]
    done = subprocess.run(
        [*NUMALAB, *words, "--", "uname", "-r"],
        capture_output=True, text=True, check=False, timeout=500,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, f"{kernel.release}\n"), done.stderr


def test_from_a_patch_to_the_old_groups() -> None:
    """One command, which compares every group with those of before 4.13 and fails otherwise."""
    words = ["kernel", "try", "--base", "debian-6.12", SERIES, "--topology", "ring-4"]
    done = subprocess.run(
        [*NUMALAB, *words, "--mode", "icount", "--", "dmesg"],
        capture_output=True, text=True, check=False, timeout=1500,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    # The series is a path here, so the name has the digest of its content.
    name = r"debian-6\.12\+undo-group-construction-[0-9a-f]{8}: built in"
    assert re.search(name, done.stderr), done.stderr
    assert "groups:" in done.stdout
    named = ensure_kernel(find_kernel("debian-6.12-undo-group-construction"))
    listed = subprocess.run(
        [*NUMALAB, "kernel", "list", "--json"], capture_output=True, text=True, check=True
    )
    entries = {entry["name"]: entry["built"] for entry in json.loads(listed.stdout)}
    # The same inputs by another name are the same kernel.
    assert entries["debian-6.12-undo-group-construction"]["digest"] == named.digest


def machine_of(machine: Machine, kernel: BuiltKernel, image: BuiltImage) -> Machine:
    """Return the machine with a kernel, and with the image that this kernel can mount."""
    rootfs = image.path if kernel.mounts_erofs else ensure_ext4(image)
    return dataclasses.replace(with_kernel(machine, kernel), rootfs=rootfs)


@pytest.mark.parametrize("topology", ["ring-4", "mesh-8", "slow-memory-3"])
@pytest.mark.parametrize("spec", OTHERS, ids=lambda spec: spec.name)
def test_another_version_is_as_predicted(
    boot: Boot, make_machine: MakeMachine, image: BuiltImage, spec: KernelSpec, topology: str
) -> None:
    built = ensure_kernel(spec)
    assert built.runs_in_icount
    machine = machine_of(make_machine(topology, "icount"), built, image)
    outcome, run_dir = boot("uname", "-r", machine=machine, events=("sched:sched_switch",))
    assert outcome.status == 0
    assert run_dir.stdout.read_text() == f"{built.release}\n"
    assert run_dir.trace.stat().st_size > 10000
    differences = check_topology(
        machine.topology,
        spec,
        read_guest_view(run_dir),
        reserved_mib=machine.trace_memory_mib,
        allow=True,
    )
    assert not differences, "\n".join(map(str, differences))


@pytest.mark.parametrize("spec", OTHERS, ids=lambda spec: spec.name)
def test_events_of_another_version_are_as_trace_cmd_reports_them(
    boot: Boot, make_machine: MakeMachine, image: BuiltImage, spec: KernelSpec, tmp_path: Path
) -> None:
    machine = machine_of(make_machine("ring-4", "tcg"), ensure_kernel(spec), image)
    events = ("sched", "migrate", "task", "signal", "irq", "timer", "kmem", "raw_syscalls")
    outcome, run_dir = boot("hackbench", "-g", "1", "-l", "1", machine=machine, events=events)
    assert outcome.status == 0
    decoded = decode_trace(run_dir.trace, None, tmp_path / "events.parquet")
    assert decoded.whole
    assert {"sched_switch", "sched_migrate_task", "sys_enter", "kfree"} <= set(decoded.counts)
    assert_as_reported(run_dir.trace, pl.read_parquet(tmp_path / "events.parquet"))
