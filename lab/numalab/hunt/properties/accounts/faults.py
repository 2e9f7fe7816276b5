"""What the kernel counts of NUMA hinting faults: of threads and NUMA groups, by node."""

from collections import defaultdict
from collections.abc import Iterator

from numalab.hunt.loads.exact_output import ThreadFaults
from numalab.hunt.property import Observation, register_property
from numalab.hunt.recording import LoadRecording

_LEAST = 50  # faults; one pass over 1 MiB has 256


@register_property("numa-faults", unit="faults", most=0.0, any_load=True)
def numa_faults(run: LoadRecording) -> Iterator[Observation]:
    """NUMA hinting faults of nodes, threads and groups add up.

    The value is the largest difference of a thread's faults from those of its nodes, or of a
    group's from its members' (/proc/PID/task/TID/sched: `total_numa_faults`,
    `numa_faults`; task_numa_placement() and task_numa_group(), kernel/sched/fair.c, 6.12). The
    driver may be a member of a group, and children of forkers, in which case none is judged.
    """
    faults = run.printed.exact.faults
    stopped = run.stopped_threads if faults else frozenset()
    for pid in faults.keys() & stopped:
        of_nodes = faults[pid].on_node.values()
        if not of_nodes:  # the output ends there
            continue
        total, nodes = faults[pid].total, sum(node.own for node in of_nodes)
        text = f"a thread has {total} NUMA hinting faults, and {nodes} on all nodes"
        yield Observation(abs(total - nodes), text)
    tasks = faults.keys() & run.load_tasks.keys()
    if not tasks <= stopped or any(part.kind == "forker" for part in run.load.parts):
        return
    groups: defaultdict[int, list[ThreadFaults]] = defaultdict(list)
    for of_thread in faults.values():
        groups[of_thread.group].append(of_thread)
    for group, members in groups.items():
        if group and _rests(members):
            yield _of_group(members)


@register_property("preferred-node", unit="faults", most=0.0, any_load=True)
def preferred_node(run: LoadRecording) -> Iterator[Observation]:
    """A thread without NUMA group prefers the node of its most faults.

    The value is how many more another node has (task_numa_placement(), kernel/sched/fair.c, 5.10
    to 7.3). Where that node has no CPUs, the thread prefers a node that has: any is right, and
    another one weakly wrong, as kernels before 5.18 prefer the node itself. Without cpusets and
    changes of domains: a thread that has no domain of several nodes prefers its own node
    (task_numa_migrate()).
    """
    load = run.load
    if load.rebuilds_domains or any(group.cpus for group in load.groups):
        return
    with_cpus = {node.id for node in run.topology.nodes if node.cpus}
    for pid in run.printed.exact.faults.keys() & run.stopped_threads:
        faults = run.printed.exact.faults[pid]
        own = {node: of_node.own for node, of_node in faults.on_node.items()}
        if faults.group or not any(own.values()):
            continue
        most, preferred = max(own.values()), own.get(faults.preferred_node, 0)
        name = f"node {faults.preferred_node}" if faults.preferred_node >= 0 else "no node"
        text = f"a thread prefers {name}, of {preferred} of its NUMA hinting faults"
        if {node for node, count in own.items() if count == most} <= with_cpus:
            yield Observation(most - preferred, f"{text}, where a node has {most}")
        else:
            right = faults.preferred_node in with_cpus
            text += f", where a node without CPUs has {most}"
            yield Observation(0 if right else most, text, weak=faults.preferred_node >= 0)


def _rests(members: list[ThreadFaults]) -> bool:
    """Whether the group's faults are the same in what was read of each member, one by one."""
    read = [[node.of_group for node in member.on_node.values()] for member in members]
    return all(row == read[0] for row in read)


def _of_group(members: list[ThreadFaults]) -> Observation:
    """Compare the faults of a group with its members' on the node where they differ most."""
    away, node, whole, parts = 0, 0, 0, 0
    for place, on_node in members[0].on_node.items():
        own = [member.on_node[place] for member in members if place in member.on_node]
        for grouped, summed in (
            (on_node.group_private, sum(faults.private for faults in own)),
            (on_node.group_shared, sum(faults.shared for faults in own)),
        ):
            if abs(grouped - summed) >= away:
                away, node, whole, parts = abs(grouped - summed), place, grouped, summed
    text = (
        f"a group of {len(members)} threads has {whole} faults on node {node}, its members {parts}"
    )
    return Observation(away, text)


@register_property("faults-on-bound-memory", unit="%", most=30.0, suspect=15.0, any_load=True)
def faults_on_bound_memory(run: LoadRecording) -> Iterator[Observation]:
    """NUMA hinting faults on bound memory are on its node.

    The value is the share of a part's faults that is counted on other nodes (task_numa_fault(),
    kernel/sched/fair.c, 6.12). Not where the kernel cannot bind memory that is scanned.
    """
    if run.printed.counters.get("end", {}).get("unbound"):
        return
    for place, part in enumerate(run.load.parts):
        users = [
            faults
            for pid, faults in run.printed.exact.faults.items()
            if (task := run.load_tasks.get(pid)) and task.part == place
        ]
        whole = sum(user.total for user in users)
        if part.kind != "memory" or not part.bound or part.node is None or whole < _LEAST:
            continue
        near = sum(user.on_node[part.node].own for user in users if part.node in user.on_node)
        text = f"of {whole} NUMA hinting faults on memory of node {part.node}, {near} count for it"
        yield Observation(100.0 * (whole - near) / whole, text)
