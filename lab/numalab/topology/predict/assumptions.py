"""What a prediction assumes of QEMU and of the host's CPU model, which it does not know."""

from collections.abc import Iterator

from numalab.topology.predict.prediction import Prediction, predict
from numalab.topology.topology import Topology


def assumptions(topology: Topology, prediction: Prediction) -> tuple[str, ...]:
    """Return a sentence for each property of the host that can change this guest."""
    return (
        *_of_qemu(topology, prediction),
        *_of_warnings(prediction),
        *_of_distances(topology, prediction),
    )


def _of_qemu(topology: Topology, prediction: Prediction) -> Iterator[str]:
    older = predict(
        topology,
        prediction.rules,
        construction=prediction.construction,
        vendor=prediction.vendor,
        qemu=(8, 1),
    )
    if older.cpus != prediction.cpus:
        yield (
            "predicted for QEMU 8.2 or later; an older QEMU presents the CPUs of a die as those of "
            "the package, and sched domains differ"
        )


def _of_warnings(prediction: Prediction) -> Iterator[str]:
    for text in prediction.machine.warnings_by_model:
        if text not in prediction.machine.warnings:
            yield (
                "on Haswell-X and Broadwell-X, and before 5.13 on most Intel CPUs, the kernel "
                f'warns "{text}"'
            )


def _of_distances(topology: Topology, prediction: Prediction) -> Iterator[str]:
    """Yield a sentence where `arch_sched_node_distance()` can change distances.

    In 6.19 it replaces the distances between packages of several nodes by their average, since
    7.0 (528d89a4707e) only those between packages of three nodes or more.
    """
    rules, packaging = prediction.rules, topology.packaging
    holders = [node for node in topology.nodes if node.cpus]
    least = 3 if rules.nodes_per_package else 2
    if (
        not rules.averaged_distances
        or prediction.vendor != "intel"
        or -(-len(holders) // packaging.sockets) < least
    ):
        return
    sockets = {node.id: {packaging.socket_of(cpu) for cpu in node.cpus} for node in holders}
    apart = {
        topology.distances[a][b] for a in sockets for b in sockets if not sockets[a] & sockets[b]
    }
    if len(apart) > 1:
        yield (
            "on Granite Rapids and Clearwater Forest this kernel can average the distances between "
            "packages, and then builds other sched domains"
        )
