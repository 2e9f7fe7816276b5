"""The lowest layer: CPU lists, units, processes, and files that are whole or not there."""

import os
import socket
import stat
import sys
import time
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from numalab.cpulist import format_cpulist, parse_cpulist, parse_cpumask
from numalab.errors import HostError, UserError
from numalab.files import free_space, read_json, replacing, write_json, write_text
from numalab.places import find_input, list_inputs, project_dir, shipped_dir
from numalab.process import (
    CommandFailed,
    CommandTimedOut,
    find_program,
    run,
    run_logged,
    version_line,
)
from numalab.results.layout import Results
from numalab.units import format_seconds, format_size, parse_size


@given(st.sets(st.integers(0, 1023)))
def test_cpulist_round_trip(cpus: set[int]) -> None:
    assert parse_cpulist(format_cpulist(cpus)) == tuple(sorted(cpus))


@pytest.mark.parametrize(
    ("text", "cpus"), [("", ()), ("0-3,8\n", (0, 1, 2, 3, 8)), ("7,1-2", (1, 2, 7))]
)
def test_cpulist_as_the_kernel_writes_it(text: str, cpus: tuple[int, ...]) -> None:
    assert parse_cpulist(text) == cpus


@pytest.mark.parametrize("text", ["a", "3-1", "1-", "-1", "0-99999999", "1;2", "½"])
def test_cpulist_refuses(text: str) -> None:
    with pytest.raises(ValueError, match=r"cpulist|range"):
        parse_cpulist(text)


def test_cpumask() -> None:
    assert parse_cpumask("00000001,0000000f") == (0, 1, 2, 3, 32)
    with pytest.raises(ValueError, match="cpumask"):
        parse_cpumask("xyz")


def test_units() -> None:
    assert parse_size("2 GiB") == 2 << 30
    assert parse_size("17") == 17
    assert format_size(3 << 20) == "3 MiB"
    assert format_size(1536) == "1.5 KiB"
    assert format_seconds(245) == "4 min 05 s"
    with pytest.raises(ValueError, match="not a size"):
        parse_size("2 gigs")


def test_run_captures_and_reports_failure() -> None:
    done = run(["sh", "-c", "echo out; echo err >&2; cat"], stdin="in")
    assert (done.stdout, done.stderr) == ("out\nin", "err\n")
    with pytest.raises(CommandFailed, match=r"exited with status 3\n  \| broken"):
        run(["sh", "-c", "echo broken >&2; exit 3"])


def test_what_a_program_builds_does_not_depend_on_the_umask() -> None:
    before = os.umask(0o077)
    try:
        assert run(["sh", "-c", "umask"]).stdout == "0022\n"
    finally:
        os.umask(before)


def test_a_timeout_ends_the_whole_tree(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    with pytest.raises(CommandTimedOut, match="did not end within"):
        run(["sh", "-c", f"sleep 60 & echo $! > {pid}; wait"], timeout=0.5)
    child = int(pid.read_text())
    for _ in range(100):
        if not Path(f"/proc/{child}").exists() or _is_zombie(child):
            return
        time.sleep(0.02)
    pytest.fail("the grandchild outlived its parent")


def _is_zombie(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"


def test_run_logged_streams(tmp_path: Path) -> None:
    lines: list[str] = []
    log = tmp_path / "log"
    run_logged([sys.executable, "-c", "print('a'); print('b')"], log, on_line=lines.append)
    assert lines == ["a", "b"]
    assert log.read_text() == "a\nb\n"


def test_missing_programs_say_what_installs_them() -> None:
    with pytest.raises(HostError, match="apt-get install no-such-package"):
        find_program("no-such-program", "no-such-package")
    with pytest.raises(HostError, match="cannot start"):
        run(["/no/such/program"])


def test_a_program_is_asked_for_its_version_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A list of kernels asks for the compiler's at each: a process takes longer than the rest."""
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    asked = tmp_path / "asked"
    for version in ("1", "2"):
        script = tmp_path / f"new{version}"
        script.write_text(f"#!/bin/sh\necho {version} >>{asked}\necho tool {version}\n")
        script.chmod(0o755)
        script.replace(tmp_path / "tool")
        assert [version_line("tool", "x"), version_line("tool", "x")] == [f"tool {version}"] * 2
    assert asked.read_text() == "1\n2\n"


def test_replacing_is_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_text(path, "old")
    with pytest.raises(RuntimeError), replacing(path) as temporary:
        temporary.write_text("half")
        raise RuntimeError
    assert path.read_text() == "old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]
    with replacing(tmp_path / "folder") as temporary:
        temporary.mkdir()
    assert (tmp_path / "folder").is_dir()


def test_a_file_is_on_the_disk_before_it_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced = []

    def sync(descriptor: int) -> None:
        synced.append(os.fstat(descriptor).st_ino)
        assert not (tmp_path / "a").exists()

    monkeypatch.setattr("os.fsync", sync)
    write_text(tmp_path / "a", "1")
    assert synced == [(tmp_path / "a").stat().st_ino]


def test_a_device_a_pipe_or_a_socket_is_never_replaced(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("/dev/null")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "socket"))
        kinds = {path: path.lstat().st_mode for path in tmp_path.iterdir()}
        for path in kinds:
            with pytest.raises(HostError, match="it is a device, a pipe or a socket"):
                write_text(path, "x")
    assert {path: path.lstat().st_mode for path in tmp_path.iterdir()} == kinds


def test_a_device_is_never_replaced_by_root(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("making a device needs root")
    device = tmp_path / "null"
    os.mknod(device, 0o666 | stat.S_IFCHR, os.makedev(1, 3))
    with pytest.raises(HostError, match="it is a device"):
        write_text(device, "x")
    assert stat.S_ISCHR(device.stat().st_mode)


def test_a_full_disk_is_one_message() -> None:
    with pytest.raises(HostError, match=r"cannot write .*No space left"):
        write_to_full(Path("/dev/shm/numalab-test-full"))


def test_a_full_disk_is_the_hosts_failure_where_polars_writes(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("mounting a small file system needs root")
    small = tmp_path / "small"
    small.mkdir()
    run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", small])
    try:
        with (
            pytest.raises(HostError, match=r"cannot write .*events: No space left on device"),
            replacing(small / "events") as temporary,
        ):
            pl.DataFrame({"x": range(200_000)}).write_parquet(temporary)
        assert list(small.iterdir()) == []
    finally:
        run(["umount", small])


def write_to_full(path: Path) -> None:
    with replacing(path), Path("/dev/full").open("w") as full:
        full.write("x")
        full.flush()


def test_json_documents(tmp_path: Path) -> None:
    write_json(tmp_path / "a.json", {"b": [1]})
    assert read_json(tmp_path / "a.json") == {"b": [1]}
    with pytest.raises(UserError, match="no such file"):
        read_json(tmp_path / "none.json")
    (tmp_path / "a.json").write_text("{")
    with pytest.raises(UserError, match="not JSON"):
        read_json(tmp_path / "a.json")
    with pytest.raises(UserError, match="cannot read: Is a directory"):
        read_json(tmp_path)


def test_a_message_about_a_name_without_end_ends() -> None:
    error = UserError("x" * 100_000, file="y" * 100_000, key="z" * 100_000, choices=["a"] * 100_000)
    assert len(str(error)) < 20_000
    assert "(100000 characters)" in str(error)


def test_results_list_only_whole_runs(tmp_path: Path) -> None:
    results = Results(tmp_path)
    write_json(results.run("after-1").manifest, {})
    write_json(results.running("after-2").manifest, {})
    write_json(results.failed("after-3").manifest, {})
    write_json(results.run("v6.12-1").manifest, {})
    assert list(results.finished()) == ["after-1", "v6.12-1"]


def test_project_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert (project_dir() / "topologies").is_dir()


def test_inputs_of_the_current_folder_come_first_then_what_came_with_numalab(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here/topologies").mkdir(parents=True)
    (tmp_path / "more/topologies").mkdir(parents=True)
    for place in ("here/topologies/ring-4.toml", "more/topologies/odd.toml"):
        (tmp_path / place).write_text("")
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setenv("NUMALAB_PATH", f"{tmp_path / 'more'}:/nowhere")
    inputs = list_inputs("topologies", "*.toml")
    assert inputs["ring-4.toml"] == tmp_path / "here/topologies/ring-4.toml"
    assert inputs["odd.toml"] == tmp_path / "more/topologies/odd.toml"
    assert inputs["mesh-8.toml"] == shipped_dir() / "topologies/mesh-8.toml"
    assert find_input("topologies", "nothing.toml") is None
    assert project_dir() == tmp_path / "here"


def test_a_file_system_without_a_size_has_space(tmp_path: Path) -> None:
    assert free_space(Path("/proc")) == float("inf")
    assert 0 < free_space(tmp_path) < float("inf")
