"""Properties of what the kernel notes of a task: its utilization, and its preferred node."""

from collections.abc import Iterator

from numalab.hunt.compare.quantity import Quantity, register_difference
from numalab.hunt.loads.load import Load
from numalab.hunt.property import Observation, register_property
from numalab.hunt.recording import MS, LoadRecording
from numalab.recording.intervals import NOTHING, Spans
from numalab.recording.window import Window

# Of kernel/sched/pelt.c in 6.12: a contribution is halved after 32 periods of 1024 * 1024 ns.
_HALF_NS = 32 * (1 << 20)
_SCALE = 1024  # a CPU that is always busy
_LEAST_MS = 400  # until nothing is left of the utilization with which a task begins
_FAIR = ("fair", "batch", "idle")


@register_property("utilization", unit="of 1024", most=250.0, suspect=100.0, any_load=True)
def utilization(run: LoadRecording) -> Iterator[Observation]:
    """A fair task's `util_avg` matches its runtime.

    The value is the largest difference of `se.avg.util_avg` in 1024ths of a CPU from the geometric
    sum of `___update_load_sum()` (kernel/sched/pelt.c, 6.12) over the times at which the task ran,
    when it ran last. A task that did not run in the last 0.4 s is left out.
    """
    if run.window.length_ns < _LEAST_MS * MS or not _stops_soon(run.load):
        return
    for place, part in enumerate(run.load.parts):
        if not _is_tracked(run.load, place):
            continue
        differences = []
        for pid, state in run.printed.task_states.items():
            task, measured = run.load_tasks.get(pid), state.utilization
            if task is None or task.part != place or measured == -1:
                continue
            ran = run.ran_until_stopped.get(pid, NOTHING)
            if len(ran[0]):
                expected = _expected(ran)
                differences.append((abs(measured - expected), measured, expected))
        if differences:
            away, measured, expected = max(differences)
            yield Observation(
                away,
                f"the utilization of a {part.kind} is {measured} of 1024, where its runtime gives"
                f" {expected:.0f}",
            )


@register_property("readiness", unit="of 1024", most=250.0, suspect=100.0, any_load=True)
def readiness(run: LoadRecording) -> Iterator[Observation]:
    """A fair task's `runnable_avg` and `load_avg` match its runnable time.

    The value is the largest difference, as for `utilization`, of `se.avg.runnable_avg`, and of
    `se.avg.load_avg` by weight; the latter of hogs only, as the load of a task that sleeps may stay
    in its queue (`sched_delayed`, kernel/sched/fair.c, 6.12).
    """
    if run.window.length_ns < _LEAST_MS * MS or not _stops_soon(run.load):
        return
    for pid, averages in run.printed.exact.averages.items():
        task, ready = run.load_tasks.get(pid), run.ready_until_stopped.get(pid, NOTHING)
        ends_running = len(run.ran_until_stopped.get(pid, NOTHING)[0])
        if task is None or not (
            ends_running and len(ready[0]) and _is_tracked(run.load, task.part)
        ):
            continue
        expected, weight = _expected(ready), _last_weight(run.load, task.part)
        pairs = [("runnable", averages.runnable)]
        if task.kind == "hog" and weight:
            pairs.append(("load", round(averages.load / weight)))
        away, name, measured = max((abs(got - expected), name, got) for name, got in pairs)
        text = f"a {task.kind} has a {name} average of {measured} of 1024, where it was ready for"
        yield Observation(away, f"{text} {expected:.0f}")


@register_difference(Quantity("memory-on-preferred-nodes", "%", 25.0, apart=3.0))
def memory_on_preferred_nodes(run: LoadRecording) -> float | None:
    """The share of the pages of memory users that is on the node that NUMA balancing prefers.

    It prefers the node of most faults (`task_numa_placement()`, kernel/sched/fair.c, 6.12). Of
    threads that share memory, the first one counts.
    """
    preferred = pages = 0
    for pid, state in run.printed.task_states.items():
        task = run.load_tasks.get(pid)
        if task is None or state.preferred_node < 0:
            continue
        on_node = run.printed.pages.get((task.part, task.number), {})
        preferred += on_node.get(state.preferred_node, 0)
        pages += sum(on_node.values())
    return 100.0 * preferred / pages if pages else None


@register_difference(Quantity("time-on-preferred-nodes", "%", 25.0, apart=3.0))
def time_on_preferred_nodes(run: LoadRecording) -> float | None:
    """The share of the time of memory users, in the last quarter, on the node that they prefer.

    A move goes to the preferred node, or changes it (`task_numa_migrate()`, fair.c of 6.12).
    """
    window = run.window
    late = Window(window.end_ns - window.length_ns // 4, window.end_ns)
    preferred = whole = 0
    for place, part in enumerate(run.load.parts):
        if part.kind != "memory":
            continue
        for pid, cpu, ns in run.time_on(place, late).iter_rows():
            node = (
                run.printed.task_states[pid].preferred_node
                if pid in run.printed.task_states
                else -1
            )
            if node >= 0:
                whole += ns
                preferred += ns * (run.topology.node_of_cpu(cpu) == node)
    return 100.0 * preferred / whole if whole else None


def _stops_soon(load: Load) -> bool:
    """Whether fair tasks get a CPU to stop on: the driver does not wait for those that do not."""
    policies = [*(part.policy for part in load.parts), *(item.policy for item in load.changes)]
    return all(policy in _FAIR for policy in policies if policy)


def _is_tracked(load: Load, place: int) -> bool:
    """Whether the tasks of a part have a clock that never stops, and one class.

    The clock of a throttled group stops (`cfs_rq_clock_pelt()`), and a lock lends a class.
    """
    part = load.parts[place]
    return part.kind != "locker" and not load.has_quota(part)


def _last_weight(load: Load, place: int) -> float | None:
    """Return the weight of a part's tasks at the end; None if no nice level says it."""
    part = load.at_end.parts[place]
    new_policy = any(change.policy for change in load.changes if change.part == place)
    return None if new_policy or part.policy == "idle" else part.weight


def _expected(ran: Spans) -> float:
    """Return the average of what a task did at these times, at the end of the last one."""
    start, stop = ran
    ages = (stop[-1] - stop) / _HALF_NS, (stop[-1] - start) / _HALF_NS
    return float(_SCALE * (0.5 ** ages[0] - 0.5 ** ages[1]).sum())
