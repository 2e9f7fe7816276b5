"""What all importers share: nodes and CPUs numbered anew, and what cannot be a machine."""

import pytest

from numalab.errors import UserError
from numalab.topology.importers.imported import (
    ChangeKind,
    Imported,
    ImportedNode,
    imported_topology,
)
from numalab.topology.importers.packaging import CpuPlace
from numalab.topology.limits import MAX_CPUS, MAX_MEMORY_MIB, MAX_NODES
from numalab.topology.predict.firmware import node_numbers


def imported(
    *nodes: ImportedNode,
    distances: list[list[int]] | None = None,
    places: dict[int, CpuPlace] | None = None,
) -> Imported:
    return imported_topology(nodes, distances, name="x", source="s", file="f", places=places)


def kinds(result: Imported) -> list[ChangeKind]:
    return [change.kind for change in result.changes]


def test_a_machine_with_nothing_to_change_is_taken_as_it_is() -> None:
    result = imported(
        ImportedNode(0, (0, 1), 512), ImportedNode(1, (2, 3), 256), distances=[[10, 15], [25, 10]],
        places={cpu: CpuPlace(cpu // 2, cpu, cpu // 2) for cpu in range(4)},
    )  # fmt: skip
    assert result.changes == () and result.old_cpus == (0, 1, 2, 3)
    assert result.topology.distances == ((10, 15), (25, 10))
    assert [node.memory_mib for node in result.topology.nodes] == [512, 256]


def test_a_source_without_caches_is_said_to_have_none() -> None:
    """Such as the file of `lstopo --no-caches`. A die then seems to share one."""
    result = imported(
        ImportedNode(0, (0, 1), 512), places={cpu: CpuPlace(0, cpu) for cpu in range(2)}
    )
    said = "no caches in the source: the CPUs of a die share one"
    assert [(change.kind, change.text) for change in result.changes] == [
        (ChangeKind.UNKNOWN_PACKAGING, said)
    ]


def test_nodes_follow_their_old_numbers_and_distances_with_them() -> None:
    result = imported(
        ImportedNode(8, (2,), 8), ImportedNode(2, (0,), 2), ImportedNode(5, (), 0),
        distances=[[10, 82, 99], [28, 10, 99], [99, 99, 10]],
    )  # fmt: skip
    assert [node.memory_mib for node in result.topology.nodes] == [2, 8]
    assert result.topology.distances == ((10, 28), (82, 10))
    assert result.notes[:2] == (
        "left out nodes without CPUs and memory: 5",
        "numbered nodes anew: 2 is now 0, 8 is now 1",
    )
    assert kinds(result) == [
        ChangeKind.NODES, ChangeKind.NODES, ChangeKind.UNKNOWN_PACKAGING, ChangeKind.CPU_NUMBERS
    ]  # fmt: skip
    assert result.notes[3].endswith("CPUs 0-1 were 0,2")
    assert (result.old_cpus, result.old_nodes) == ((0, 2), (2, 8))


def test_nodes_without_cpus_come_last_as_in_the_guest() -> None:
    result = imported(
        ImportedNode(0, (0,), 1), ImportedNode(1, (), 2), ImportedNode(2, (1,), 3),
        distances=[[10, 17, 21], [17, 10, 28], [21, 28, 10]],
    )  # fmt: skip
    assert result.topology.distances == ((10, 21, 17), (21, 10, 28), (17, 28, 10))
    assert [node.memory_mib for node in result.topology.nodes] == [1, 3, 2]
    assert result.notes[0] == "numbered nodes anew: 0 is now 0, 2 is now 1, 1 is now 2"
    assert result.old_nodes == (0, 2, 1)
    assert node_numbers(result.topology) == (0, 1, 2)


def test_nodes_of_a_socket_come_together_as_in_the_guest() -> None:
    places = {cpu: CpuPlace(cpu % 2, cpu, cpu % 2) for cpu in range(4)}
    result = imported(*(ImportedNode(n, (n,), 1) for n in range(4)), places=places)
    assert result.old_cpus == result.old_nodes == (0, 2, 1, 3)
    assert node_numbers(result.topology) == (0, 1, 2, 3)


def test_uneven_nodes_follow_their_cpus_as_in_the_guest() -> None:
    result = imported(ImportedNode(0, (1,), 1), ImportedNode(1, (0, 2), 1))
    assert (result.old_cpus, result.old_nodes) == ((0, 1, 2), (1, 0))
    assert node_numbers(result.topology) == (0, 1)


def test_cpus_of_a_core_come_together() -> None:
    """Threads 0 and 2 are one core, 1 and 3 the other."""
    places = {cpu: CpuPlace(0, cpu % 2, 0) for cpu in range(4)}
    result = imported(ImportedNode(0, (0, 1, 2, 3), 64), places=places)
    assert result.old_cpus == (0, 2, 1, 3)
    shape = result.topology.cpu_shape
    assert shape is not None and (shape.cores, shape.threads) == (2, 2)
    assert kinds(result) == [ChangeKind.CPU_NUMBERS]


def test_a_cache_for_each_core_that_had_several_is_a_change() -> None:
    places = {cpu: CpuPlace(0, cpu // 2, cpu) for cpu in range(4)}
    result = imported(ImportedNode(0, (0, 1, 2, 3), 64), places=places)
    assert [(change.kind, change.text) for change in result.changes] == [
        (
            ChangeKind.PACKAGING,
            "threads of a core have caches of their own in the source: each core gets one cache",
        )
    ]


def test_places_of_some_cpus_are_places_of_none() -> None:
    places = {cpu: CpuPlace(0, cpu % 2, 0) for cpu in range(3)}
    result = imported(ImportedNode(0, (0, 1, 2, 3), 64), places=places)
    assert result.old_cpus == (0, 1, 2, 3)
    assert result.notes[0].startswith(
        "no sockets, cores, threads and caches of CPUs 3 in the source"
    )


def test_uneven_nodes_have_no_shape_and_that_is_said() -> None:
    result = imported(ImportedNode(0, (0, 1, 2), 64), ImportedNode(1, (3,), 64))
    assert result.topology.cpu_shape is None
    assert result.changes[-1].kind is ChangeKind.PACKAGING
    assert result.notes[-1].endswith(
        "each CPU becomes a socket of its own, with a cache of its own"
    )


MANY = tuple(ImportedNode(n, (n,), 1) for n in range(MAX_NODES + 1))


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        ((), "no NUMA node found"),
        ((ImportedNode(0, (0,), 1), ImportedNode(0, (1,), 1)), "node 0 is described twice"),
        ((ImportedNode(0, (), 1),), "no node has a CPU"),
        ((ImportedNode(0, (0,), 1), ImportedNode(1, (0,), 1)), "CPU 0 of node 1 is in two nodes"),
        ((ImportedNode(0, (0,), 0),), "no node has memory"),
        ((ImportedNode(0, (0,), MAX_MEMORY_MIB + 1),), f"0 to {MAX_MEMORY_MIB} are possible"),
        ((ImportedNode(0, tuple(range(MAX_CPUS + 1)), 1),), f"at most {MAX_CPUS} are possible"),
        (MANY, f"{MAX_NODES + 1} nodes; at most {MAX_NODES}"),
    ],
)
def test_what_is_no_machine(nodes: tuple[ImportedNode, ...], message: str) -> None:
    with pytest.raises(UserError, match=message):
        imported(*nodes)


@pytest.mark.parametrize(
    ("distances", "message"),
    [
        ([[10]], "not a table of 2 x 2"),
        ([[10, 20], [20]], "not a table of 2 x 2"),
        ([[11, 20], [20, 10]], "node 3 is 11 away from itself"),
        ([[10, 20], [10, 10]], "distance 10 from node 4 to node 3"),
        ([[10, 256], [20, 10]], "distance 256 from node 3 to node 4"),
    ],
)
def test_what_is_no_table_of_distances(distances: list[list[int]], message: str) -> None:
    with pytest.raises(UserError, match=message):
        imported(ImportedNode(3, (0,), 1), ImportedNode(4, (1,), 1), distances=distances)
