"""Writes the sysfs and /proc of a server that a test describes, for the readers of a host."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from numalab.cpulist import format_cpulist
from numalab.host.facts import Host, HostCpu, HostNode


@dataclass(frozen=True)
class Server:
    """A server: its nodes' distances, and how CPUs are numbered.

    CPU n < cores is the first thread of core n; its SMT sibling is n + cores, as on most x86
    servers. Cores are dealt out to nodes, nodes to sockets, in order. `llc_cores` share a cache.
    """

    distances: Sequence[Sequence[int]]
    sockets: int
    node_cores: int
    threads: int
    llc_cores: int
    node_mib: int
    ids: Sequence[int] = ()
    isolated: str = ""
    files: dict[str, str] = field(default_factory=dict)

    @property
    def cores(self) -> int:
        return len(self.distances) * self.node_cores

    def threads_of(self, cores: range) -> tuple[int, ...]:
        return tuple(core + n * self.cores for n in range(self.threads) for core in cores)


def small_host(nodes: int, cores: int, threads: int, isolated: tuple[int, ...] = ()) -> Host:
    """A host of nodes in a line; CPU n + all cores is the SMT sibling of CPU n."""
    total = nodes * cores
    cpus = tuple(
        HostCpu(cpu, 0, tuple(range(cpu % total, total * threads, total)), (cpu,), "")
        for cpu in range(total * threads)
    )
    places = tuple(
        HostNode(n, tuple(c.id for c in cpus if c.id % total // cores == n), 1024, 512, ())
        for n in range(nodes)
    )
    distances = tuple(tuple(10 + 10 * abs(a - b) for b in range(nodes)) for a in range(nodes))
    return Host(
        nodes=places,
        distances=distances,
        cpus=cpus,
        isolated=isolated,
        nohz_full=(),
        boost=None,
        numa_balancing=None,
        ksm=None,
        transparent_hugepages="",
        steal_percent=None,
        load=0.0,
    )


def write_tree(server: Server, root: Path) -> Path:
    """Write the files below `root`; `server.files` are written last, over the others."""
    system = "sys/devices/system"
    every = server.threads * server.cores
    texts = {
        f"{system}/cpu/online": f"0-{every - 1}\n",
        f"{system}/cpu/isolated": f"{server.isolated}\n",
        f"{system}/cpu/nohz_full": f"{server.isolated or '(null)'}\n",
        f"{system}/cpu/intel_pstate/no_turbo": "1\n",
        "proc/sys/kernel/numa_balancing": "0\n",
        "sys/kernel/mm/ksm/run": "0\n",
        "sys/kernel/mm/transparent_hugepage/enabled": "always [madvise] never\n",
        "proc/stat": "cpu  1000 0 500 98500 0 0 0 0 0 0\ncpu0 0 0 0 0 0 0 0 0 0 0\n",
        "proc/loadavg": "0.08 0.03 0.01 1/1024 4242\n",
    }
    ids = server.ids or range(len(server.distances))
    per_socket = len(ids) // server.sockets
    for place, (node, row) in enumerate(zip(ids, server.distances, strict=True)):
        cores = range(place * server.node_cores, (place + 1) * server.node_cores)
        folder = f"{system}/node/node{node}"
        texts[f"{folder}/cpulist"] = format_cpulist(server.threads_of(cores)) + "\n"
        texts[f"{folder}/distance"] = " ".join(map(str, row)) + "\n"
        texts[f"{folder}/meminfo"] = (
            f"Node {node} MemTotal: {server.node_mib << 10} kB\n"
            f"Node {node} MemFree: {server.node_mib - 1024 << 10} kB\n"
        )
        for size in (2048, 1 << 20):
            pool = f"{folder}/hugepages/hugepages-{size}kB"
            texts |= {f"{pool}/nr_hugepages": "0\n", f"{pool}/free_hugepages": "0\n"}
        for core in cores:
            texts |= _core(server, core, place // per_socket, f"{system}/cpu")
    for name, text in (texts | server.files).items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return root


def _core(server: Server, core: int, socket: int, folder: str) -> dict[str, str]:
    first = core // server.llc_cores * server.llc_cores
    siblings = server.threads_of(range(core, core + 1))
    texts: dict[str, str] = {}
    for cpu in siblings:
        place = f"{folder}/cpu{cpu}"
        texts |= {
            f"{place}/topology/thread_siblings_list": format_cpulist(siblings) + "\n",
            f"{place}/topology/physical_package_id": f"{socket}\n",
            f"{place}/cpufreq/scaling_governor": "performance\n",
        }
        caches = {0: range(core, core + 1), 3: range(first, first + server.llc_cores)}
        for index, cores in caches.items():
            cache = f"{place}/cache/index{index}"
            texts[f"{cache}/level"] = f"{index or 1}\n"
            texts[f"{cache}/shared_cpu_list"] = format_cpulist(server.threads_of(cores)) + "\n"
    return texts


def _mesh() -> tuple[tuple[int, ...], ...]:
    """Two rows of four; links along rows and columns, as topologies/mesh-8.toml, renumbered.

    Nodes are numbered column by column here, so that a plan has to find the correspondence.
    """

    def distance(a: int, b: int) -> int:
        (column, row), (column_b, row_b) = divmod(a, 2), divmod(b, 2)
        return 10 if a == b else 16 if row == row_b or column == column_b else 22

    return tuple(tuple(distance(a, b) for b in range(8)) for a in range(8))


# The servers of tests/data/machine/hosts; see its README.
SERVERS = {
    "two-node": Server(((10, 21), (21, 10)), 2, 32, 2, 32, 128 << 10),
    "four-node": Server(
        ((10, 12, 32, 32), (12, 10, 32, 32), (32, 32, 10, 12), (32, 32, 12, 10)),
        2, 16, 2, 8, 64 << 10, isolated="4-15,20-31,36-47,52-63",
    ),
    "eight-node": Server(_mesh(), 8, 8, 1, 8, 64 << 10),
}  # fmt: skip
