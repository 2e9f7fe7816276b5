"""A guest whose accesses are counted by region and line: what machine and command get for it."""

import os
import re
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import pytest

from numalab.errors import UserError
from numalab.locality.count_places import count_places
from numalab.machine.model import Machine
from numalab.process import run
from numalab.topology.topology import Topology
from numalab.workload.host_program import GuestCommand

T = TypeVar("T")
SOURCE = """
#include <pthread.h>
static pthread_barrier_t barrier;
int tracing_mark_write(void) { return pthread_barrier_wait(&barrier); }
int ret_from_fork(void) { return 0; }
int main(void) { return tracing_mark_write() + ret_from_fork(); }
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("program")
    (folder / "program.c").write_text(SOURCE)
    run(["gcc", "-O1", "-fno-inline", "-static", "-o", folder / "program", folder / "program.c"])
    return folder / "program"


@pytest.fixture
def guest(three_nodes: Topology) -> Machine:
    path = Path()
    return Machine(three_nodes, bzimage=path, rootfs=path, mode="timed", seed=1, name="guest")


def test_the_command_starts_below_the_recorder_of_mappings(guest: Machine, program: Path) -> None:
    command = GuestCommand(("prog", "-x"), "prog", {"prog": program.read_bytes()})
    machine, counted = count_places(guest, program, command, barriers=False)
    assert counted.argv[0] == "/job/files/numalab-maps"
    assert counted.argv[counted.argv.index("--") + 1 :] == ("prog", "-x")
    assert counted.files["numalab-maps"].startswith(b"\x7fELF")
    listed = run(["nm", program]).stdout
    assert machine.places is not None
    for vaddr, name in (
        (machine.places.mark, "tracing_mark_write"),
        (machine.places.born, "ret_from_fork"),
    ):
        assert re.search(rf"^0*{vaddr:x} T {name}$", listed, re.M)
    assert machine.places.barriers == ()
    assert repr(machine) == repr(guest)  # saved guests of other modes go by it


def test_barriers_are_given_by_place_and_code(guest: Machine, program: Path) -> None:
    command = GuestCommand(("prog",), "prog", {"prog": program.read_bytes()})
    machine, _ = count_places(guest, None, command, barriers=True)
    assert machine.places is not None
    assert (machine.places.mark, machine.places.born) == (0, 0)
    assert machine.places.barriers
    assert all(re.fullmatch(r"[0-9a-f]{1,3}:[0-9a-f]{16,48}", at) for at in machine.places.barriers)
    with pytest.raises(UserError, match="no program or library that goes to the guest has a bar"):
        count_places(guest, None, replace(command, files={"script": b"#!/bin/sh"}), barriers=True)


def test_the_recorder_stays_out_of_the_way(guest: Machine, tmp_path: Path) -> None:
    command = GuestCommand(("true",), "true", {})
    _, counted = count_places(guest, None, command, barriers=False)
    recorder, marks = tmp_path / "numalab-maps", tmp_path / "marks"
    recorder.write_bytes(counted.files["numalab-maps"])
    recorder.chmod(0o755)
    marks.touch()
    words: list[str | Path] = [recorder, tmp_path / "out", marks, "--", "sleep", "60"]
    with subprocess.Popen(words) as sleeper:  # it becomes the command
        try:
            _until(lambda: sleeper.pid not in _processes(recorder))
            (beside,) = _processes(recorder)
            assert _until(lambda: os.sched_getscheduler(beside) == os.SCHED_IDLE)
            assert os.sched_getaffinity(beside) == {max(os.sched_getaffinity(0))}
        finally:
            sleeper.kill()


def _processes(program: Path) -> list[int]:
    """Return the processes that execute a program."""
    running = []
    for link in Path("/proc").glob("[0-9]*/exe"):
        with suppress(OSError):
            if link.readlink() == program:
                running.append(int(link.parent.name))
    return running


def _until(ready: Callable[[], T]) -> T:
    """Wait until a value is true, at most 10 s."""
    for _ in range(1000):
        if value := ready():
            return value
        time.sleep(0.01)
    return ready()
