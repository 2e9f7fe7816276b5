"""Builds the NUMA levels and the sched domains of every CPU (kernel/sched/topology.c)."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Literal, get_args

from numalab.topology.distances import Matrix
from numalab.topology.predict.firmware import GuestMachine
from numalab.topology.predict.rules import KernelRules

NumaType = Literal["direct", "glueless mesh", "backplane"]
NUMA_TYPES: tuple[NumaType, ...] = get_args(NumaType)  # as `enum numa_topology_type` numbers them


@dataclass(frozen=True)
class NumaLevels:
    """`distances` ascending, local first; `masks[level][node]` are the CPUs within that distance.

    A node that the kernel leaves out, because it has no CPUs, has the mask 0.
    """

    distances: tuple[int, ...]
    masks: tuple[tuple[int, ...], ...]
    type: NumaType


def numa_levels(machine: GuestMachine, rules: KernelRules) -> NumaLevels:
    """Work out the NUMA levels: `sched_init_numa()`, 6.12, kernel/sched/topology.c.

    5.10 (with the sort by bitmap that stable took from 5.12) counts CPU-less nodes as well.
    """
    counted, table = counted_nodes(machine, rules), machine.distances
    if rules.all_distances:
        distances = tuple(sorted({table[a][b] for a in counted for b in counted}))
    else:
        distances = _growing_distances(table)
    masks = []
    for limit in distances:
        level = [0] * len(machine.nodes)
        for a, b in product(counted, counted):
            if table[a][b] <= limit:
                level[a] |= machine.nodes[b]
        masks.append(tuple(level))
    direct = 1 if rules.type_counts_local else 2
    kind = "direct" if len(distances) <= direct else _numa_type(table, distances[-1], counted)
    return NumaLevels(distances, tuple(masks), kind)


def _growing_distances(table: Matrix) -> tuple[int, ...]:
    """Collect the distances of node 0, and those of each further node that are larger.

    `sched_init_numa()` before 5.12 with `sched_debug` on the command line, as guests have it.
    """
    distances = [table[0][0]]
    for row in table:
        distances += sorted({distance for distance in row if distance > distances[-1]})
    return tuple(distances)


def counted_nodes(machine: GuestMachine, rules: KernelRules) -> list[int]:
    """Return the nodes whose distances make levels."""
    nodes = range(len(machine.nodes))
    return [node for node in nodes if machine.nodes[node] or not rules.only_nodes_with_cpus]


def _numa_type(table: Matrix, farthest: int, nodes: Sequence[int]) -> NumaType:
    """Name an indirect machine's type: `init_numa_topology_type()`, 6.12, kernel/sched/topology.c.

    The first pair of nodes at the largest distance decides: the type is a mesh if some node is
    nearer to both, else a backplane.
    """
    pairs = ((a, b) for a, b in product(nodes, nodes) if table[a][b] == farthest)
    if (pair := next(pairs, None)) is None:
        return "direct"
    is_mesh = any(table[pair[0]][c] < farthest and table[pair[1]][c] < farthest for c in nodes)
    return "glueless mesh" if is_mesh else "backplane"


# sd_init() sets these flags of every domain (5.10 to 7.0).
BASE_FLAGS = frozenset(
    {
        "SD_BALANCE_NEWIDLE",
        "SD_BALANCE_EXEC",
        "SD_BALANCE_FORK",
        "SD_WAKE_AFFINE",
        "SD_PREFER_SIBLING",
    }
)
# All other flags need at least two groups (SDF_NEEDS_GROUPS, include/linux/sched/sd_flags.h).
FLAGS_WITHOUT_GROUPS = frozenset({"SD_WAKE_AFFINE"})
# Before 5.10 these did not (sd_parent_degenerate(), 4.12).
_OLD_FLAGS_WITHOUT_GROUPS = FLAGS_WITHOUT_GROUPS | {"SD_SERIALIZE", "SD_OVERLAP", "SD_NUMA"}
FAR_FLAGS = frozenset({"SD_BALANCE_EXEC", "SD_BALANCE_FORK", "SD_WAKE_AFFINE"})


@dataclass(frozen=True)
class Level:
    """One level of the topology: its name, the CPU set of each CPU, flags, whether sets overlap."""

    name: str
    masks: tuple[int, ...]
    flags: frozenset[str]
    overlaps: bool


@dataclass(eq=False)
class Group:
    """A sched group while it is built; `next` is its place in a shared, circular list."""

    span: int
    mask: int
    next: "Group | None" = None


@dataclass(eq=False)
class Domain:
    """A sched domain while it is built: on one CPU, at one level, with the domain below it."""

    cpu: int
    level: int
    name: str
    span: int
    flags: frozenset[str]
    overlaps: bool
    child: "Domain | None"
    parent: "Domain | None" = None
    groups: list[Group] = field(default_factory=list)
    imb_numa_nr: int = 0


@dataclass(frozen=True)
class DomainTree:
    """All domains: `by_level[level][cpu]`, where a CPU may lack a level; `lowest[cpu]`.

    `broken` names the levels at which the kernel enlarges a domain to hold its child
    (`BUG: arch topology borken`).
    """

    by_level: tuple[dict[int, Domain], ...]
    lowest: tuple[Domain, ...]
    broken: tuple[str, ...]


def topology_levels(
    machine: GuestMachine, numa: NumaLevels, rules: KernelRules
) -> tuple[Level, ...]:
    """List the levels, smallest first.

    x86's own levels are those of `build_sched_topology()` (6.12, arch/x86/kernel/smpboot.c; the
    table `x86_topology` in 5.10): SMT, CLS, MC and the package, which is left out when a package
    holds several nodes. QEMU's second-level cache belongs to one core, so CLS equals SMT.
    `sched_init_numa()` adds NODE and one overlapping level for each remote distance.
    """
    llc = rules.llc_flag
    cpus = range(machine.cpu_count)
    levels = [Level("SMT", machine.smt, frozenset({"SD_SHARE_CPUCAPACITY", llc}), False)]
    if rules.cluster_level:
        cluster = {"SD_CLUSTER", llc} if rules.cluster_flag else {llc}
        levels.append(Level("CLS", machine.smt, frozenset(cluster), False))
    levels.append(Level("MC", machine.llc, frozenset({llc}), False))
    own_node = tuple(machine.nodes[machine.node_of_cpu[cpu]] for cpu in cpus)
    if not machine.numa_in_package:
        levels.append(Level(rules.package_level, own_node, frozenset(), False))
    for place, node_masks in enumerate(numa.masks):
        masks = tuple(node_masks[machine.node_of_cpu[cpu]] for cpu in cpus)
        if place == 0:
            if rules.node_level:
                levels.append(Level("NODE", masks, frozenset(), False))
            continue
        flags = {"SD_NUMA"}
        if numa.distances[place] > machine.reclaim_distance:
            flags.add("far")
        levels.append(Level("NUMA", masks, frozenset(flags), True))
    return tuple(levels)


def build_domains(cpu_count: int, levels: tuple[Level, ...], rules: KernelRules) -> DomainTree:
    """Build the domains of every CPU, without groups: the first loop of `build_sched_domains()`.

    A CPU's list ends with the first domain that spans all CPUs (6.12; the same in 5.10 and 7.0).
    """
    all_cpus = (1 << cpu_count) - 1
    by_level: list[dict[int, Domain]] = [{} for _ in levels]
    lowest, broken = [], dict[str, None]()
    flags = [_domain_flags(level, rules) for level in levels]
    for cpu in range(cpu_count):
        child: Domain | None = None
        for place, level in enumerate(levels):
            span = level.masks[cpu]
            if child is not None and child.span & ~span:
                broken[f"{child.name} is not a subset of {level.name}"] = None
                span |= child.span
            domain = Domain(cpu, place, level.name, span, flags[place], level.overlaps, child)
            if child is not None:
                child.parent = domain
            else:
                lowest.append(domain)
            by_level[place][cpu] = domain
            child = domain
            if span == all_cpus:
                break
    return DomainTree(tuple(by_level), tuple(lowest), tuple(broken))


def _domain_flags(level: Level, rules: KernelRules) -> frozenset[str]:
    """Turn a level's properties into flags: `sd_init()`, 6.12 (the same in 5.10 and 7.0)."""
    flags = BASE_FLAGS | (level.flags - {"far"})
    shares_only_cache = rules.llc_flag in flags and "SD_SHARE_CPUCAPACITY" not in flags
    if shares_only_cache and not rules.all_prefer_siblings:
        flags -= {"SD_PREFER_SIBLING"}
    if "SD_NUMA" in flags:
        flags = (flags - {"SD_PREFER_SIBLING"}) | {"SD_SERIALIZE"}
        if "far" in level.flags:
            flags -= FAR_FLAGS
    if level.overlaps:
        flags |= {"SD_OVERLAP"}
    return flags


def set_numa_imbalance(tree: DomainTree, llc_flag: str) -> None:
    """Set the allowed imbalance between nodes: `build_sched_domains()`, 6.0 to 7.0.

    With one last-level cache in a node it is 12.5 % of the node's CPUs, with several it is their
    number; in wider domains it grows in proportion.
    """
    for lowest in tree.lowest:
        imbalance, imbalance_span = 0, 1
        domain: Domain | None = lowest
        while domain is not None:
            child = domain.child
            weight = domain.span.bit_count()
            if llc_flag not in domain.flags and child is not None and llc_flag in child.flags:
                caches = weight // child.span.bit_count()
                imbalance = max(1, weight >> 3 if caches == 1 else caches)
                domain.imb_numa_nr = imbalance
                top = domain.parent
                while top is not None and "SD_NUMA" not in top.flags:
                    top = top.parent
                imbalance_span = top.span.bit_count() if top is not None else weight
            else:
                domain.imb_numa_nr = imbalance * max(1, weight // imbalance_span)
            domain = domain.parent


def attached_domains(lowest: Domain, rules: KernelRules) -> list[Domain]:
    """Return the domains that the kernel keeps, smallest first.

    `cpu_attach_domain()`, 6.12 (also 5.10, 7.0). The lists of groups must be complete.
    """
    kept: list[Domain] = [lowest]
    domain = lowest.parent
    while domain is not None:
        below = kept[-1]
        if _parent_degenerate(below, domain, rules):
            if "SD_PREFER_SIBLING" in domain.flags:
                below.flags |= {"SD_PREFER_SIBLING"}
        else:
            kept.append(domain)
        domain = domain.parent
    return kept[1:] if _degenerate(kept[0]) else kept


def _degenerate(domain: Domain) -> bool:
    """Tell whether a domain does nothing: `sd_degenerate()`, 6.12."""
    if domain.span.bit_count() == 1:
        return True
    if len(domain.groups) > 1 and domain.flags - FLAGS_WITHOUT_GROUPS:
        return False
    return not domain.flags & FLAGS_WITHOUT_GROUPS


def _parent_degenerate(domain: Domain, parent: Domain, rules: KernelRules) -> bool:
    """Tell whether a parent adds nothing to a domain: `sd_parent_degenerate()`, 6.12."""
    if _degenerate(parent):
        return True
    if domain.span != parent.span:
        return False
    wanted = parent.flags
    if len(parent.groups) == 1:
        wanted &= FLAGS_WITHOUT_GROUPS if rules.flag_masks else _OLD_FLAGS_WITHOUT_GROUPS
    return not wanted - domain.flags
