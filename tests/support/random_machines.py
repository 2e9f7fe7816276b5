"""Random machines as topology files: any graph, uneven nodes, odd packaging, asymmetric tables."""

import json
import random
from itertools import accumulate

from numalab.topology.distances import diameter
from numalab.topology.shapes.shape import SHAPES

KINDS = ("ring", "full", "line", "star", "hypercube", "backplane", "mesh", "torus")
MOST_CPUS, MOST_MIB = 16, 3072  # so that a boot is quick


def random_machine(seed: int) -> str:
    """Return the text of a topology file; nearly all are valid."""
    rng = random.Random(seed)
    nodes = rng.choice((1, 2, 2, 3, 3, 4, 4, 5, 6, 7, 8, 9))
    cpus = _cpus(rng, nodes)
    return "\n".join(
        [
            f'summary = "Random machine {seed}"',
            f"nodes = {nodes}",
            f"cpus = {_written(rng, cpus)}",
            f"memory_mib = {_memory(rng, cpus)}",
            *(table if (table := _table(rng, nodes)) else []),
            *_cpu_table(rng, cpus),
            *([] if table else _shape(rng, nodes)),
            "",
        ]
    )


def _cpus(rng: random.Random, nodes: int) -> list[int]:
    most = max(1, MOST_CPUS // nodes)
    if rng.random() < 0.5:
        return [rng.randint(1, most)] * nodes
    cpus = [rng.choice((0, *range(1, most + 1))) for _ in range(nodes)]
    if not any(cpus):
        cpus[rng.randrange(nodes)] = 1
    return cpus


def _written(rng: random.Random, counts: list[int]) -> str:
    """Write counts, or CPU lists in an order of their own."""
    if rng.random() < 0.7:
        return str(counts)
    order = list(range(sum(counts)))
    rng.shuffle(order)
    lists = []
    for count in counts:
        mine, order = sorted(order[:count]), order[count:]
        lists.append('"' + ",".join(map(str, mine)) + '"')
    return f"[{', '.join(lists)}]"


def _memory(rng: random.Random, cpus: list[int]) -> str:
    share = MOST_MIB // len(cpus)
    memory = [rng.randrange(160, max(share, 168), 8) for _ in cpus]
    if rng.random() < 0.3:
        for node, count in enumerate(cpus):
            if count and rng.random() < 0.4:
                memory[node] = 0
    if not any(memory):
        memory[rng.randrange(len(memory))] = 512
    if sum(memory) < 512:
        memory[memory.index(max(memory))] += 512
    return str(memory)


def _table(rng: random.Random, nodes: int) -> list[str]:
    """Write links with their distances, or a table; nothing where it shall be a shape."""
    kind = rng.choice(("shape", "links", "table", "asymmetric table"))
    if kind == "shape":
        return []
    if kind == "links" and nodes > 1:
        links = {(rng.randrange(node), node) for node in range(1, nodes)}
        links |= {(a, b) for b in range(nodes) for a in range(b) if rng.random() < 0.3}
        return [f"links = {[[a, b, rng.randint(11, 40)] for a, b in sorted(links)]}"]
    values = [*rng.sample(range(11, 120), 4), rng.choice((20, 254, 255))]
    rows = [[10 if a == b else rng.choice(values) for b in range(nodes)] for a in range(nodes)]
    if kind == "table":
        rows = [[rows[min(a, b)][max(a, b)] for b in range(nodes)] for a in range(nodes)]
    return [f"matrix = {rows}"]


def _shape(rng: random.Random, nodes: int) -> list[str]:
    kind = rng.choice(KINDS)
    keys: dict[str, int] = {}
    if kind == "hypercube" and nodes.bit_count() != 1:
        kind = "ring"
    if kind in ("mesh", "torus"):
        rows = rng.choice([n for n in range(1, nodes + 1) if nodes % n == 0])
        keys = {"rows": rows, "columns": nodes // rows}
    if kind == "backplane":
        keys = {"groups": rng.choice([n for n in range(1, nodes + 1) if nodes % n == 0])}
    table = {"kind": kind, "distances": [10], **keys}
    shape = SHAPES.find(kind).model_validate_json(json.dumps(table))
    steps = [rng.randint(1, 20) for _ in range(diameter(shape.hops(nodes)))]
    lines = [f"{key} = {value}" for key, value in keys.items()]
    return [
        "",
        "[shape]",
        f'kind = "{kind}"',
        *lines,
        f"distances = {[*accumulate(steps, initial=10)]}",
    ]


def _cpu_table(rng: random.Random, cpus: list[int]) -> list[str]:
    total = sum(cpus)
    if rng.random() < 0.4:
        return []
    threads = rng.choice([n for n in (1, 2, 2, 4) if total % n == 0])
    dies = rng.choice([n for n in (1, 1, 2) if total % (n * threads) == 0])
    sockets = rng.choice([n for n in (1, 2, 3, 4, 8) if total % (n * dies * threads) == 0] or [0])
    if not sockets:
        return []
    llc = rng.choice(("die", "die", "none"))
    keys = [f"sockets = {sockets}", f"threads = {threads}", f"dies = {dies}", f'llc = "{llc}"']
    return ["", "[cpu]", *keys]
