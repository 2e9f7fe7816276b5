"""Mode timed with real guests: CPUs side by side in virtual time, the same bytes again."""

from dataclasses import replace
from pathlib import Path

import pytest

from numalab.emulator.emulator_artifact import ensure_emulator
from numalab.emulator.emulator_specs import find_emulator
from numalab.errors import GuestLost, HostError
from numalab.machine.model import Machine
from support.guest_types import LIMITS, Boot, MakeMachine

# How long each of n loops takes that have nothing to do with each other, in ns of guest time. Each
# takes its own time: they start one after another.
LOOPS = """\
loop='began=$(date +%s%N); i=0
    while [ $i -lt 8000 ]; do i=$((i + 1)); done
    echo $(($(date +%s%N) - began))'
for n in 1 4 16; do
    for cpu in $(seq 0 $((n - 1))); do
        taskset -c $cpu sh -c "$loop" &
    done
    wait
done
"""
MANY = "nproc; for i in 1 2 3 4 5 6 7 8; do (sleep 0.01; echo $i) & done; wait; cat /proc/stat"


@pytest.fixture
def timed(make_machine: MakeMachine) -> Machine:
    """ring-4 in mode timed, with the emulator that is built unless it is cached."""
    try:
        emulator = ensure_emulator(find_emulator())
    except HostError as error:
        pytest.skip(str(error))
    return replace(make_machine("ring-4", mode="timed"), emulator=emulator.program)


def test_independent_loops_run_side_by_side(
    boot: Boot, timed: Machine, make_machine: MakeMachine
) -> None:
    large = replace(make_machine("full-2", mode="timed"), emulator=timed.emulator)
    outcome, run_dir = boot("sh", "-c", LOOPS, machine=large)
    assert outcome.status == 0
    took = [int(line) for line in (run_dir.out / "stdout").read_text().split()]
    assert len(took) == 1 + 4 + 16
    assert max(took) <= 1.01 * min(took), took


def test_a_seed_gives_the_same_bytes_and_another_one_does_not(boot: Boot, timed: Machine) -> None:
    def run(machine: Machine) -> list[bytes]:
        outcome, run_dir = boot(
            "sh", "-c", MANY, machine=machine, events=("sched:sched_switch", "sched:sched_wakeup")
        )
        assert outcome.status == 0
        files = (run_dir.console, run_dir.trace, run_dir.out / "stdout")
        return [file.read_bytes() for file in files]

    first = run(timed)
    assert run(timed) == first
    assert run(replace(timed, seed=8)) != first


def test_a_panic_leaves_the_trace(boot: Boot, timed: Machine) -> None:
    with pytest.raises(GuestLost) as caught:
        boot(
            "sh", "-c", "sleep 0.1; echo c >/proc/sysrq-trigger",
            machine=timed, events=("sched:sched_switch",), limits=LIMITS,
        )  # fmt: skip
    assert "sysrq triggered crash" in caught.value.tail
    kept = caught.value.kept
    assert kept is not None
    assert any(path.name.startswith("trace") for path in Path(kept).rglob("*"))


def test_the_hosts_own_emulator_is_refused(boot: Boot, timed: Machine) -> None:
    with pytest.raises(HostError, match="numalab emulator build"):
        boot("true", machine=replace(timed, emulator=None))
