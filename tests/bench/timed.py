"""How fast mode timed emulates, with and without the memory model, beside the host QEMU's icount.

`python tests/bench/timed.py` prints what a loop of a shell on each of 8 and 16 vCPUs costs.
"""

import resource
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from numalab.campaign.build import Builds, build
from numalab.emulator.emulator_artifact import ensure_emulator
from numalab.emulator.emulator_specs import find_emulator
from numalab.emulator.memory_plugin_artifact import memory_plugin
from numalab.guest.run import run_guest
from numalab.image.recipe import load_recipe
from numalab.kernel.patched_kernel import find_kernel
from numalab.machine.model import Job, Machine
from numalab.run_dir import RunDir
from numalab.topology.load import load_topology

TOPOLOGIES = {8: "ring-4", 16: "full-2"}
ROUNDS_OF_LOOP = 20_000
LOOPS = """\
began=$(date +%s%N)
for cpu in $(seq 0 $(($(nproc) - 1))); do
    taskset -c $cpu sh -c 'i=0; while [ $i -lt $1 ]; do i=$((i + 1)); done' sh $1 &
done
wait
echo $(($(date +%s%N) - began))
"""


@dataclass(frozen=True)
class Speed:
    """CPU seconds of the host for the loops alone, and the guest's seconds meanwhile."""

    cpu: float
    guest: float


def machines(prepared: Builds, cpus: int) -> Iterator[tuple[str, Machine]]:
    """Yield a machine of so many vCPUs in each way of counting instructions, 4 ns each.

    All guests boot: `measure` takes the difference of two, which both have to have booted.
    """
    kernel = prepared.kernels["debian-6.12"]
    topology = load_topology(TOPOLOGIES[cpus])
    counted = Machine(
        topology,
        kernel.bzimage,
        prepared.image.path,
        "icount",
        1,
        "speed",
        icount_shift=2,
        cold=True,
    )
    emulator = ensure_emulator(find_emulator())
    timed = replace(counted, mode="timed", emulator=emulator.program)
    yield "icount", counted
    yield "timed, no memory model", timed
    yield "timed, memory model", replace(timed, memory_model=memory_plugin(emulator))


def measure(machine: Machine, folder: Path) -> Speed:
    """Run the loops, and nothing; what one costs more than the other is theirs."""
    nothing, _ = _cost(machine, RunDir(folder / "nothing"), 0)
    loops, printed = _cost(machine, RunDir(folder / "loops"), ROUNDS_OF_LOOP)
    return Speed(loops - nothing, int(printed) / 1e9)


def _cost(machine: Machine, directory: RunDir, rounds: int) -> tuple[float, str]:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    outcome = run_guest(machine, Job(("sh", "-c", LOOPS, "sh", str(rounds))), directory)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if outcome.status:
        raise RuntimeError(directory.stderr.read_text())
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return cpu, directory.stdout.read_text()


def main() -> None:
    """Print the speeds of all."""
    prepared = build([find_kernel("debian-6.12")], load_recipe("base"))
    for cpus in TOPOLOGIES:
        for name, machine in machines(prepared, cpus):
            with tempfile.TemporaryDirectory(prefix="numalab-bench-") as folder:
                speed = measure(machine, Path(folder))
            print(f"{cpus} CPUs, {name}: {speed.cpu:.2f} s of CPU, {speed.guest:.2f} s of guest")


if __name__ == "__main__":
    main()
