"""Settings of tasks and of children in a guest: the driver reads what it set."""

from pathlib import Path

from numalab.hunt.boot_case import prepare_benches, record_case
from numalab.hunt.case import Case
from numalab.hunt.loads.load_text import parse_loads
from numalab.hunt.property import judge_load
from numalab.kernel.kernel_build import BuiltKernel
from numalab.kernel.patched_kernel import find_kernel
from numalab.run_dir import RunDir
from numalab.topology.load import load_topology

LOADS = parse_loads(
    "time ms=300;hog n=1 cpus=0-3 nice=5;waker n=1 cpus=1-2 wakee=3 policy=rr priority=5;"
    "forker n=1 burst=2 nice=-5 resets=1 run=3000 cpus=0-1;memory n=2 threads=1 cpus=0-3;"
    "sleeper n=1 cpus=0-3 policy=deadline runtime=2000 period=10000;"
    "change at=100 part=0 policy=batch;change at=100 part=3 nice=3"
    "|time ms=900;forker n=1 burst=2 run=200000 cpus=0-3;cpuset from=1 to=0-3 at=150"
)
PROPERTIES = ("affinity", "task-settings", "inherited")


def test_tasks_and_children_have_the_settings_of_the_load(
    kernel: BuiltKernel, tmp_path: Path
) -> None:
    (bench,) = prepare_benches([find_kernel(kernel.spec_name)], "icount", cold=True)
    several, forkers = record_case(Case(load_topology("ring-2"), LOADS), bench, 1, RunDir(tmp_path))
    for load in (several, forkers):
        findings, _ = judge_load(load, PROPERTIES)
        assert {finding.prop: finding.value for finding in findings} == dict.fromkeys(PROPERTIES, 0)
    tasks = several.printed.settings.tasks
    assert {key: len(settings) for key, settings in tasks.items()} == {
        (0, False): 1, (1, False): 1, (1, True): 1, (2, False): 1, (3, False): 2, (4, False): 1,
    }  # fmt: skip
    assert several.printed.settings.children[2] > 10
    born = sum(
        forkers.born[pid] > 0 for pid, task in forkers.load_tasks.items() if task.kind == "child"
    )
    assert forkers.printed.settings.children[0] > born, "children compare themselves later, too"
