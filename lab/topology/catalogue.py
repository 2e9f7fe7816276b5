"""Writes docs/topologies.md: every shipped machine with its picture, table and hazards."""

from collections.abc import Sequence

from lab.topology.export import render_numactl
from lab.topology.model import Topology
from lab.topology.predict.hazards import hazards
from lab.topology.predict.prediction import predict

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

At most 64 nodes and 256 CPUs. `numalab topology schema` prints a JSON Schema for editors
(`docs/topology.schema.json`), `numalab topology check FILE` everything that is wrong with a file
and what about the machine is a hazard to the scheduler.

The kernel numbers nodes by itself: those with CPUs first, in the order of their CPUs, then the
others. Put nodes without CPUs last, and give CPUs to nodes in ascending order, and the guest's
numbers are the file's.

## What is predicted

`numalab topology predict NAME` follows the kernel's own code (5.10, 6.1, 6.12, 7.0, 7.2) and prints
the sched domains and groups that every CPU will have. After a boot the guest's sysfs, debugfs and
`sched_verbose` log are compared with it. `--before-group-fix` builds groups as before Linux 4.13.

The prediction is for QEMU's CPU models: with AMD models the kernel takes the whole socket for the
last-level cache, whatever `dies` and `llc` say; with Intel models it sees both.
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
        f"![{topology.name}]({PICTURES}/{topology.name}.svg)",
        "",
        "```",
        *(line.rstrip() for line in table.splitlines()),
        "```",
        "",
        f"{len(topology.nodes)} nodes, {topology.cpu_count} CPUs, {topology.memory_mib} MiB. "
        f"Linux {prediction.kernel}: {prediction.numa_type}, distances {levels}, up to {depth} "
        "sched domains for a CPU.",
    ]
    if topology.source:
        lines += ["", f"Source: {topology.source}."]
    found = [f"- *{hazard.name}*: {hazard.text}." for hazard in hazards(topology, prediction)]
    return [*lines, "", *found, ""] if found else [*lines, ""]
