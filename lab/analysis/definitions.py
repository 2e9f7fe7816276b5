"""Every measure that the project can take of a run, defined once. docs/measures.md says more."""

from lab.analysis.definition import Definition, Direction


def _of(name: str, unit: str, direction: Direction, source: str, definition: str) -> Definition:
    return Definition(name, unit, direction, "placement", definition, source)


_WINDOW = "the window (from `numalab: begin` to `numalab: end`)"


def _timing(name: str, unit: str, source: str, definition: str) -> Definition:
    return Definition(name, unit, "lower", "timing", definition, source)


_COMMAND = "of the workload's command, by the guest's own clock"
# Counts of the CPU itself, which an emulated one does not have and which depend on real time.
_HARDWARE = (
    *("cache_misses", "cache_references", "cycles", "instructions", "branch_misses"),
    *("LLC_load_misses", "node_loads", "node_load_misses"),
)

_TO_PREFERRED: tuple[tuple[str, Direction, str], ...] = (
    ("nearer", "higher", "nearer to"),
    ("as_near", "none", "without a change in distance to"),
    ("farther", "lower", "farther from"),
)

DEFINITIONS: tuple[Definition, ...] = (
    _of(
        "task_time_share_node{node}",
        "%",
        "none",
        "trace: sched_switch",
        f"Of the CPU time that the tasks of interest had in {_WINDOW}, the share on node {{node}}.",
    ),
    _of(
        "task_busy_share_cpu{cpu}",
        "%",
        "none",
        "trace: sched_switch",
        f"The share of {_WINDOW} in which a task of interest ran on CPU {{cpu}}.",
    ),
    _of(
        "task_busy_share_min",
        "%",
        "higher",
        "trace: sched_switch",
        "The smallest task_busy_share_cpu of the allowed CPUs.",
    ),
    _of(
        "idle_while_overloaded",
        "%",
        "lower",
        "trace: sched_switch, sched_wakeup, sched_wakeup_new, sched_migrate_task",
        f"The share of {_WINDOW} in which an allowed CPU had no runnable task while another "
        "allowed CPU had two or more. A task being migrated counts on its destination from "
        "the moment of sched_migrate_task.",
    ),
    _of(
        "unknown_time",
        "%",
        "lower",
        "trace: lost events",
        f"The share of {_WINDOW} in which events of an allowed CPU were lost; it is left out of "
        "idle_while_overloaded.",
    ),
    _of(
        "tasks_final_node{node}",
        "tasks",
        "none",
        "trace: sched_switch, sched_wakeup, sched_migrate_task",
        f"How many tasks of interest were last on node {{node}} at the end of {_WINDOW}.",
    ),
    _of(
        "task_migrations",
        "migrations",
        "none",
        "trace: sched_migrate_task",
        f"How often a task of interest was moved to another CPU in {_WINDOW}.",
    ),
    _of(
        "task_node_migrations",
        "migrations",
        "none",
        "trace: sched_migrate_task",
        f"How often a task of interest was moved to a CPU of another node in {_WINDOW}.",
    ),
    _of(
        "task_migrations_node{a}_node{b}",
        "migrations",
        "none",
        "trace: sched_migrate_task",
        f"How often a task of interest was moved between nodes {{a}} and {{b}}, either way, in "
        f"{_WINDOW}.",
    ),
    _of(
        "task_node_changes",
        "changes",
        "none",
        "trace: sched_switch",
        f"How often a task of interest ran on another node than the time before in {_WINDOW}: "
        "migrations as they took effect. Two moves without running in between are one change.",
    ),
    _of(
        "sched_move_numa",
        "events",
        "none",
        "trace: sched_move_numa",
        f"How often NUMA balancing chose to move a task to a CPU of another node in {_WINDOW}.",
    ),
    _of(
        "sched_swap_numa",
        "events",
        "none",
        "trace: sched_swap_numa",
        f"How often NUMA balancing chose to swap two tasks in {_WINDOW}.",
    ),
    _of(
        "sched_stick_numa",
        "events",
        "none",
        "trace: sched_stick_numa",
        f"How often NUMA balancing wanted to move or swap a task and could not in {_WINDOW}.",
    ),
    _of(
        "numa_move_success",
        "%",
        "higher",
        "trace: sched_move_numa, sched_swap_numa, sched_stick_numa",
        f"Of the attempts of NUMA balancing in {_WINDOW}, those that moved or swapped a task. An "
        "attempt is a move, a swap, or a stick that does not answer one of these.",
    ),
    _of(
        "numa_sticks_no_destination",
        "events",
        "none",
        "trace: sched_stick_numa",
        f"How often NUMA balancing found no CPU that is better in {_WINDOW}.",
    ),
    _of(
        "numa_sticks_failed",
        "events",
        "lower",
        "trace: sched_stick_numa",
        f"How often a move or swap that it announced failed, or the task might not run there, in "
        f"{_WINDOW}.",
    ),
    _of(
        "numa_moves_hops",
        "hops",
        "none",
        "trace: sched_move_numa, sched_swap_numa",
        "The mean hops that NUMA balancing moved a task by. Nodes are one hop apart more for each "
        "smaller distance between any two nodes that there is.",
    ),
    _of(
        "numa_moves_undone",
        "moves",
        "lower",
        "trace: sched_move_numa, sched_swap_numa, sched_migrate_task",
        f"How many moves of NUMA balancing to another node in {_WINDOW} were taken back within a "
        "second, by whomever.",
    ),
    *(
        _of(
            f"numa_moves_{name}",
            "moves",
            direction,
            "trace: sched_move_numa, sched_swap_numa; guest: /proc/PID/sched",
            f"How many tasks NUMA balancing moved {how} their preferred node in {_WINDOW}.",
        )
        for name, direction, how in _TO_PREFERRED
    ),
    _of(
        "task_ping_pongs",
        "moves",
        "lower",
        "trace: sched_migrate_task",
        f"How often a task of interest was moved to another node in {_WINDOW}, and with its next "
        "move between nodes, within a second, back.",
    ),
    _of(
        "storms",
        "storms",
        "lower",
        "trace: sched_migrate_task",
        f"How often in {_WINDOW} balancing (no wake-up) sent eight different tasks to one CPU, or "
        "four times as many as it has CPUs (eight at least) to one node from others, within 10 ms.",
    ),
    *(
        _of(
            f"node_moves_{name}",
            "moves",
            "none",
            "trace: sched_migrate_task, sched_move_numa, sched_swap_numa, sched_switch",
            f"How often {who} moved any task to another node in {_WINDOW}.",
        )
        for name, who in (
            ("numa", "NUMA balancing"),
            ("load_balancer", "the load balancer"),
            ("wake_up", "a wake-up"),
            ("stopper", "a CPU's stopper (active balance, affinity, exec)"),
        )
    ),
    _of(
        "numa_moves_rebalanced",
        "moves",
        "lower",
        "trace: sched_migrate_task, sched_move_numa, sched_swap_numa, sched_switch",
        "How many of the moves of NUMA balancing to another node the load balancer (or an active "
        "balance) took back within a second.",
    ),
    *(
        _of(
            f"{level}_converged",
            "%",
            "none",
            "trace: sched_switch",
            f"Of the {of}, those that converged: at some moment before the last fifth of the "
            "window, and at every later one, 80 % of the CPU time left until the end was on one "
            "node.",
        )
        for level, of in (
            ("tasks", "tasks of interest that ran in the window"),
            ("processes", "processes of tasks of interest whose threads are known"),
        )
    ),
    *(
        Definition(
            f"{level}_convergence_time",
            "s",
            "lower",
            "timing",
            f"When the last of the {of} converged, since the window began; none when one never "
            "did.",
            "trace: sched_switch",
        )
        for level, of in (
            ("task", "tasks of interest"),
            ("process", "processes of tasks of interest"),
        )
    ),
    Definition(
        "even_spread_time",
        "s",
        "lower",
        "timing",
        "Since when, until the end of the window, every node with allowed CPUs had at least 80 % "
        "of its even share of the CPU time of the tasks of interest; none for never.",
        "trace: sched_switch",
    ),
    Definition(
        "longest_idle_while_overloaded",
        "ms",
        "lower",
        "timing",
        "The longest time for which one allowed CPU had no runnable task while another had two or "
        "more.",
        "trace: sched_switch, sched_wakeup, sched_wakeup_new, sched_migrate_task",
    ),
    _of(
        "queue_imbalance",
        "tasks",
        "lower",
        "trace: sched_switch, sched_wakeup, sched_wakeup_new, sched_migrate_task",
        "How many more tasks were runnable for each allowed CPU on the fullest node than on the "
        "emptiest, the mean over slices of the window.",
    ),
    _of(
        "numa_local_faults",
        "%",
        "higher",
        "/proc/vmstat: numa_hint_faults_local, numa_hint_faults",
        "Of the NUMA hinting faults, those on memory of the node that the task ran on.",
    ),
    _of(
        "autonuma_cost",
        "Maccesses",
        "lower",
        "/proc/vmstat: numa_pte_updates, numa_hint_faults, numa_pages_migrated",
        "What NUMA balancing cost, as mmtests estimates it, in millions of accesses of 8 bytes: 7 "
        "for a PTE update, 5000 for a hinting fault, 19 for a page migrated, copying left out.",
    ),
    _of(
        "task_faults_preferred",
        "%",
        "higher",
        "guest: /proc/PID/sched",
        "Of the NUMA faults that the kernel remembered of the tasks of interest at the last sample "
        f"of each in {_WINDOW}, those on memory of the task's preferred node.",
    ),
    _of(
        "task_faults_shared",
        "%",
        "none",
        "guest: /proc/PID/sched",
        "Of these NUMA faults, those on memory that another task had touched last.",
    ),
    _of(
        "tasks_on_preferred",
        "%",
        "higher",
        "guest: /proc/PID/sched; trace: sched_switch, sched_wakeup, sched_migrate_task",
        "Of the tasks of interest that had a preferred node at their last sample, those that were "
        f"last on a CPU of it at the end of {_WINDOW}.",
    ),
    _of(
        "numastat_{counter}_node{node}",
        "pages",
        "none",
        "guest: numastat of each node",
        "How much the counter {counter} of node {node} grew from before the capture to after the "
        "command.",
    ),
    _of(
        "allocations_local",
        "%",
        "higher",
        "guest: numastat of each node, local_node, other_node",
        "Of the pages allocated by anybody, those of the node whose CPU asked for them.",
    ),
    _of(
        "allocations_astray",
        "%",
        "lower",
        "guest: numastat of each node, numa_miss, numa_hit",
        "Of the pages allocated by anybody, those that came from another node than was wanted.",
    ),
    _timing(
        "schedstat_wait_time",
        "s",
        "guest: /proc/schedstat",
        "How long tasks waited for a CPU that was busy with others, all tasks and CPUs together, "
        "from before the capture to after the command.",
    ),
    _timing(
        "schedstat_wait_mean",
        "ms",
        "guest: /proc/schedstat",
        "schedstat_wait_time for each time slice that a task was given.",
    ),
    _of(
        "vmstat_{counter}",
        "count",
        "none",
        "/proc/vmstat",
        "How much the counter {counter} grew from before the capture to after the command.",
    ),
    _timing("elapsed_time", "s", "guest: clock", f"Elapsed time {_COMMAND} (CLOCK_MONOTONIC)."),
    _timing(
        "user_time",
        "s",
        "guest: getrusage",
        f"CPU time in user mode {_COMMAND}, and of its descendants that were waited for.",
    ),
    _timing(
        "system_time",
        "s",
        "guest: getrusage",
        f"CPU time in the kernel {_COMMAND}, and of its descendants that were waited for.",
    ),
    *(
        _timing(
            f"perf_{event}",
            "events",
            "perf stat",
            f"How often perf counted {event} on all CPUs while the command ran.",
        )
        for event in _HARDWARE
    ),
    _of(
        "perf_{event}",
        "events",
        "none",
        "perf stat",
        "How often perf counted {event} on all CPUs while the command ran.",
    ),
)
