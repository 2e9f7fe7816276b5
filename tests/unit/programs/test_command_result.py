"""What a command left, read from its folder: the guest may have left anything."""

import lzma
from dataclasses import replace
from pathlib import Path

import pytest

from numalab.errors import UserError, WorkloadFailed
from numalab.programs.command_result import CommandResult, read_result
from numalab.run_dir import RunDir
from numalab.topology.load import load_topology

RECORDING = Path(__file__).parents[2] / "data/capture/ring-4-numa.dat.xz"
TIMES = "elapsed 2.500000000\nuser 1.250000\nsystem 0.125000\n"
SAMPLES = """@ 1000
pages 40 0:100
@ 2000
pages 40 0:1024 1:3072
pages 41 1:4096
@ 3000
pages 40 0:1000
"""


def left(tmp_path: Path, samples: str = SAMPLES) -> RunDir:
    directory = RunDir(tmp_path / "command-1")
    (directory.out / "files/sub").mkdir(parents=True)
    directory.stdout.write_bytes(b"out \xff\n")
    directory.stderr.write_text("".join(f"line {number}\n" for number in range(30)))
    directory.times.write_text(TIMES)
    directory.samples.write_text(samples)
    (directory.returned / "sub/a").write_bytes(b"\0")
    return directory


def result_of(directory: RunDir, status: int = 3) -> CommandResult:
    return read_result(["./prog", "a b"], directory, status, None)


def test_everything_is_read(tmp_path: Path) -> None:
    result = result_of(left(tmp_path))
    assert (result.status, result.stdout) == (3, "out �\n")
    assert (result.seconds, result.user_seconds, result.system_seconds) == (2.5, 1.25, 0.125)
    assert dict(result.files) == {"sub/a": b"\0"}
    assert result.events is None


def test_what_a_recording_lacks_is_told(tmp_path: Path) -> None:
    directory, whole = left(tmp_path), lzma.decompress(RECORDING.read_bytes())
    directory.trace.write_bytes(whole)
    result = read_result(["true"], directory, 0, load_topology("ring-4"))
    assert result.events is not None and (result.events.height, result.notes) == (3408, ())
    directory.trace.write_bytes(whole.replace(b"\ndropped events: 0", b"\ndropped events: 9"))
    result = read_result(["true"], directory, 0, load_topology("ring-4"))
    assert result.notes[0] == "buffer 'lab', CPU 0: 9 events dropped for lack of room"
    assert f"\nnote: {result.notes[0]}\n" in str(result)


def test_memory_is_that_of_the_fullest_sample(tmp_path: Path) -> None:
    result = result_of(left(tmp_path))
    assert result.memory_kib == {0: 1024, 1: 7168}
    assert result.memory_share(1) == 0.875
    assert result.memory_share(0, 1) == 1
    assert result.memory_share(5) == 0


def test_a_command_without_samples_says_so(tmp_path: Path) -> None:
    result = result_of(left(tmp_path, samples="garbage\n"))
    with pytest.raises(UserError, match="no memory was sampled; say memory=True"):
        result.memory_share(0)


def test_a_failure_shows_what_the_command_printed_last(tmp_path: Path) -> None:
    with pytest.raises(WorkloadFailed) as caught:
        result_of(left(tmp_path)).check()
    text = str(caught.value)
    assert text.startswith("./prog 'a b' exited with 3 after 2.500 s of guest time; memory: node 0")
    assert "stderr: line 29" in text
    assert "line 9\n" not in text
    assert result_of(left(tmp_path / "2"), 0).check().status == 0


def test_a_command_without_its_preloaded_library_failed(tmp_path: Path) -> None:
    directory = left(tmp_path)
    why = "object '/x.so' from LD_PRELOAD cannot be preloaded (file too short): ignored."
    directory.stderr.write_text(f"ERROR: ld.so: {why}\n")
    with pytest.raises(
        WorkloadFailed, match=r"prog 'a b' ran without a library: ERROR: ld\.so: obj"
    ):
        result_of(directory, 0).check()


def test_what_a_guest_printed_cannot_steer_a_terminal(tmp_path: Path) -> None:
    result = replace(result_of(left(tmp_path)), stdout="\x1b]0;owned\x07\n")
    assert "stdout: \\x1b]0;owned\\x07" in str(result)
