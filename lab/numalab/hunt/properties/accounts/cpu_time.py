"""What the kernel tells of CPU time in ticks: of threads, processes, reaped children and CPUs."""

from collections.abc import Iterator

import polars as pl

from numalab.hunt.compare.quantity import Quantity, register_difference
from numalab.hunt.properties.accounts.counts import read_times
from numalab.hunt.properties.accounts.tasks import OF_SWITCH_MS, compared
from numalab.hunt.property import Observation, register_property
from numalab.hunt.recording import MS, LoadRecording
from numalab.recording.events import DEAD_BITS, IDLE_PID
from numalab.recording.spans import spans
from numalab.recording.window import Window

_FEWEST_TICKS = 50  # for a share to mean something
_TICK_MS = 10  # USER_HZ is 100 on all architectures but alpha and ia64


@register_property("user-and-system-time", unit="ms", most=0.0, any_load=True)
def user_and_system_time(run: LoadRecording) -> Iterator[Observation]:
    """User and system time add up to the runtime; nice time is of nice tasks.

    The value is by how much fields 14 and 15 of /proc/PID/stat, each rounded down to 10 ms, are
    above the time of /proc/PID/schedstat, or more than 20 ms below it (cputime_adjust() and
    thread_group_cputime(), kernel/sched/cputime.c, 6.12). Or it is the growth of `nice` of all CPUs
    (/proc/stat; account_user_time()) if no task has a positive nice level, or the runtime of hogs
    of such a level if it does not grow.
    """
    yield from _of_nice_levels(run)
    exact, stopped = run.printed.exact, run.stopped_threads
    for pid, process in exact.processes.items():
        threads = {tid: thread for tid, thread in exact.threads.items() if thread.process == pid}
        if pid not in run.load_tasks or not threads.keys() <= stopped:
            continue
        ran = [(thread.ticks, thread.ran_ns) for thread in threads.values()]
        ran.append((process.ticks, sum(thread.ran_ns for thread in threads.values())))
        away, ticks, ran_ns = max((_outside(*pair), *pair) for pair in ran)
        kind = run.load_tasks[pid].kind
        text = f"a {kind} ran for {ran_ns / MS:.0f} ms, of which {ticks * _TICK_MS} are in ticks"
        yield Observation(away, text)


def _of_nice_levels(run: LoadRecording) -> Iterator[Observation]:
    """Judge the user time of positive nice levels, of all CPUs on line."""
    load, readings = run.load, run.printed.exact.readings
    if len(readings) < 2 or load.hotplug:
        return
    both = (readings["first"].cpus, readings["last"].cpus)
    first, last = (sum(cpu.nice for cpu in cpus.values()) for cpus in both)
    levels = [part.nice for part in load.parts] + [change.nice or 0 for change in load.changes]
    if max(levels, default=0) <= 0:
        ms = (last - first) * _TICK_MS
        yield Observation(abs(ms), f"no task has a positive nice level, and `nice` grew by {ms} ms")
    elif not load.changes:
        hogs = [
            place
            for place, part in enumerate(load.parts)
            if part.kind == "hog" and part.nice > 0 and not part.yields
        ]
        ran = sum(int(run.time_on(place, run.window)["ns"].sum()) for place in hogs) / MS
        if ran >= _FEWEST_TICKS * _TICK_MS:
            text = f"hogs of positive nice levels ran for {ran:.0f} ms, and `nice` grew by"
            text += f" {(last - first) * _TICK_MS} ms"
            yield Observation(0.0 if last > first else ran, text)


def _outside(ticks: int, ran_ns: int) -> float:
    """Return how far, in ms, ticks are from a time of which they are two parts rounded down."""
    rest = ran_ns / MS - ticks * _TICK_MS
    return max(0.0, -rest, rest - 2 * _TICK_MS)


@register_difference(Quantity("system-time-of-hogs", "%", 5.0, apart=2.0))
def system_time_of_hogs(run: LoadRecording) -> float | None:
    """System time of hogs."""
    hogs = [
        process
        for pid, process in run.printed.exact.processes.items()
        if (task := run.load_tasks.get(pid)) and task.kind == "hog"
        if not run.load.parts[task.part].yields
    ]
    ticks = sum(hog.ticks for hog in hogs)
    return 100.0 * sum(hog.system for hog in hogs) / ticks if ticks >= _FEWEST_TICKS else None


@register_property("reaped-time", unit="%", most=40.0, suspect=20.0, any_load=True)
def reaped_time(run: LoadRecording) -> Iterator[Observation]:
    """Reaped children's reported time matches the trace.

    The value is the difference in % of what dead children ran in the trace, to which 20 ms for each
    forker and half a ms for each switch are added (fields 16 and 17 of /proc/PID/stat, proc(5);
    wait_task_zombie(), kernel/exit.c). The last children of each forker may wait to be reaped.
    """
    for place, part in enumerate(run.load.parts):
        forkers = [
            process
            for pid, process in run.printed.exact.processes.items()
            if (task := run.load_tasks.get(pid)) and (task.kind, task.part) == ("forker", place)
        ]
        if part.kind != "forker" or len(forkers) < part.count:
            continue
        ran = _dead_children(run, place)
        least = 2 * _TICK_MS * part.count + OF_SWITCH_MS * int(ran["turns"].sum())
        reaped_ms = sum(process.reaped for process in forkers) * _TICK_MS
        last_ms = int(ran.tail(part.count * part.burst)["ns"].sum()) / MS
        all_ms = int(ran["ns"].sum()) / MS
        traced_ms = min(max(reaped_ms, all_ms - last_ms), all_ms)
        value, text = compared(reaped_ms, traced_ms, least, "ms on CPUs")
        yield Observation(value, f"the children of forkers have {text}")


def _dead_children(run: LoadRecording, place: int) -> pl.DataFrame:
    """Return how long the children of forkers ran, in ns, in how many turns, that died before the
    stop, in the order of their deaths."""
    table = run.until_stopped
    dead = table.filter(
        (pl.col("prev_state") & DEAD_BITS) != 0,
        pl.col("prev_comm").str.starts_with(f"child{place}."),
    )
    if dead.is_empty():
        return pl.DataFrame(schema={"ns": pl.Int64, "turns": pl.Int64})
    all_of = spans(table, Window(int(table["time_ns"][0]), run.stopped_ns))
    mine = all_of.filter(pl.col("pid").is_in(dead["prev_pid"].to_list()))
    length = pl.col("end_ns") - pl.col("start_ns")
    children = mine.group_by("pid").agg(
        ns=length.sum(), turns=pl.len().cast(pl.Int64), died_ns=pl.col("end_ns").max()
    )
    return children.sort("died_ns", "pid").select("ns", "turns")


@register_property("idle-time", unit="ms", most=100.0, suspect=20.0, any_load=True)
def idle_time(run: LoadRecording) -> Iterator[Observation]:
    """A CPU's reported idle time is at most the traced one.

    The value is the largest excess of /proc/stat in ms (`idle` and `iowait`, proc(5);
    tick_nohz_stop_idle(), kernel/time/tick-sched.c, 6.12). A CPU may have less: interrupts end its
    idle time, and in mode icount CPUs wait for their turn in them. Weak: kernels that count ticks
    may have more (CONFIG_TICK_CPU_ACCOUNTING).
    """
    times, readings = read_times(run), run.printed.exact.readings
    if times is None or run.load.hotplug:
        return
    window = Window(times.first[1], times.last[0])
    all_of = spans(run.table.lazy().collect(), window, run.cpus).filter(pl.col("pid") == IDLE_PID)
    length = (pl.col("end_ns") - pl.col("start_ns")).sum()
    idle_ns = dict(all_of.group_by("cpu").agg(length).iter_rows())
    for cpu, last in readings["last"].cpus.items():
        if (first := readings["first"].cpus.get(cpu)) is not None:
            grown, traced = (last.idle - first.idle) * _TICK_MS, idle_ns.get(cpu, 0) / MS
            text = f"CPU {cpu} was idle for {traced:.0f} ms, and {grown} in /proc/stat"
            yield Observation(max(0.0, grown - traced), text, weak=True)
