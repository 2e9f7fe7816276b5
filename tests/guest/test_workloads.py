"""Every workload in a real guest, as short as it can be made."""

import shlex
from collections.abc import Iterable, Mapping
from dataclasses import replace

import pytest

from numalab.image.image_artifact import BuiltImage
from numalab.kernel.kernel_build import ensure_kernel
from numalab.kernel.patched_kernel import find_kernel
from numalab.topology.load import load_topology
from numalab.workload.metric_parsers import parse_metrics
from numalab.workload.workload import BoundWorkload, list_workloads, load_workload, resolve
from numalab.workload.workload_files import build_workload
from numalab.workload.workload_table import Value
from support.guest_types import Boot, MakeMachine

TOPOLOGY = "mesh-2"
SHARED: dict[str, Value] = {"mib": 2, "loops": 2}  # memory of a process
OWN: dict[str, Value] = {"thread_mib": 1, "loops": 2}  # memory of each thread
SHORT: dict[str, dict[str, Value]] = {
    "autonuma01": SHARED,
    "autonuma01-threadlocal": OWN,
    "autonuma02": OWN,
    "autonuma02-smt": OWN,
    "bound-hogs": {"start_node": 0, "allowed_nodes": "0,1", "seconds": 0.2},
    "dbench": {"clients": 2, "seconds": 1},
    "dbench-disk": {"clients": 1, "seconds": 1},
    "distances": {"kib": 64},
    "forks": {"ms": 200, "run_us": 5000},
    "full-node": {"threads": 1, "kib": 64, "seconds": 0.2},
    "hackbench": {"groups": 1, "fds": 2, "loops": 5},
    "hogs": {"ms": 200},
    "hot-and-cold": {"cold_mib": 1, "threads": 1, "kib": 64, "seconds": 0.2},
    "hunt": {"loads": "time ms=200;hog n=2 start=0 cpus=0-1|time ms=200;sleeper n=1 cpus=0"},
    "linpack": {"n": 64},
    "loaded-latency": {"kib": 64},
    "mapped-file": {"threads": 2, "kib": 64, "seconds": 0.2},
    "memory-users": {"ms": 200, "mib": 1},
    "mixed-server": {"ms": 200, "mib": 1},
    "numa-mem": {"mib": 2, "loops": 2, "seconds": 1},
    "numa01": SHARED,
    "numa02": OWN,
    "numa03": SHARED,
    "numa04": SHARED,
    "numa05": SHARED,
    "pipe": {"loops": 100},
    "schbench": {"workers": "1,2", "sleep_us": 1000, "work_us": 1000, "seconds": 0.2},
    "sleepers": {"ms": 200},
    "stream": {"mib": 3, "repetitions": 2},
    "tcp-stream": {"sizes": "1024,16384", "seconds": 1},
    "wake-ups": {"ms": 200},
    "warehouse": {"instances": 2, "own_kib": 64, "shared_kib": 64, "seconds": 0.2},
    "wrong-node": {"threads": 1, "kib": 64, "seconds": 0.2},
    "xfsrepair": {"files": 20},
}
# They want a kernel with the fragment `xfs`.
WITH_XFS = {"dbench-disk", "xfsrepair"}
# A line before and after each, with its exit status; the trace is emptied in between.
SCRIPT = """
trace=/sys/kernel/tracing/instances/lab/trace
run() {
    name=$1
    shift
    echo >$trace
    echo "=== $name"
    "$@"
    echo "=== $name ended with $?, begin $(grep -c 'numalab: begin' $trace)" \\
        "end $(grep -c 'numalab: end' $trace)"
}
"""


def bound(name: str, **changes: str) -> BoundWorkload:
    """Return a workload of short parameters, or of others than these."""
    return resolve(load_workload(name), {**SHORT[name], **changes}, load_topology(TOPOLOGY))


def files_of(names: Iterable[str]) -> dict[str, bytes]:
    """Return the files of several workloads, which share one folder here."""
    files: dict[str, bytes] = {}
    for name in names:
        for file, data in build_workload(bound(name).folder).items():
            assert files.setdefault(file, data) == data, f"{file} of {name} is another's too"
    return files


def test_every_workload_runs_and_is_read(
    boot: Boot, make_machine: MakeMachine, bench_image: BuiltImage
) -> None:
    assert set(SHORT) == set(list_workloads())
    calls = [f"run {name} {shlex.join(bound(name).argv)}" for name in SHORT]
    calls.append(f"run flushed {shlex.join(bound('mapped-file', file='disk').argv)}")
    machine = replace(make_machine(TOPOLOGY), rootfs=bench_image.path)
    script = "\n".join([SCRIPT, *calls])
    outcome, run_dir = boot(
        *("sh", "-c", script),
        machine=machine,
        events=("sched:sched_process_exit",),
        files=files_of(SHORT),
    )
    printed = (run_dir.out / "stdout").read_text()
    errors = (run_dir.out / "stderr").read_text()
    assert outcome.status == 0, errors
    # This kernel cannot, and the workloads say why.
    for name in WITH_XFS:
        assert f"=== {name} ended with 1, begin 0 end 0" in printed
    assert "xfsrepair: this kernel has no XFS (fragment xfs" in errors
    assert "dbench-disk: this kernel has no loop devices (fragment xfs" in errors
    for name in SHORT.keys() - WITH_XFS:
        output = between(printed, name)
        assert f"=== {name} ended with 0, begin 1 end 1" in printed, (name, output, errors)
        check_metrics(name, output)
    check_metrics("mapped-file", between(printed, "flushed"))


def between(printed: str, name: str) -> str:
    return printed.partition(f"=== {name}\n")[2].partition(f"=== {name} ended")[0]


def check_metrics(name: str, output: str) -> None:
    specs = load_workload(name).table.metrics
    metrics = parse_metrics(specs, output)
    # As short as they are, some have too few samples for their highest percentiles.
    always = {spec.name for spec in specs if (spec.percentile or 0) < 99}
    assert always <= {metric.name for metric in metrics} <= {spec.name for spec in specs}, output
    values: Mapping[tuple[str, str], float] = {(m.name, m.label): m.value for m in metrics}
    assert len(values) == len(metrics), "a metric is found twice"


@pytest.mark.timeout(1800)  # where the kernel is not built yet
def test_file_systems_are_made_used_and_repaired(
    boot: Boot, make_machine: MakeMachine, bench_image: BuiltImage
) -> None:
    machine = replace(
        make_machine(TOPOLOGY),
        rootfs=bench_image.path,
        bzimage=ensure_kernel(find_kernel("debian-6.12-xfs")).bzimage,
    )
    file_systems = [bound("dbench-disk", file_system=name).argv for name in ("ext4", "xfs")]
    calls = [bound("xfsrepair").argv, *file_systems]
    script = " && echo === && ".join(shlex.join(call) for call in calls)
    outcome, run_dir = boot("sh", "-c", script, machine=machine, files=files_of(WITH_XFS))
    assert outcome.status == 0, (run_dir.out / "stderr").read_text()
    repaired, *served = (run_dir.out / "stdout").read_text().split("===\n")
    check_metrics("xfsrepair", repaired)
    assert "files 80" in repaired
    assert len(served) == len(file_systems)
    for output in served:
        check_metrics("dbench-disk", output)
