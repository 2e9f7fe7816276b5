"""A QEMU that has become ours is collected, whatever else has."""

import shutil
import signal
import subprocess
import sys
from pathlib import Path

# Runs apart, because a process is a child subreaper for good. An orphan that nobody collects comes
# first; then something that is called like QEMU, in a session of its own, and is killed.
SCRIPT = """
import os, subprocess, sys, time
from pathlib import Path
from numalab.host.processes import adopt_orphans, killed_by

def orphan(command):
    shell = ["sh", "-c", f"{command} >&2 & echo $!"]
    return int(subprocess.run(shell, stdout=subprocess.PIPE, check=True).stdout)

def wait(what):
    deadline = time.monotonic() + 60
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.01)

def state(pid):
    path = Path(f"/proc/{pid}/stat")
    return path.read_text().rpartition(")")[2].split()[0] if path.exists() else "gone"

adopt_orphans()
other = orphan("sleep 0.1")
wait(lambda: state(other) == "Z")
qemu = orphan(f"exec setsid {sys.argv[1]} 600")
wait(lambda: Path(f"/proc/{qemu}/comm").read_text().startswith("qemu-system-"))
os.kill(qemu, 9)
wait(lambda: state(qemu) == "gone")
print(killed_by(qemu), state(other))
"""


def test_a_qemu_is_collected_beside_an_orphan_that_is_not(tmp_path: Path) -> None:
    qemu = tmp_path / "qemu-system-none"
    shutil.copy2(shutil.which("sleep") or "/bin/sleep", qemu)
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(qemu)],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [str(int(signal.SIGKILL)), "Z"]
