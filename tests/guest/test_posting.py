"""A posted reproducer shows in QEMU, without numalab, what numalab found."""

from pathlib import Path

from numalab.hunt.case import Case, machine_of
from numalab.hunt.finding import Finding
from numalab.hunt.loads.load_text import parse_loads
from numalab.hunt.posting.attempt import Attempt, run_script
from numalab.hunt.posting.folder import Kernels, Shown, write_reproducer
from numalab.kernel.kernel_build import BuiltKernel


def test_two_hogs_leave_a_far_cpu_idle(kernel: BuiltKernel, tmp_path: Path) -> None:
    """On a ring of four nodes, 6.12 does not use the CPU two hops away."""
    machine = machine_of(
        'summary = "s"\nnodes = 4\ncpus = 1\nmemory_mib = [512, 256, 256, 256]\n'
        '[shape]\nkind = "ring"\ndistances = [10, 20, 30]\n'
    )
    assert machine is not None
    case = Case(machine, parse_loads("time ms=1500;hog n=2 start=0 cpus=0,2"))
    shown = Shown(case, Finding("reachability", 0, 0.99, 0.5, "node 2 is idle"), (1,))
    kernels = Kernels(("debian-6.12", kernel.bzimage), {}, {})

    def run(folder: Path, name: str, bzimage: Path, seed: int) -> Attempt:
        return run_script(folder, name, bzimage, seed, None)

    posted = write_reproducer(tmp_path, shown, kernels, run)
    (attempt,) = posted.attempts
    assert posted.reproduced is True
    assert attempt.figure is not None
    assert attempt.figure > 600
    assert [row.partition(":")[0] for row in attempt.rows] == [f"CPU {cpu}" for cpu in range(4)]
