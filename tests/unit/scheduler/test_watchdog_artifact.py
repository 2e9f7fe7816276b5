"""What goes along with a scheduler: the library of its watchdog, and the reader of statistics."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from numalab.scheduler.in_guest import parse_record, scheduler_in_guest
from numalab.scheduler.scheduler_artifact import BuiltScheduler
from numalab.scheduler.scheduler_spec import find_scheduler
from numalab.scheduler.watchdog_artifact import StallWatchdog, ensure_watchdog

# getpid(2), a call that fails, a BPF call on no map, and one with six arguments (mmap(2)).
CALLS = """
import ctypes, os
call = ctypes.CDLL(None, use_errno=True).syscall
call.restype = ctypes.c_long
assert call(39) == os.getpid()
assert (call(3, 9999), ctypes.get_errno()) == (-1, 9)
attr = ctypes.create_string_buffer(128)
assert call(321, 2, ctypes.byref(attr), 128) == -1
words = [ctypes.c_long(word) for word in (0, 4096, 3, 0x22, -1, 0)]
assert call(9, *words) > 0
"""


@pytest.fixture
def watchdog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StallWatchdog:
    monkeypatch.setenv("NUMALAB_CACHE", str(tmp_path / "cache"))
    return ensure_watchdog(2.5)


def test_other_system_calls_are_as_before(watchdog: StallWatchdog) -> None:
    env = {**os.environ, "LD_PRELOAD": str(watchdog.library), "NUMALAB_WATCHDOG_MS": "2500"}
    done = subprocess.run([sys.executable, "-c", CALLS], env=env, check=False, timeout=60)
    assert done.returncode == 0


def test_the_library_goes_to_the_guest_with_its_length(
    watchdog: StallWatchdog, tmp_path: Path
) -> None:
    program = tmp_path / "scx_true"
    program.write_bytes(Path("/bin/true").read_bytes())
    program.chmod(0o755)
    built = BuiltScheduler(find_scheduler("./scx_true", (), tmp_path), program, "0" * 64)
    part = scheduler_in_guest(built, watchdog)
    assert part.watchdog_ms == watchdog.ms == 2500
    start = part.files["scheduler/start"].decode()
    assert "NUMALAB_WATCHDOG_MS=2500 LD_PRELOAD=/job/files/scheduler/watchdog.so\nexec " in start
    assert part.files["scheduler/watchdog.so"] == watchdog.library.read_bytes()
    plain = scheduler_in_guest(built)
    assert plain.watchdog_ms == 0
    assert b"PRELOAD" not in plain.files["scheduler/start"]


def test_a_program_that_serves_statistics_gets_a_reader(
    watchdog: StallWatchdog, tmp_path: Path
) -> None:
    program = tmp_path / "scx_true"
    program.write_bytes(Path("/bin/true").read_bytes() + b"scx_stats::server")
    program.chmod(0o755)
    built = BuiltScheduler(find_scheduler("./scx_true", (), tmp_path), program, "0" * 64)
    reader = scheduler_in_guest(built).files["scheduler/statistics"]
    (tmp_path / "reader").write_bytes(reader)
    (tmp_path / "reader").chmod(0o755)
    done = subprocess.run([tmp_path / "reader"], capture_output=True, check=False, timeout=60)
    assert (done.returncode, done.stdout) == (1, b"")  # no scheduler serves here


@pytest.mark.parametrize(("line", "ms"), [("watchdog 5000", 5000), ("watchdog x", 0), ("", 0)])
def test_the_record_has_the_length_that_was_set(line: str, ms: int) -> None:
    assert parse_record(f"enabled 1\n{line}\n").watchdog_ms == ms
