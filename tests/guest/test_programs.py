"""Programs of the host in real guests: by command line, Python and pytest."""

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from numalab.api import CommandResult, GuestLost, GuestSession, UserError, compare_programs, machine
from numalab.image.image_artifact import BuiltImage
from numalab.kernel.kernel_build import BuiltKernel
from numalab.places import cache_dir
from numalab.programs.machines import LabMachine
from numalab.topology.load import load_topology

NUMALAB = str(Path(sys.executable).with_name("numalab"))
CACHE = cache_dir()
FILL = """
#include <numa.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
int main(int argc, char **argv)
{
    size_t size = (size_t)atoi(argv[1]) << 20;
    char *memory = argc > 2 ? numa_alloc_onnode(size, atoi(argv[2])) : malloc(size);
    for (int round = 0; round < 4; round++)
        memset(memory, round, size);
    printf("filled %s MiB\\n", argv[1]);
    return 0;
}
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a program that needs libnuma, which the image has, too."""
    here = tmp_path_factory.mktemp("programs")
    argv = ["gcc", "-x", "c", "-", "-O1", "-o", str(here / "fill"), "-lnuma"]
    subprocess.run(argv, input=FILL, text=True, check=True)
    (here / "data.txt").write_text("from the host\n")
    return here


@pytest.fixture(scope="module")
def ring(kernel: BuiltKernel, image: BuiltImage) -> LabMachine:
    return machine("ring-4", mode="tcg")


def test_a_session_runs_one_command_after_the_other(
    ring: LabMachine, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    with ring.boot(events=["sched:sched_switch"]) as guest:
        assert guest.run(["numactl", "-H"]).check().stdout.startswith("available: 4 nodes")
        check_memory(guest)
        spoken = guest.run(
            ["sh", "-c", "echo $A; cat - data.txt; echo x >$OUT/left; echo no >&2; exit 3"],
            env={"A": "b c"}, input="typed\n", cwd=".",
        )  # fmt: skip
        assert (spoken.status, spoken.stdout) == (3, "b c\ntyped\nfrom the host\n")
        assert (spoken.stderr, spoken.files) == ("no\n", {"left": b"x\n"})
        assert guest.run(["sleep", "60"], timeout=0.5).status == 124
        ended = guest.run(["sh", "-c", "kill 0; sleep 60"])
        assert (ended.status, ended.seconds is not None) == (143, True)
        assert guest.run(["sh", "-c", "echo >/dev/tty"]).status != 0
        left = "(setsid sleep 5000 &); ls /proc/self/fd"
        assert guest.run(["sh", "-c", left]).check().stdout == "0\n1\n2\n3\n"
        running_now = guest.run(["ps", "-eo", "comm"]).check().stdout.splitlines()
        assert "sleep" not in running_now and running_now.count("numalab-beat") == 1
        with pytest.raises(UserError, match="nothing: cannot read"):
            guest.run(["./nothing"])
        check_windows(guest.results)
        running = guest
    assert not running.alive
    assert not running.directory.exists()


def check_memory(guest: GuestSession) -> None:
    """The program binds its memory by libnuma; numactl binds it; numa_maps says where it is."""
    bound = guest.run(["./fill", "64", "3"], memory=True).check()
    assert bound.stdout == "filled 64 MiB\n"
    assert bound.memory_share(3) > 0.9, bound
    moved = guest.run(["numactl", "--membind=2", "./fill", "64"], memory=True).check()
    assert moved.memory_share(2) > 0.9, moved
    assert bound.seconds is not None
    assert moved.seconds is not None


def check_windows(results: list[CommandResult]) -> None:
    """Every command has a recording of its own, and no event is in two of them."""
    windows = []
    for result in results:
        assert result.events is not None
        assert set(result.events["event"].unique()) == {"sched_switch"}
        windows.append((result.events["time_ns"][0], result.events["time_ns"][-1]))
    assert windows == sorted(windows)
    assert all(first[1] < second[0] for first, second in pairwise(windows))
    switches = results[1].events
    assert switches is not None
    assert "fill" in switches["next_comm"].to_list()


TALK = """
import socket
server = socket.create_server(("127.0.0.1", 0))
client = socket.create_connection(server.getsockname(), timeout=10)
client.sendall(b"ping")
print(server.accept()[0].recv(4).decode())
"""


def test_a_server_and_its_client_talk_in_the_guest(
    ring: LabMachine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The interpreter is the guest's; the script, a file of the current folder, goes along."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "talk.py").write_text(TALK)
    assert ring.run(["python3", "talk.py"]).check().stdout == "ping\n"
    with ring.boot() as guest:
        assert guest.run(["python3", "-c", TALK]).check().stdout == "ping\n"


def test_a_guest_that_panics_ends_its_session(ring: LabMachine, tmp_path: Path) -> None:
    with pytest.raises(GuestLost, match="panicked"), ring.boot(keep=tmp_path / "kept") as guest:
        guest.run(["sh", "-c", "echo c >/proc/sysrq-trigger; sleep 60"])
    assert "Kernel panic" in (tmp_path / "kept/console.log").read_text()


def test_two_runs_of_a_seed_are_the_same(
    kernel: BuiltKernel, image: BuiltImage, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    small = machine("mesh-2", mode="icount")
    first, second = (
        small.run(["./fill", "16", "1"], seed=5, events=["sched:sched_switch"], memory=True)
        for _ in range(2)
    )
    assert first.events is not None
    assert second.events is not None
    assert first.events.equals(second.events)
    assert (first.seconds, first.memory_kib) == (second.seconds, second.memory_kib)
    assert first.memory_share(1) > 0.8


def test_far_memory_is_worse_than_near_memory(
    kernel: BuiltKernel, image: BuiltImage, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mode timed charges distance: the comparison of two commands shows it."""
    monkeypatch.chdir(folder)
    bound = ["numactl", "--cpunodebind=0", "./fill", "8"]
    result = compare_programs(
        machine("mesh-2", mode="timed"), [*bound, "0"], [*bound, "1"], seeds=3
    )
    assert result["memory_local_share"].outcome == "worse", result
    assert result["elapsed_time"].outcome == "worse", result
    assert not result.better, result
    check_times(machine("mesh-2", mode="timed"))


def check_times(small: LabMachine) -> None:
    """The CPU time of one thread is at most its elapsed time: what starts it is not in there."""
    times = small.measure(["true"])
    user, system, elapsed = (
        float(times[name].value or 0) for name in ("user_time", "system_time", "elapsed_time")
    )
    assert 0 < user + system <= elapsed


def test_the_command_line_takes_a_program_along(folder: Path, tmp_path: Path) -> None:
    argv = [
        *(NUMALAB, "boot", "mesh-2", "--mode", "tcg", "--env", "A=b", "--stdin", "data.txt"),
        *("--add", "data.txt:sub/copy", "--out", str(tmp_path / "out"), "--json", "--"),
        *("sh", "-c", "cat - sub/copy; ./fill 1; ls >$OUT/ls; echo $A; exit 5"),
    ]
    done = subprocess.run(argv, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 5, done.stderr
    printed = json.loads(done.stdout)
    assert printed["status"] == 5
    assert printed["stdout"] == "from the host\nfrom the host\nfilled 1 MiB\nb\n"
    assert (tmp_path / "out/ls").read_text() == "data.txt\nfill\nsub\n"


TESTS = """
import pytest

pytestmark = pytest.mark.numa("mesh-2", "ring-4", mode="tcg", events=["sched:sched_switch"])

def test_near(guest):
    result = guest.run(["numactl", "--membind=1", "./fill", "32"], memory=True).check()
    assert result.memory_share(1) > 0.8, result

def test_on_the_wrong_node(guest):
    result = guest.run(["./fill", "32", "0"], memory=True).check()
    assert result.memory_share(1) > 0.8, result

def test_topology(numa_machine):
    assert len(numa_machine.topology.nodes) in (2, 4)
"""


def test_a_file_of_tests_runs_on_two_machines(
    kernel: BuiltKernel,
    image: BuiltImage,
    folder: Path,
    pytester: pytest.Pytester,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("NUMALAB_CACHE", str(CACHE))  # pytester has a home of its own
    pytester.makepyfile(TESTS)
    (pytester.path / "fill").write_bytes((folder / "fill").read_bytes())
    (pytester.path / "fill").chmod(0o755)
    done = pytester.runpytest_subprocess("-v", "-p", "no:randomly")
    done.assert_outcomes(passed=4, failed=2)
    text = done.stdout.str()
    assert "test_near[mesh-2] PASSED" in text
    assert "test_on_the_wrong_node[ring-4] FAILED" in text
    assert "./fill 32 0 exited with 0 after" in text
    kept = next(line for line in text.splitlines() if line.startswith("console, output"))
    files = Path(kept.partition(": ")[2])
    assert (files / "console.log").is_file()
    pages = [line for line in text.splitlines() if line.startswith("page: ")]
    assert len(pages) == 2
    assert "<html" in Path(pages[0].partition(": ")[2]).read_text()


def test_the_machines_of_the_command_line_replace_those_of_the_marker(
    pytester: pytest.Pytester,
) -> None:
    pytester.makepyfile(TESTS)
    done = pytester.runpytest_subprocess("--collect-only", "-q", "--numa-machines", "mesh-8,ring-2")
    assert "test_near[mesh-8]" in done.stdout.str()
    assert "ring-4" not in done.stdout.str()


def test_a_test_with_the_topology_of_a_file(ring: LabMachine) -> None:
    assert ring.topology == load_topology("ring-4")
    with pytest.raises(UserError, match="did you mean ring-4"):
        machine("rign-4")


@pytest.fixture
def readable() -> Iterator[Path]:
    """A folder of everybody's: QEMU, started by root, runs as a user without files of its own."""
    with tempfile.TemporaryDirectory() as text:
        path = Path(text)
        path.chmod(0o755)
        (path / "data.txt").write_text("from the host\n")
        yield path


def test_the_root_of_the_host_is_that_of_the_guest(readable: Path, tmp_path: Path) -> None:
    script = "pwd; cat - data.txt; echo new >data.txt; cat data.txt; numactl -H | head -1"
    python = "import sys, os; print(sys.prefix, os.getcwd()); open(os.environ['OUT'] + '/x', 'w')"
    argv = [
        *(NUMALAB, "boot", "mesh-2", "--host-root", "--kernel", "debian-6.12-virtme", "--json"),
        *("--env", f"PYTHON={python}", "--stdin", "-", "--out", str(tmp_path / "out"), "--"),
        *("sh", "-c", f'{script}; /usr/bin/python3 -c "$PYTHON"; exit 3'),
    ]
    done = subprocess.run(
        argv, cwd=readable, capture_output=True, text=True, check=False, input="typed\n"
    )
    assert done.returncode == 3, done.stderr
    printed = json.loads(done.stdout)
    here = str(readable)
    first = f"{here}\ntyped\nfrom the host\nnew\navailable: 2 nodes (0-1)\n/usr {here}\n"
    assert printed["stdout"] == first, printed["stderr"]
    assert (tmp_path / "out/x").is_file()
    assert (readable / "data.txt").read_text() == "from the host\n"


def test_a_kernel_that_cannot_mount_the_hosts_root_is_named(kernel: BuiltKernel) -> None:
    argv = [NUMALAB, "boot", "mesh-2", "--host-root", "--", "true"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "lacks VIRTIO_PCI, NET_9P_VIRTIO, 9P_FS" in done.stderr
    assert "--kernel debian-6.12-virtme" in done.stderr
