"""docs/reference/topologies.md: every shipped machine with its picture, table and hazards."""

from collections.abc import Sequence

from numalab.topology.export import render_numactl
from numalab.topology.model import Topology
from numalab.topology.predict.hazards import hazards
from numalab.topology.predict.prediction import predict

PICTURES = "img/topologies"  # below docs/

INTRODUCTION = """\
# Topologies

A topology is a NUMA machine to build: nodes, CPUs, memory and the table of distances. The files are
in `topologies/`; this page is generated from them (`pytest tests/unit/topology --regenerate`).

## The file

```toml
summary = "Four nodes in a ring"      # one line, shown by `numalab topology list`
source = "where the numbers are from" # for a real machine

nodes = 4
cpus = 2                # of each node; or [2, 2, 0, 2], or ["0-1", "4-5", "2-3", "6-7"]
memory_mib = 768        # of each node; or a list; 0 is a node without memory

[shape]                 # or `links`, or `matrix`: exactly one of the three
kind = "ring"           # ring mesh full line star torus hypercube backplane
distances = [10, 20, 30]  # of 0 hops, 1 hop, 2 hops
```

- `[shape]` kinds `mesh` and `torus` need `rows` and `columns`. A mesh has
  `wiring = "neighbours"` (the default) or `"rows-and-columns"`: a link to every node of the row
  and of the column, so that two hops reach everything. `backplane` has `groups` (default 2) of
  directly connected nodes; its distances are local, within a group, and over the backplane.
- `links = [[0, 1], [1, 2]]` with `distances = [10, 20, 30]` by hop, or `links = [[0, 1, 16],
  [1, 2, 20]]` with the distance of each link: a path costs 10 plus what its links have above 10.
- `matrix` is the SLIT itself, a row for each node. It may be asymmetric; 255 is unreachable.
- `[cpu]` packages the CPUs of the whole machine: `sockets` (by default one for each node with
  CPUs), `dies` in a socket, `threads` in a core, and `llc` (`"die"` or `"none"`). Fewer sockets
  than nodes give several nodes in one socket. CPUs that do not divide evenly become one socket
  each.
- `[[interconnects]]` gives `latency_ns` and `bandwidth_kib_s` from `initiator` to `target` (HMAT),
  for each pair of nodes in one direction.
- `[memory]` says how fast memory is in [`timed` mode](../explanation/timed.md): `latency_ns` (one
  number, scaled by distance, or a whole table), `bandwidth_mb_s`, `link_bandwidth_mb_s`,
  `channels`, `l1_kib`, `l2_kib`, `l2_ns`, `llc_kib`, `llc_ns`, `interrupt_ns`. Each has a default;
  `numalab topology show ring-4` prints what comes out. What makes no sense is refused by its key: a
  level that is smaller or slower than it can be between its neighbours, caches larger than the
  memory, a bandwidth that nothing boots with, and far memory that is faster than near memory,
  unless `far_may_be_nearer = true` says that it is meant.

At most 64 nodes and 256 CPUs. `numalab topology schema` prints a JSON Schema for editors
(`docs/topology.schema.json`). `numalab topology check FILE` prints every error of a file (of TOML
that does not parse, the first one), and the hazards of the machine to the scheduler.

The kernel numbers nodes by itself: those with CPUs first, in the order of their CPUs, then the
others. Put nodes without CPUs last, and give CPUs to nodes in ascending order, and the guest's
numbers are the file's.

A shape of your own is a class in `plugins/*.py` of your lab folder; the modules of
`lab/numalab/topology/shapes/` show how: its keys, its links, and where its nodes are drawn.

## Machines of others

`numalab topology import` makes a file of `numactl -H`, of hwloc's XML, or of a sysfs tree. CPUs are
numbered anew where another numbering hides what they share: QEMU numbers the threads of a core, the
cores of a die and the dies of a socket one after another, and a last-level cache is a die. Packages
that are not even cannot be made. Machines without a table of distances get 20 between nodes, as
kernels have it without one. `numactl -H` lists no sockets, cores, threads and caches: import the
sysfs tree for these. What is changed or unknown is printed, and written into the file as comments;
`--json` has the machine's own numbers as `old_cpus` and `old_nodes`, in the order of the new ones.

A description that contradicts itself is refused with the file and the line: a CPU in two nodes or
twice in a list, a missing or repeated node or row, a line break that may split a number, a CPU
list that is not its mask, memory that is not the sum of its parts. Distances are held to the rules
of the kernel's `slit_valid()`, which drops any other table: 10 from a node to itself, 11 to 255
between nodes. They may be asymmetric. `tests/unit/topology/test_damaged_machines.py` damages words
and lines of random machines in all three formats.

Of the 85 test machines that hwloc 2.9.0 publishes as Linux sysfs or XML, 62 are imported and 23
refused (`tests/fuzz/hwloc_trees.py`): no NUMA nodes in sysfs (6), no memory in any node (3),
distances of 10 or less between nodes (2), more CPUs than a guest can have (4), a CPU in two nodes
(1) or in none (2), a CPU list that is not its mask (5; trees that were edited by hand).

## What is predicted

`numalab topology predict NAME` follows the kernel's own code (5.10 to 7.3) and prints the sched
domains and groups that every CPU will have. After a boot the guest's sysfs, debugfs and kernel log
are compared with it: nodes, distances, the memory that firmware gave each node, domains, flags,
groups, and the kernel's errors and warnings about them. No file of a guest shows
`sched_numa_topology_type` and `imb_numa_nr`: they are compared where the kernel has the series
`show-predicted`, which prints them. `--before-group-fix` builds groups as before 4.13. A kernel
that is newer than 7.3 is predicted, and compared after a boot, with the rules of 7.3, and a note
says so.

The prediction is for QEMU's CPU models: with AMD models the kernel takes the whole socket for the
last-level cache, whatever `dies` and `llc` say; with Intel models it sees both. Before 6.17 (and
6.12.48) a kernel takes each thread of the AMD models for a core.

`tests/fuzz/machines.py` boots random machines (any graph, uneven nodes, nodes without CPUs or
memory, threads, asymmetric tables) and compares each with its prediction. As predicted: 200
of 200 machines on 6.12.117 (seeds 1 to 200) and 50 of 50 each on 5.10.223, 6.1.192 and 7.3.4 (seeds
1 to 50, the first two with the series `relax-at-bring-up`). Two on 6.1 and one on 7.3 were not at
first, nor were a node 0 without memory and a sibling warning before them; all are cured.
"""


def render_catalogue(topologies: Sequence[Topology]) -> str:
    """Render the page about these topologies; pictures are links to `PICTURES/<name>.svg`."""
    parts = [INTRODUCTION, "## The machines", ""]
    for topology in topologies:
        parts += _section(topology)
    return "\n".join(parts).rstrip() + "\n"


def _section(topology: Topology) -> list[str]:
    prediction = predict(topology)
    levels = ", ".join(map(str, prediction.levels.distances))
    depth = max(len(each.domains) for each in prediction.cpus)
    table = render_numactl(topology).split("node distances:\n")[1]
    lines = [
        f"### {topology.name}",
        "",
        f"{topology.summary}.",
        "",
        f"![{topology.name}](../{PICTURES}/{topology.name}.svg)",
        "",
        "```",
        *(line.rstrip() for line in table.splitlines()),
        "```",
        "",
        f"{len(topology.nodes)} nodes, {topology.cpu_count} CPUs, {topology.memory_mib} MiB. "
        f"Linux {prediction.rules.series}: {prediction.numa_type}, distances {levels}, "
        f"up to {depth} sched domains for a CPU.",
    ]
    if topology.source:
        lines += ["", f"Source: {topology.source}."]
    found = [f"- *{hazard.name}*: {hazard.text}." for hazard in hazards(topology, prediction)]
    return [*lines, "", *found, ""] if found else [*lines, ""]
