"""The guest's programs around a command, compiled and run on the host."""

import subprocess
from pathlib import Path

import pytest

from numalab.artifact.program_artifact import compile_program
from numalab.image.recipe import images_dir

GROWS = """
while sleep 0.05; do kill -CONT $$ 2>/dev/null || exit; done &
kill -STOP $$
before=$(grep -c @ samples)
for _ in $(seq 200); do
    [ $(grep -c @ samples) -gt $((before + 2)) ] && exit 7
    sleep 0.05
done
"""


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("programs")
    for name in ("numalab-run", "marked"):
        source = images_dir() / f"src/{name}.c"
        compile_program(source, folder / name, include=[source.parent])
    return folder


def run(folder: Path, *words: str | Path) -> "subprocess.CompletedProcess[str]":
    """Run a command as init does: in the background of a shell without job control."""
    argv = ["sh", "-c", '"$@" & wait $!', "sh", *map(str, words)]
    return subprocess.run(argv, cwd=folder, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(("signal", "status"), [("INT", 130), ("QUIT", 131)])
def test_a_command_can_be_interrupted(
    programs: Path, tmp_path: Path, signal: str, status: int
) -> None:
    script = f"ulimit -c 0; kill -{signal} $$; echo survived"
    done = run(tmp_path, programs / "numalab-run", ".", "0", "-", "--", "sh", "-c", script)
    assert (done.returncode, done.stdout) == (status, "")


def test_sampling_goes_on_after_a_stop_of_the_command(programs: Path, tmp_path: Path) -> None:
    done = run(tmp_path, programs / "numalab-run", ".", "5", "v", "--", "sh", "-c", GROWS)
    assert done.returncode == 7


@pytest.mark.parametrize(
    ("words", "status", "message"),
    [
        (("sh", "-c", "exit 3"), 3, ""),
        (("sh", "-c", "kill -TERM $$"), 143, ""),
        (("./no-program",), 127, "./no-program: No such file or directory\n"),
        (("/etc/passwd",), 126, "/etc/passwd: Permission denied\n"),
    ],
)
def test_a_marked_command_ends_as_it_would_alone(
    programs: Path, tmp_path: Path, words: tuple[str, ...], status: int, message: str
) -> None:
    done = run(tmp_path, programs / "marked", *words)
    assert done.returncode == status
    assert done.stderr.startswith(message)
