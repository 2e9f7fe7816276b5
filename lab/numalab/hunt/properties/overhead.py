"""Work of the kernel in a load, to compare with the reference kernel: balancing, scans, interrupts.

The counters are those of `workloads/hunt/counters.h` and of /proc/vmstat.
"""

from numalab.hunt.compare.quantity import Quantity, register_difference
from numalab.hunt.recording import LoadRecording
from numalab.recording.intervals import total

_IDLE = 0.95  # of the time, for a CPU to count as idle
_DEEPEST = 3  # as in counters.h


def _grown(run: LoadRecording, *names: str) -> float | None:
    """Return the growth of counters over the load, a second.

    None if a counter was not printed, or was reset.
    """
    began, ended = run.printed.counters.get("begin", {}), run.printed.counters.get("end", {})
    seconds = run.window.length_ns / 1e9
    if not seconds or any(name not in began or name not in ended for name in names):
        return None
    grown = [ended[name] - began[name] for name in names]
    return sum(grown) / seconds if min(grown) >= 0 else None


def _balancing(run: LoadRecording, *names: str) -> float | None:
    """Return the growth of counters of domains; None if the load may rebuild the domains."""
    return None if run.load.rebuilds_domains else _grown(run, *names)


@register_difference(Quantity("balancing-in-lowest-domain", "a second", 60.0, apart=1.9))
def balancing_lowest(run: LoadRecording) -> float | None:
    """Attempts to balance the lowest domain of a CPU, busy or idle."""
    return _balancing(run, "lb_attempts_0")


@register_difference(Quantity("balancing-in-higher-domains", "a second", 60.0, apart=1.7))
def balancing_higher(run: LoadRecording) -> float | None:
    """Attempts to balance a higher domain of a CPU, busy or idle."""
    return _balancing(run, *(f"lb_attempts_{level}" for level in range(1, _DEEPEST + 1)))


@register_difference(Quantity("newly-idle-balancing", "a second", 60.0, apart=1.8))
def newly_idle(run: LoadRecording) -> float | None:
    """Attempts to balance a domain of a CPU that becomes idle."""
    return _balancing(run, "lb_newidle")


@register_difference(Quantity("failed-balancing", "a second", 60.0, apart=1.8))
def failed(run: LoadRecording) -> float | None:
    """Attempts to balance that found a busiest queue and moved no task."""
    return _balancing(run, "lb_failed")


@register_difference(Quantity("pulled-tasks", "a second", 15.0, apart=2.1))
def pulled(run: LoadRecording) -> float | None:
    """Tasks that load balancing pulled."""
    return _balancing(run, "lb_pulled")


@register_difference(Quantity("active-balancing", "a second", 10.0, apart=1.6))
def active(run: LoadRecording) -> float | None:
    """Attempts to move a running task."""
    return _balancing(run, "lb_active")


@register_difference(Quantity("affine-wake-ups", "a second", 50.0, apart=1.3))
def affine(run: LoadRecording) -> float | None:
    """Wake-ups that wake_affine() moved to the CPU of the waker."""
    return _balancing(run, "wake_affine")


def _for_user(run: LoadRecording, *names: str) -> float | None:
    users = run.memory_users
    grown = _grown(run, *names) if users else None
    return None if grown is None else grown / users


@register_difference(Quantity("numa-scans", "PTEs a second and memory user", 100.0, apart=1.8))
def scans(run: LoadRecording) -> float | None:
    """Page table entries that NUMA balancing changed to provoke faults."""
    return _for_user(run, "numa_pte_updates")


@register_difference(Quantity("numa-faults", "a second and memory user", 100.0, apart=1.6))
def faults(run: LoadRecording) -> float | None:
    """NUMA hinting faults."""
    return _for_user(run, "numa_hint_faults")


@register_difference(Quantity("numa-task-moves", "a second and memory user", 0.5, apart=2.0))
def task_moves(run: LoadRecording) -> float | None:
    """Moves and swaps of tasks by NUMA balancing."""
    users, seconds = run.memory_users, run.window.length_ns / 1e9
    if not users or not seconds:
        return None
    moved = run.events("sched_move_numa", "sched_swap_numa").height
    return moved / seconds / users


@register_difference(Quantity("numa-pages-moved", "a second and memory user", 100.0, apart=1.6))
def pages_moved(run: LoadRecording) -> float | None:
    """Pages that NUMA balancing migrated."""
    return _for_user(run, "numa_pages_migrated")


@register_difference(Quantity("local-numa-faults", "%", 25.0))
def local_faults(run: LoadRecording) -> float | None:
    """The share of NUMA hinting faults on memory of the node where the task runs."""
    every, local = _grown(run, "numa_hint_faults"), _grown(run, "numa_hint_faults_local")
    if not run.memory_users or every is None or local is None or every < 100:
        return None
    return 100.0 * local / every


@register_difference(Quantity("memory-work", "pages a second and memory user", 2000.0, apart=1.06))
def work(run: LoadRecording) -> float | None:
    """Pages that memory users touched."""
    return _for_user(run, "pages_touched")


@register_difference(Quantity("reschedule-interrupts", "a second", 100.0, apart=1.25))
def reschedule(run: LoadRecording) -> float | None:
    """Interrupts to another CPU to reschedule."""
    return _grown(run, "irq_reschedule")


@register_difference(Quantity("function-call-interrupts", "a second", 100.0, apart=1.45))
def calls(run: LoadRecording) -> float | None:
    """Interrupts to another CPU to call a function, such as to wake a task or to balance."""
    return _grown(run, "irq_call")


def _timers(run: LoadRecording, *, idle: bool) -> float | None:
    length = run.window.length_ns
    cpus = [cpu for cpu, spans in run.idle.items() if (total(spans) >= _IDLE * length) is idle]
    away = {change.cpu for change in run.load.hotplug}
    names = [f"irq_timer_{cpu}" for cpu in cpus if cpu not in away]
    grown = _grown(run, *names) if names else None
    return None if grown is None else grown / len(names)


@register_difference(
    Quantity("timer-interrupts-of-idle-cpus", "a second and CPU", 50.0, ("more",), apart=1.4)
)
def timers_idle(run: LoadRecording) -> float | None:
    """Timer interrupts of CPUs that are idle for most of the time."""
    return _timers(run, idle=True)


@register_difference(
    Quantity("timer-interrupts-of-busy-cpus", "a second and CPU", 100.0, apart=1.25)
)
def timers_busy(run: LoadRecording) -> float | None:
    """Timer interrupts of CPUs that are not idle for most of the time."""
    return _timers(run, idle=False)
