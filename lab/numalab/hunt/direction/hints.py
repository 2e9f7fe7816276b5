"""What the changed code reads, and the machines and loads that vary it.

A hint is a pattern of identifiers in `kernel/sched/` of Linux 6.12, and the classes of machines and
loads that are drawn more often when changed functions name such an identifier.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from numalab.hunt.loads.kinds import BEYOND, FAR, MASKS, load_traits, machine_traits
from numalab.hunt.loads.load import Load
from numalab.source.c_functions import enclosing_function, function_lines
from numalab.source.changes import FileChange
from numalab.topology.topology import Topology

_CALLERS = 2  # levels of callers
_POWERS = (1.6, 1.0, 0.5)  # of changed functions and files, changed lines, and code around them


@dataclass(frozen=True)
class Hint:
    """A pattern of identifiers, and the weights of classes of machines and of loads."""

    pattern: str
    machines: Mapping[str, float] = field(default_factory=dict)
    loads: Mapping[str, float] = field(default_factory=dict)


HINTS: tuple[Hint, ...] = (
    Hint(r"cpus_(ptr|mask|allowed)|cpumask_|affinity|user_cpus",
         loads={MASKS: 2, "a mask that changes": 2}),
    Hint(r"cpuset|user_cpus|set_cpus_allowed|SCA_",
         loads={"a cpuset that changes": 4, "a mask that changes": 3}),
    Hint(r"partition|rebuild_sched|cpu_attach_domain|rq_attach_root|root_domain|init_rootdomain",
         loads={"partitions": 5}),
    Hint(r"setscheduler|setparam|switched_(to|from)|prio_changed|class_changed|dl_(bw|overflow)",
         loads={"policies that change": 5}),
    Hint(r"sched_move_task|change_group|task_set_group|sched_autogroup",
         loads={"tasks that change their cgroup": 6}),
    Hint(r"propagate|leaf_cfs|(attach|detach)_(entity|task)|tg_load|contrib|removed|is_decayed",
         loads={"tasks that change their cgroup": 5, "policies that change": 2}),
    Hint(r"distance|numa_masks|numa_levels|hops|max_dist", machines={FAR: 3}),
    Hint(r"overlap|descended|domain_span|balance_mask|^topology\.c", machines={FAR: 3}),
    Hint(r"WAKE_AFFINE|wake_affine|reclaim_distance|lowest_rq|later_rq|for_each_domain",
         machines={BEYOND: 4}),
    Hint(r"N_CPU|N_MEMORY|node_state|for_each_.*node|NUMA_NO_NODE|cpumask_of_node|nr_node",
         machines={"nodes without CPUs": 4, "nodes without memory": 3}),
    Hint(r"hotplug|sched_cpu_|cpu_active|rq_o(n|ff)line|balance_push|cpu_dying|partition_sched",
         loads={"a CPU that goes and comes back": 5}),
    Hint(r"smt|core_idle|idle_core|cpu_core|thread_", machines={"SMT": 4}),
    Hint(r"^n?cores(_|$)", machines={"SMT": 4, "uneven nodes": 4}),
    Hint(r"llc|share_cache|idle_scan|(^|_)sis_|wake_wide|update_idle_core|idlest|sd_share",
         machines={"dies": 4}),
    Hint(r"core_idle|idle_core|idle_mask|idle_sibling", loads={"waker": 3, "sleeper": 2}),
    Hint(r"group_weight|group_capacity|span_weight|group_has_capacity|imb",
         machines={"uneven nodes": 2}),
    Hint(r"numa|scan_|preferred|fault|mpol|locality|migrate_pages?",
         loads={"memory": 3, "threads that share memory": 2, "memory that rests": 2}),
    Hint(r"numa_(faults?|preferred|group|placement|migrate)|task_numa|preferred_nid|score_nearby",
         loads={"memory that is bound": 3}),
    Hint(r"scan_(offset|size|seq)|task_numa_work|scan_start|ptenuma|scan_pages",
         loads={"memory scanned in pieces": 5}),
    Hint(r"fork|wake_up_new|idlest|find_dst|child|sg_wakeup|exec_", loads={"forker": 4}),
    Hint(r"busiest|overloaded|avg_load|calculate_imbalance|sd_lb_stats|sg_lb_stats|imbalance",
         loads={"more hogs than CPUs": 2.5}),
    Hint(r"has_spare|fully_busy|idle_cpus|find_idlest|nr_running|sibling_imbalance",
         loads={"fewer hogs than CPUs": 2}),
    Hint(r"ttwu|wake|select_idle|available_idle|select_task_rq",
         loads={"waker": 3, "sleeper": 2, "wakees with masks of their own": 2}),
    Hint(r"cfs_b|throttle|bandwidth|quota|task_group|(^|_)tg(_|$)|cgroup",
         loads={"cgroups": 4}),
    Hint(r"cfs_b|throttle|bandwidth|quota|slack|refill", loads={"quotas": 4}),
    Hint(r"burst|refill", loads={"quotas that are saved": 4}),
    Hint(r"sched_idle|SCHED_IDLE|idle_policy|BATCH", loads={"policy batch or idle": 4}),
    Hint(r"(^|_)pi(_|$)|rt_mutex|boost|prio_changed|setprio", loads={"locker": 4}),
    Hint(r"(^|_)(rt|dl)(_|$)|^rt\.c|^cpupri|pushable|PRIO", loads={"real-time tasks": 4}),
    Hint(r"(^|_)dl(_|$)|^deadline\.c|^cpudeadline|^cpudl", loads={"deadline tasks": 4}),
    Hint(r"place_entity|vlag|(^|_)lag", loads={"sleeper": 3, "waker": 2}),
    Hint(r"nice|(^|_)weight|vruntime|slice|vlag|vdeadline|prio_to", loads={"nice levels": 4}),
    Hint(r"(^|_|min)slice|protect|preempt_short|^v?deadline$", loads={"slices of their own": 5}),
    Hint(r"yield|skip_buddy|forfeit", loads={"hogs that yield": 6}),
    Hint(r"sched_exec|execve|(^|_)EXEC(_|$)", loads={"children that execute a program": 5}),
    Hint(r"reset_on_fork|sched_fork", loads={"children that do not inherit": 4}),
    Hint(r"newidle|nohz|idle_balance|next_balance|avg_idle", loads={"sleeper": 3}),
)  # fmt: skip


@dataclass(frozen=True)
class Bias:
    """Weights of classes of machines and loads; 1 for all others."""

    machines: Mapping[str, float]
    loads: Mapping[str, float]

    def of_machine(self, machine: Topology) -> float:
        """Return the product of the weights of a machine's classes."""
        return _product(self.machines, machine_traits(machine))

    def of_load(self, machine: Topology, load: Load) -> float:
        """Return the product of the weights of a load's classes."""
        return _product(self.loads, load_traits(machine, load))


def bias_of(changes: Iterable[FileChange], sources: Sequence[str] = ()) -> Bias:
    """Return the weights for a patch; `sources` are the texts in which callers are looked up.

    The names of changed functions and files have more than the full weight, identifiers on changed
    lines have it. Others of the changed functions, and the names of functions that call these,
    directly or through another one, have its root.
    """
    changed, around, functions = set[str](), set[str](), set[str]()
    files = set[str]()
    for change in changes:
        files.add((change.new or change.old or "").rpartition("/")[2])
        for part in change.changes:
            changed |= _identifiers(line.text for line in (*part.removed, *part.added))
            for text, number in ((change.before, part.old_start), (change.after, part.new_start)):
                lines = text.split("\n")
                around |= _identifiers(lines[at - 1] for at in function_lines(text, number))
                functions |= {enclosing_function(text, number)} - {""}
    subjects = functions | files
    for _ in range(_CALLERS):
        functions |= set(_callers(functions, sources))
    around |= functions
    machines, loads = dict[str, float](), dict[str, float]()
    for hint in HINTS:
        power = _power(hint, subjects, changed, around)
        for weights, own in ((machines, hint.machines), (loads, hint.loads)):
            for name, weight in own.items():
                weights[name] = max(weights.get(name, 1.0), weight**power)
    return Bias(*({name: w for name, w in some.items() if w > 1} for some in (machines, loads)))


def _power(hint: Hint, *words: Iterable[str]) -> float:
    """Return the power of a hint's weights for the first group of words that it names; else 0."""
    return next((p for p, some in zip(_POWERS, words, strict=True) if _names(hint, some)), 0.0)


def _callers(functions: Iterable[str], sources: Iterable[str]) -> Iterator[str]:
    """Return the functions that name one of `functions` before a parenthesis."""
    called = re.compile(rf"\s.*\b(?:{'|'.join(map(re.escape, sorted(functions)))})\(")
    for text in sources if functions else ():
        for number, line in enumerate(text.split("\n"), 1):
            if called.match(line) and (caller := enclosing_function(text, number)):
                yield caller


def _identifiers(lines: Iterable[str]) -> set[str]:
    return {word for line in lines for word in re.findall(r"[A-Za-z_]\w+", line)}


def _names(hint: Hint, words: Iterable[str]) -> bool:
    return any(re.search(hint.pattern, word) for word in words)


def _product(weights: Mapping[str, float], names: Iterable[str]) -> float:
    product = 1.0
    for name in names:
        product *= weights.get(name, 1.0)
    return product
