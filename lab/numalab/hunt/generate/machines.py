"""Machines from a seed: shapes, graphs and tables, uneven nodes, SMT, dies, no last-level cache.

They are small, so that a boot takes seconds; errors of load balancing show with one or two CPUs
per node. Machines with more hazards (`topology predict`) are more likely.
"""

import json
import random
from collections.abc import Sequence
from itertools import accumulate

from numalab.hunt.case import machine_of
from numalab.topology.distances import diameter
from numalab.topology.predict.groups import Construction
from numalab.topology.predict.hazards import hazards, inseparable_nodes
from numalab.topology.predict.prediction import predict
from numalab.topology.shapes.shape import SHAPES, fitting_keys
from numalab.topology.topology import Topology

MOST_CPUS = 12
NODE_MIB = 256
FIRST_MIB = 512  # the kernel, and the trace
_DRAWN = 4
# Of a node with SMT, by the number of nodes: a choice of idle cores needs several.
_SMT_CPUS = {1: (6, 8, 12), 2: (4, 6), 3: (4,)}
_SMT_UNEVEN = (4, 8)
# Weights of hazards; 1 for all others.
_WORTH = {
    "group construction": 5.0,
    "groups out of their domain": 3.0,
    "nodes that are never balanced": 3.0,
    "renumbered nodes": 0.2,
    "caches not seen": 0.2,
    "a socket for each CPU": 0.0,  # that of every machine with uneven nodes
}


def draw_machine(rng: random.Random, *, smt: bool = False) -> Topology:
    """Return a machine: every second one is selected from several, weighted by hazards.

    With `smt` each node has two cores or more, and each core two CPUs.
    """
    if rng.random() < 0.5:
        return _draw_valid(rng, smt)
    drawn = [_draw_valid(rng, smt) for _ in range(_DRAWN)]
    return rng.choices(drawn, [(1 + worth(machine)) ** 2 for machine in drawn])[0]


def worth(machine: Topology) -> float:
    """Return the sum of the weights of the hazards of a machine."""
    prediction = predict(machine)
    names = {hazard.name for hazard in hazards(machine, prediction)}
    return sum(_WORTH.get(name, 1.0) for name in names)


def far_pairs(machine: Topology) -> list[tuple[int, int]]:
    """Return the pairs of nodes with CPUs between which balancing is most at risk.

    Those that share all groups with the series undo-group-construction; else those more than a hop
    apart; else all.
    """
    ids = [node.id for node in machine.nodes if node.cpus]
    pairs = [(a, b) for a in ids for b in ids if a < b]
    shared = inseparable_nodes(machine, predict(machine, construction=Construction.BEFORE_4_13))
    linked = set(machine.links)
    return shared or [pair for pair in pairs if pair not in linked] or pairs


def _draw_valid(rng: random.Random, smt: bool) -> Topology:
    while True:
        machine = machine_of(_text(rng, smt))
        if machine is not None and machine.cpu_count >= 2:
            return machine


def _text(rng: random.Random, smt: bool) -> str:
    nodes = rng.choice((1, 2, 2, 3)) if smt else rng.choice((1, 2, 2, 3, 4, 4, 4, 5, 6, 6, 8))
    cpus = _smt_cpus(rng, nodes) if smt else _cpus(rng, nodes)
    table = _table(rng, nodes)
    lines = ['summary = "Drawn by numalab hunt"', f"nodes = {nodes}", f"cpus = {cpus}"]
    lines += [f"memory_mib = {_memory(rng, cpus)}", *table]
    lines += _cpu_table(rng, cpus, smt)
    return "\n".join([*lines, *([] if table else _shape(rng, nodes)), ""])


def _smt_cpus(rng: random.Random, nodes: int) -> list[int]:
    """Return the CPUs of each node; of two nodes, one may have twice as many cores."""
    if nodes == 2 and rng.random() < 0.3:
        return rng.sample(_SMT_UNEVEN, 2)
    return [rng.choice(_SMT_CPUS[nodes])] * nodes


def _cpus(rng: random.Random, nodes: int) -> list[int]:
    most = max(1, min(rng.choice((4, 4, 8, MOST_CPUS)), MOST_CPUS // nodes))
    # With one CPU a node there is nothing to balance within it.
    equal = rng.choice((1, *range(2, most + 1), *range(2, most + 1)))
    kind = rng.random()
    if kind < 0.4:
        return [equal] * nodes
    if kind < 0.6:  # one node or several without CPUs, as memory alone has
        cpus = [equal] * nodes
        for node in rng.sample(range(nodes), rng.choice((1, 1, max(1, nodes // 2)))):
            cpus[node] = 0
    else:
        cpus = [rng.choice((0, *range(1, most + 1), *range(1, most + 1))) for _ in range(nodes)]
    return cpus if sum(cpus) > 1 else [1] * nodes


def _memory(rng: random.Random, cpus: Sequence[int]) -> list[int]:
    memory = [FIRST_MIB, *[NODE_MIB] * (len(cpus) - 1)]
    if rng.random() < 0.2:
        for node, count in enumerate(cpus):
            if node and count and rng.random() < 0.4:
                memory[node] = 0
    return memory


def _table(rng: random.Random, nodes: int) -> list[str]:
    kind = rng.choice(("shape", "shape", "links", "table"))
    if kind == "shape" or nodes == 1:
        return []
    if kind == "links":
        links = {(rng.randrange(node), node) for node in range(1, nodes)}
        links |= {(a, b) for b in range(nodes) for a in range(b) if rng.random() < 0.25}
        return [f"links = {[[a, b, rng.choice((16, 20, 21))] for a, b in sorted(links)]}"]
    values = rng.sample((12, 16, 17, 20, 21, 28, 32, 40, 80), rng.choice((2, 3)))
    rows = [[10 if a == b else rng.choice(values) for b in range(nodes)] for a in range(nodes)]
    # Symmetric: with a table that is not, no kernel balances both ways.
    rows = [[rows[min(a, b)][max(a, b)] for b in range(nodes)] for a in range(nodes)]
    return [f"matrix = {rows}"]


def _shape(rng: random.Random, nodes: int) -> list[str]:
    """Draw a shape of the registry, and its keys."""
    choices = {kind: fitting_keys(kind, nodes) for kind in SHAPES.all()}
    fitting = {kind: choice for kind, choice in choices.items() if choice}
    kind = rng.choice(list(fitting))
    keys = rng.choice(fitting[kind])
    shape = SHAPES.find(kind).model_validate({"kind": kind, "distances": (10,), **keys})
    steps = [rng.choice((6, 10, 11)) for _ in range(diameter(shape.hops(nodes)))]
    lines = [f"{key} = {json.dumps(value)}" for key, value in keys.items()]
    distances = [*accumulate(steps, initial=10)]
    return ["", "[shape]", f'kind = "{kind}"', *lines, f"distances = {distances}"]


def _cpu_table(rng: random.Random, cpus: Sequence[int], smt: bool) -> list[str]:
    """Draw how CPUs are packaged; a die or socket has a last-level cache of its own."""
    total, holders = sum(cpus), {count for count in cpus if count}
    if smt:
        sockets, threads = total // min(holders), 2
    elif len(holders) > 1 or rng.random() < 0.3:
        return []
    else:
        per_node = holders.pop()
        threads = rng.choice([n for n in (1, 1, 2, 4) if per_node % n == 0])
        sockets = rng.choice([total // per_node, total // per_node, total // threads])
    cores = total // sockets // threads
    dies = rng.choice([1, *(n for n in (1, 2, 2, 3) if cores % n == 0 and cores // n >= 2)])
    lines = ["", "[cpu]", f"sockets = {sockets}", f"threads = {threads}"]
    return [*lines, f"dies = {dies}"] if dies > 1 else lines
