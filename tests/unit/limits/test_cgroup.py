"""The limits of containers and CI runners, which the files of the host do not show."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from numalab.errors import HostError
from numalab.host.budget import Reservation, admit
from numalab.host.read import available_mib, total_mib
from numalab.limits.cgroup import MemoryLimit, cpu_limit, memory_limit, usable_cpus
from support.control_groups import V1, V2, limited_memory, write_group

GIB = 1 << 30
STAT = "anon 1000\ninactive_file 300\nactive_file 20\nslab_reclaimable 1\nfile_mapped 9"
STAT_V1 = "inactive_file 1\nactive_file 1\ntotal_inactive_file 300\ntotal_active_file 21"


@pytest.mark.parametrize(
    ("kind", "files"),
    [
        (V2, {"memory.max": "5000", "memory.current": "2321", "memory.stat": STAT}),
        (V2, {"memory.high": "5000", "memory.max": "max", "memory.current": "2321",
              "memory.stat": STAT}),
        (V1, {"memory.limit_in_bytes": "5000", "memory.usage_in_bytes": "2321",
              "memory.stat": STAT_V1}),
    ],
)  # fmt: skip
@pytest.mark.parametrize(
    ("path", "mounted"),
    [
        ("/", "/"),  # a container with a cgroup namespace
        ("/system.slice/docker-1.scope", "/system.slice/docker-1.scope"),  # with the host's paths
        ("/runner/job", "/"),  # no container
        ("/../../other", "/"),  # a process that was moved out of its namespace
    ],
)
def test_files_do_not_count_as_used_memory(
    tmp_path: Path, kind: str, files: dict[str, str], path: str, mounted: str
) -> None:
    inside = "/" if ".." in path else path
    write_group(tmp_path, files, path=inside, mounted=mounted, kind=kind)
    me = tmp_path / "proc/self/cgroup"
    me.write_text(me.read_text().replace(f":{inside}\n", f":{path}\n"))
    assert memory_limit(tmp_path) == MemoryLimit(5000, 3000)


def test_the_tightest_group_counts(tmp_path: Path) -> None:
    write_group(tmp_path, {"memory.max": "9000", "memory.current": "8500"}, path="/a")
    write_group(tmp_path, {"memory.max": "5000", "memory.current": "100", "cpu.max": "max 100000"},
                path="/a/b")  # fmt: skip
    (tmp_path / "sys/fs/cgroup/cpu.max").write_text("150000 100000\n")
    assert memory_limit(tmp_path) == MemoryLimit(5000, 500)
    assert cpu_limit(tmp_path) == 1.5


@pytest.mark.parametrize(
    ("kind", "files", "limit"),
    [
        (V2, {"cpu.max": "200000 100000"}, 2.0),
        (V2, {"cpu.max": "max 100000"}, None),
        (V1, {"cpu.cfs_quota_us": "50000", "cpu.cfs_period_us": "100000"}, 0.5),
        (V1, {"cpu.cfs_quota_us": "-1", "cpu.cfs_period_us": "100000"}, None),
    ],
)
def test_a_limit_of_cpu_time_bounds_how_many_cpus_are_used(
    tmp_path: Path, kind: str, files: dict[str, str], limit: float | None
) -> None:
    cpus = len(os.sched_getaffinity(0))
    write_group(tmp_path, files, kind=kind)
    assert cpu_limit(tmp_path) == limit
    assert usable_cpus(tmp_path) == (cpus if limit is None else max(1, min(cpus, int(limit))))


@pytest.mark.parametrize("text", ["", "max", "-1", "9223372036854771712", "x", "1e3", "\xff"])
def test_what_is_no_limit_is_none(tmp_path: Path, text: str) -> None:
    for kind in (V1, V2):
        names = ("memory.max", "memory.limit_in_bytes", "cpu.max", "cpu.cfs_quota_us")
        write_group(tmp_path, dict.fromkeys(names, text), kind=kind)
        assert (memory_limit(tmp_path), cpu_limit(tmp_path)) == (None, None)


@pytest.mark.parametrize("name", ["cgroup", "mountinfo"])
@pytest.mark.parametrize("text", ["", "1:memory\n", "\x00\xff", "30 22 0:26 / / - cgroup2\n"])
def test_damaged_files_are_no_limit(tmp_path: Path, name: str, text: str) -> None:
    write_group(tmp_path, {"memory.max": "5000"})
    (tmp_path / "proc/self" / name).write_text(text)
    assert memory_limit(tmp_path) is None


def test_the_host_has_what_the_group_may_use(tmp_path: Path) -> None:
    write_group(tmp_path, {"memory.max": str(7 * GIB), "memory.current": str(2 * GIB)})
    meminfo = tmp_path / "proc/meminfo"
    meminfo.write_text("MemTotal: 67108864 kB\nMemFree: 1 kB\nMemAvailable: 33554432 kB\n")
    assert (available_mib(tmp_path), total_mib(tmp_path)) == (5 << 10, 7 << 10)
    meminfo.write_text("MemTotal: 67108864 kB\nMemFree: 1 kB\nMemAvailable: 1048576 kB\n")
    assert available_mib(tmp_path) == 1 << 10


def test_locked_memory_must_fit_the_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMALAB_CACHE", str(tmp_path / "cache"))
    write_group(tmp_path, {"memory.max": str(7 * GIB), "memory.current": "0"})
    (tmp_path / "proc/meminfo").write_text("MemTotal: 67108864 kB\nMemFree: 67108864 kB\n")
    admit(lambda _: Reservation((), 6 << 10), tmp_path).release()
    with pytest.raises(HostError, match=r"needs 8 GiB.* cgroup of this process.* has 7 GiB"):
        admit(lambda _: Reservation((), 8 << 10), tmp_path)


def test_a_command_plans_for_the_limit_of_its_group(tmp_path: Path) -> None:
    """The real command in a real group, of cgroup v1 or v2."""
    env = {**os.environ, "NUMALAB_CACHE": str(tmp_path)}
    script = "from numalab.host import read; print(read.available_mib(), read.total_mib())"
    command = Path(sys.executable).with_name("numalab")
    try:
        with limited_memory(900) as words:
            argv = [*words, sys.executable, "-c", script]
            numbers = subprocess.run(argv, capture_output=True, text=True, check=True)
            plan, doctor = (
                subprocess.run([*words, command, *argv], env=env, capture_output=True, text=True,
                               check=False)
                for argv in (["plan", "group-construction"], ["doctor"])
            )  # fmt: skip
    except OSError as error:
        pytest.skip(f"hardware: no control group of its own: {error}")
    available, total = map(int, numbers.stdout.split())
    assert 0 < available <= total == 900
    assert plan.returncode == 0, plan.stderr
    assert "the largest run does not fit" in plan.stdout
    assert "of 900 MiB that the cgroup allows" in " ".join(doctor.stdout.split())
    assert doctor.returncode == 3
