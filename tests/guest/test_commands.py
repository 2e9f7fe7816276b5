"""The commands as a user types them, on real guests: what they print, and how they end."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import polars as pl
import pytest

from numalab.image.image_artifact import BuiltImage
from numalab.kernel.kernel_build import BuiltKernel

NUMALAB = [sys.executable, "-c", "from numalab.cli.entry import main; main()"]
STUDY = """
question = "Does one seed give one trace?"
topologies = ["ring-4"]
seeds = [5]
key_measures = ["task_time_share_node3"]
{more}
[variants.after]
kernel = "debian-6.12"
[variants.again]
kernel = "debian-6.12"
[[workloads]]
name = "bound-hogs"
parameters = {{ seconds = 1 }}
"""


@pytest.fixture(scope="module", autouse=True)
def built(kernel: BuiltKernel, image: BuiltImage) -> None:
    """Nothing below has to build first."""


def numalab(*words: str, timeout: float = 500) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [*NUMALAB, *words], capture_output=True, text=True, check=False, timeout=timeout
    )


def guests(folder: Path) -> list[str]:
    """Return the QEMU processes that have a file below `folder` open."""
    listed = subprocess.run(
        ["pgrep", "-a", "qemu-system"], capture_output=True, text=True, check=False
    )
    return [line for line in listed.stdout.splitlines() if str(folder) in line]


def test_numactl_prints_the_distances_of_the_ring() -> None:
    done = numalab("boot", "ring-4", "--mode", "icount", "--", "numactl", "-H")
    assert done.returncode == 0, done.stderr
    table = done.stdout.partition("node distances:\n")[2].splitlines()[1:]
    assert [row.split()[1:] for row in table] == [
        ["10", "20", "30", "20"],
        ["20", "10", "20", "30"],
        ["30", "20", "10", "20"],
        ["20", "30", "20", "10"],
    ]


def test_boot_exits_as_the_command_did() -> None:
    done = numalab("boot", "ring-2", "--mode", "icount", "--", "sh", "-c", "echo oops >&2; exit 42")
    assert (done.returncode, done.stdout) == (42, "")
    assert done.stderr.endswith("oops\n")


SURROUNDINGS = """
grep SigIgn /proc/self/status
hostname
getent hosts localhost
diff <(echo a) <(echo a) && echo same | cat /dev/stdin
echo error >/dev/stderr
(sleep 0.3; kill 0) & sleep 60
"""


def test_a_command_has_what_programs_expect_of_linux(tmp_path: Path) -> None:
    """Signals are not ignored, and end only the command's processes where it sends them to its
    group. There are streams, a host name and the loopback device."""
    kept = tmp_path / "kept"
    words = ("boot", "ring-4", "--mode", "icount", "--keep", str(kept), "--", "bash", "-c")
    done = numalab(*words, f"busybox ping -c 1 localhost >/dev/null || exit; {SURROUNDINGS}")
    assert done.returncode == 143, done.stderr
    assert (kept / "out" / "times").read_text()
    ignored, name, address, same = done.stdout.splitlines()
    assert ignored.split() == ["SigIgn:", "0" * 16]
    assert (name, address.split()[0], same) == ("guest", "127.0.0.1", "same")
    assert "\nerror\n" in done.stderr
    assert "numalab-start" not in (kept / "console.log").read_text()


def test_a_process_that_ends_slowly_is_not_called_back_by_libvirt() -> None:
    # Python is gone while the last function sleeps, as long as the exit code says; libvirt, in
    # threads of this process, notes the end of the guest 0.2 s after numalab does.
    slowly = "import ctypes; libc = ctypes.CDLL(None); libc.on_exit(libc.sleep, None); "
    command = [sys.executable, "-c", slowly + NUMALAB[2], "boot", "ring-4"]
    done = subprocess.run(
        [*command, "--mode", "icount", "--cold", "--", "sh", "-c", "exit 2"],
        capture_output=True,
        text=True,
        check=False,
        timeout=500,
    )
    assert done.returncode == 2, done.stderr


def test_boot_as_json() -> None:
    done = numalab("boot", "ring-2", "--mode", "icount", "--json", "--", "echo", "a b")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["stdout"] == "a b\n"


def test_boot_counts_accesses_within_two_marks() -> None:
    """A file on node 1 is read on node 0; writing it comes before the first mark."""
    marker = "/usr/lib/numalab/marker"
    script = (
        f"dd if=/dev/zero of=/dev/shm/a bs=64k count=16; {marker} warm; md5sum /dev/shm/a; "
        f"{marker} done"
    )
    done = numalab(
        "boot", "mesh-2", "--mode", "timed", "--locality", "warm,done", "--json", "--",
        "numactl", "-N", "0", "-m", "1", "sh", "-c", script,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    locality = json.loads(done.stdout)["locality"]
    lines = {thread["name"]: thread["lines"] for thread in locality["threads"]}
    assert "dd" not in lines
    assert lines["md5sum"][1] >= (1 << 20) / 64 > 2 * lines["md5sum"][0]
    assert locality["nodes"][0]["stalled_ms"] > 0


def test_a_seed_gives_one_trace_and_a_study_one_document(tmp_path: Path) -> None:
    """In icount mode two runs of one seed have the same events, row for row and field for field."""
    study = tmp_path / "same.toml"
    study.write_text(STUDY.format(more='mode = "icount"'))
    done = numalab("run", str(study), "--output", str(tmp_path / "out"), "--json")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    (cell,) = document["cells"]
    names = {measure["name"] for measure in cell["measures"]}
    assert [set(run["measures"]) == names for run in cell["runs"]] == [True, True]
    tables = [
        pl.read_parquet(
            tmp_path / "out" / "runs" / f"ring-4_bound-hogs_{name}_5" / "events.parquet"
        )
        for name in ("after", "again")
    ]
    assert tables[0].height > 300
    assert tables[0].equals(tables[1], null_equal=True)
    for name in ("index.html", "changelog.txt", "report.json", "picture.png"):
        assert (tmp_path / "out" / name).stat().st_size > 500
    again = numalab("report", str(tmp_path / "out"), "--json")
    assert json.loads(again.stdout) == document


@pytest.mark.parametrize(
    ("script", "code", "message"),
    [
        ("rm -f /job/out/stdout", 9, "the guest left no stdout"),
        ("rm -f /job/out/sched_domains.txt; mkdir /job/out/dmesg.txt", 9, "the guest left no"),
        ("dd if=/dev/zero of=/job/out/big bs=1M", 9, "the job disk (128 MiB) is full"),
    ],
)
def test_what_a_guest_withholds_is_one_message(script: str, code: int, message: str) -> None:
    done = numalab("boot", "ring-2", "--mode", "icount", "--", "sh", "-c", script)
    assert "Traceback" not in done.stderr
    assert (done.returncode, message in done.stderr) == (code, True), done.stderr


def test_two_runs_of_a_study_at_once_keep_apart(tmp_path: Path) -> None:
    """The second one is refused the folder that the first one writes."""
    study = tmp_path / "twice.toml"
    study.write_text(STUDY.format(more='mode = "icount"'))
    out = tmp_path / "out"
    command = [*NUMALAB, "run", str(study), "--output", str(out)]
    first = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 120
    while not guests(out) and time.monotonic() < deadline:
        time.sleep(0.05)
    held = [int(line.split()[0]) for line in guests(out)]
    assert held
    for pid in held:  # so that the study lasts for as long as the second one is patient
        os.kill(pid, signal.SIGSTOP)
    second = subprocess.run(command, capture_output=True, text=True, check=False, timeout=500)
    for pid in held:
        os.kill(pid, signal.SIGCONT)
    assert second.returncode == 3
    assert "waiting: another numalab is using" in second.stderr
    assert "numalab: another numalab is using" in second.stderr
    _, stderr = first.communicate(timeout=500)
    assert first.returncode == 0, stderr


def test_interrupted_studies_resume(tmp_path: Path) -> None:
    study = tmp_path / "stopped.toml"
    study.write_text(STUDY.format(more='mode = "icount"'))
    out = tmp_path / "out"
    command = [*NUMALAB, "run", str(study), "--output", str(out)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 120
    while not guests(out) and time.monotonic() < deadline:
        time.sleep(0.05)
    time.sleep(1)
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "numalab: interrupted\nfinished runs are kept; the same command with" in stderr
    assert "Traceback" not in stderr
    assert not guests(out)
    folders = sorted((out / "runs").iterdir())
    assert folders[0].name == "ring-4_bound-hogs_after_5.interrupted"
    for folder in folders:  # as many as there are CPUs to run them beside each other
        assert folder.suffix == ".interrupted"
        manifest = json.loads((folder / "manifest.json").read_text())
        assert manifest["status"] == "interrupted"
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=500)
    assert done.returncode == 0, done.stderr
    names = sorted(path.name for path in (out / "runs").iterdir())
    assert names == ["ring-4_bound-hogs_after_5", "ring-4_bound-hogs_again_5"]


def test_what_the_host_did_to_a_run_is_done_once_more(tmp_path: Path) -> None:
    """The QEMUs are killed while they record; that is no fault of the guests'."""
    study = tmp_path / "killed.toml"
    text = STUDY.format(more='mode = "icount"')
    study.write_text(text.replace("seconds = 1", "seconds = 4"))
    out = tmp_path / "out"
    command = [*NUMALAB, "run", str(study), "--output", str(out)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    beats = out / "runs" / "ring-4_bound-hogs_after_5.running" / "heartbeat.jsonl"
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        # The second beat of the phase comes two seconds of guest time after the first.
        if beats.exists() and beats.read_text().count("workload") >= 2:
            break
        time.sleep(0.05)
    for line in guests(out):
        os.kill(int(line.split()[0]), signal.SIGKILL)
    _, stderr = process.communicate(timeout=500)
    assert process.returncode == 0, stderr
    assert "ring-4_bound-hogs_after_5: tried again: QEMU was killed by SIGKILL" in stderr
    runs = sorted(path.name for path in (out / "runs").iterdir())
    assert runs == ["ring-4_bound-hogs_after_5", "ring-4_bound-hogs_again_5"]


def test_a_lost_guest_is_kept_and_the_other_runs_go_on(tmp_path: Path) -> None:
    study = tmp_path / "lost.toml"
    panic = 'tunables = { "/sys/kernel/debug/provoke-crash/DIRECT" = "PANIC" }'
    text = STUDY.format(more='mode = "icount"')
    study.write_text(text.replace("[variants.again]", f"{panic}\n[variants.again]"))
    out = tmp_path / "out"
    done = numalab("run", str(study), "--output", str(out))
    assert done.returncode == 4, done.stderr
    kept = out / "runs" / "ring-4_bound-hogs_after_5.failed"
    assert f"kept: {kept}" in done.stderr
    assert "tried again" not in done.stderr
    assert ".running" not in done.stderr
    assert json.loads((kept / "manifest.json").read_text())["status"] == "lost"
    assert (out / "runs" / "ring-4_bound-hogs_again_5" / "manifest.json").exists()
    assert "1 run gave no result" in (out / "changelog.txt").read_text()


def test_a_claim_that_does_not_hold_ends_with_1(tmp_path: Path) -> None:
    study = tmp_path / "wrong.toml"
    claim = 'text = "no time on node 1"\nvariant = "after"\nmeasure = "task_time_share_node1"\n'
    study.write_text(
        STUDY.format(more='mode = "icount"').replace(
            '[variants.again]\nkernel = "debian-6.12"\n', ""
        )
        + f"[[claims]]\n{claim}at_most = 0\n"
    )
    done = numalab("run", str(study), "--output", str(tmp_path / "out"))
    assert done.returncode == 1, done.stderr
    assert "Not seen in every run: no time on node 1" in " ".join(done.stdout.split())


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("boot", "ring-4"), 2, "Missing argument"),
        (("boot", "ring-9", "--", "true"), 2, "'ring-9'; did you mean ring-8? (valid: "),
        (("boot", "ring-2", "--mode", "xen", "--", "true"), 2, "'xen' is not one of"),
        (("boot", "ring-2", "--kernel", "linux-1", "--", "true"), 2, "debian-6.12"),
        (("run", "no-such-study"), 2, "group-construction"),
        (("report", "/no/such/results"), 2, "these are no results"),
        (("run", "group-construction", "--output", "/proc/x"), 3, "cannot create /proc/x"),
        (("run", "group-construction", "--output", "/etc/passwd"), 3, "cannot create /etc/passwd"),
        (("boot", "ring-2", "--keep", "/etc", "--", "true"), 2, "not an empty folder"),
        (("boot", "ring-2", "--keep", "/proc/x", "--", "true"), 3, "/proc/x"),
    ],
)
def test_wrong_words_are_one_message(words: tuple[str, ...], code: int, message: str) -> None:
    done = numalab(*words)
    assert done.returncode == code
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_a_full_disk_is_one_message(tmp_path: Path) -> None:
    """A run whose folder is on a full file system ends with 3 and leaves no guest."""
    small = tmp_path / "small"
    small.mkdir()
    if os.geteuid() != 0:
        pytest.skip("mounting a small file system needs root")
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "none", str(small)], check=True)
    try:
        done = numalab(
            "boot", "ring-2", "--mode", "icount", "--keep", str(small / "run"), "--", "true"
        )
    finally:
        subprocess.run(["umount", str(small)], check=True)
    assert done.returncode == 3, done.stderr
    assert "No space left" in done.stderr
    assert "Traceback" not in done.stderr
    assert not guests(tmp_path)
