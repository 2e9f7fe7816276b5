"""Classes of machines and kinds of loads, on a machine that has most of them."""

from numalab.hunt.case import Case, machine_of
from numalab.hunt.loads.kinds import classes
from numalab.hunt.loads.load_text import parse_loads

MACHINE = """
summary = "A line"
nodes = 4
cpus = [2, 1, 0, 1]
memory_mib = [512, 256, 256, 0]
links = [[0, 1, 20], [1, 2, 20], [2, 3, 20]]
"""
LOADS = (
    "time ms=500;hog n=2 cpus=0-3;memory n=1 rest=1 cpus=0-1"
    "|time ms=500;hog n=1 nice=5 cpus=0;sleeper n=1 fifo=3 cpus=0 later=1"
    "|time ms=500;memory n=2 threads=1 cpus=0;cpuset from=0-1 to=0-2 at=200"
    "|time ms=900;waker n=1 cpus=0;hotplug cpu=1 off=300 on=600"
)


def test_each_class_of_the_machine_is_named_once_and_each_kind_with_each_load() -> None:
    machine = machine_of(MACHINE)
    assert machine is not None
    names = list(classes(Case(machine, parse_loads(LOADS))))
    machines = [name.removeprefix("machine: ") for name in names if name.startswith("machine: ")]
    assert machines == [
        "4 nodes",
        "3 levels of sched domains",
        "distances of links",
        "nodes without CPUs",
        "nodes without memory",
        "uneven nodes",
        "hazard renumbered nodes",
        "hazard a socket for each CPU",
        "hazard groups out of their domain",
    ]
    assert [
        name for name in names if name not in {f"machine: {machine}" for machine in machines}
    ] == [
        "load: fewer hogs than CPUs",
        "load: hog",
        "load: memory",
        "load: memory that rests",
        "load: a mask that changes",
        "load: hog",
        "load: nice levels",
        "load: one or two CPUs",
        "load: real-time tasks",
        "load: sleeper",
        "load: a cpuset that changes",
        "load: memory",
        "load: more hogs than CPUs",
        "load: one or two CPUs",
        "load: threads that share memory",
        "load: a CPU that goes and comes back",
        "load: one or two CPUs",
        "load: waker",
    ]


def test_a_shape_and_cores_of_two_cpus_are_named() -> None:
    text = """
summary = "A ring"
nodes = 2
cpus = [4, 4]
memory_mib = [512, 256]
[cpu]
sockets = 2
threads = 2
[shape]
kind = "ring"
distances = [10, 20]
"""
    machine = machine_of(text)
    assert machine is not None
    names = list(classes(Case(machine, ())))
    assert names[:4] == [
        "machine: 2 nodes",
        "machine: 3 levels of sched domains",
        "machine: distances of ring",
        "machine: SMT",
    ]
