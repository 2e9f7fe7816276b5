"""The trace around the moment that shows a violation best, with what the kernel compared."""

from collections.abc import Iterator, Sequence

import polars as pl

from numalab.cpulist import format_cpulist
from numalab.guest.console import printable
from numalab.hunt.properties.balance import ran_outside
from numalab.hunt.recording import MS, LoadRecording
from numalab.recording.intervals import longest
from numalab.topology.sched_domains import SchedDomain
from numalab.units import counted

_BEFORE, _AFTER = 12, 24  # events that are shown
_NEAR_MS = 200
_CROWD_MS = 100
_MOVES = ("ping-pong", "wandering", "numa-moves")
_IDLE = (
    "idle-neighbours", "lost-time", "reachability", "wake-up-latency", "work-conservation",
)  # fmt: skip
_WAKEUPS = ("sched_wakeup", "sched_wakeup_new")


def render_excerpt(run: LoadRecording, prop: str) -> str:
    """Return the events of the load's tasks around the worst moment, and the state of groups.

    The moment is in the longest time in which a CPU was idle beside a waiting task, or the move
    after which most moves follow (by active balance, if any), or the begin of the longest time
    outside a mask; for tasks that stay uneven, the middle of the settled time. Other properties
    have no such moment: then it is the middle of the load. For each domain of the CPU concerned
    that the kernel printed, the state is what `sched_balance_find_src_group()` compares: tasks and
    idle CPUs of its groups, counted from the events.
    """
    moment, cpu, what = _worst(run, prop)
    lines = [f"{what}, {_ms(run, moment)} ms after the begin of the load."]
    if cpu is not None and (groups := list(_groups(run, moment, cpu))):
        lines += ["", f"What CPU {cpu} compares at that moment, by domain:", *groups]
    lines += ["", "Events of the tasks of the load; times in ms after its begin:", ""]
    return "\n".join([*lines, *_events(run, moment)]) + "\n"


def _ms(run: LoadRecording, time_ns: int) -> str:
    return f"{(time_ns - run.window.start_ns) / MS:.3f}"


def _worst(run: LoadRecording, prop: str) -> tuple[int, int | None, str]:
    """Return the moment in ns, the CPU that decides there (None: unknown), and a sentence."""
    if prop in _MOVES and (move := _crowded_move(run)) is not None:
        time_ns, task, source, target = move
        return time_ns, target, f"Task {task} moves from CPU {source} to CPU {target}"
    if prop == "spread":
        return _uneven(run)
    if prop == "affinity" and (outside := _outside(run)) is not None:
        return outside
    middle = run.window.start_ns + run.window.length_ns // 2
    if prop not in _IDLE:
        return middle, None, f"No one moment shows {prop}; the middle of the load"
    best, cpu = (0, 0), None
    for part in range(len(run.load.parts)):
        if _may_be_throttled(run, part):
            continue  # its tasks do not wait for a CPU only
        for idle_cpu, spans in run.avoidable(part).items():
            if (length_start := longest(spans))[0] > best[0]:
                best, cpu = length_start, idle_cpu
    if cpu is None:
        return middle, None, "No CPU was idle beside a waiting task; the middle of the load"
    length, start = best
    # Some ms later, when the CPU has looked for work.
    later = start + min(length // 2, 20 * MS)
    text = f"CPU {cpu} is idle for {length / MS:.1f} ms while a task waits that may run there"
    return later, cpu, text


def _may_be_throttled(run: LoadRecording, place: int) -> bool:
    """Whether a quota, or the runtime of SCHED_DEADLINE, may stop the tasks of a part."""
    part = run.load.parts[place]
    policies = {part.policy, *(item.policy for item in run.load.changes if item.part == place)}
    return "deadline" in policies or run.load.has_quota(part)


def _uneven(run: LoadRecording) -> tuple[int, int, str]:
    """Return the middle of the settled time, and the emptiest CPU that the tasks may use."""
    middle = run.settled.start_ns + run.settled.length_ns // 2
    runnable = _runnable(run, middle)
    by_count = sorted(run.last_masks(0), key=lambda cpu: (runnable.get(cpu, 0), cpu))
    least, most = (
        f"CPU {cpu} has {counted(runnable.get(cpu, 0), 'task')}"
        for cpu in (by_count[0], by_count[-1])
    )
    return middle, by_count[0], f"{least}, {most}"


def _outside(run: LoadRecording) -> tuple[int, int, str] | None:
    """Return the begin of the longest time of a task on a CPU outside its mask."""
    spans = [spans for place in range(len(run.load.parts)) for _, spans in ran_outside(run, place)]
    if not spans:
        return None
    length = pl.col("end_ns") - pl.col("start_ns")
    longest_first = pl.concat(spans).sort(length, descending=True, maintain_order=True)
    row = longest_first.row(0, named=True)
    task = _task(run, row["pid"], None)
    ms = (row["end_ns"] - row["start_ns"]) / MS
    text = f"Task {task} runs on CPU {row['cpu']}, which is not in its mask, for {ms:.1f} ms"
    return row["start_ns"], row["cpu"], text


def _crowded_move(run: LoadRecording) -> tuple[int, str, int, int] | None:
    moves = _own(run).filter(
        (pl.col("event") == "sched_migrate_task")
        & pl.col("time_ns").is_between(run.settled.start_ns, run.window.end_ns)
        & (pl.col("orig_cpu") != pl.col("dest_cpu"))
    )
    # Active balance, by the stopper of a CPU, moves a task that did not wait.
    active = moves.filter(pl.col("comm").str.starts_with("migration/"))
    moves = moves if active.is_empty() else active
    columns = moves.select("time_ns", "event_comm", "event_pid", "orig_cpu", "dest_cpu").rows()
    times = [int(row[0]) for row in columns]
    if not times:
        return None
    crowd = [sum(0 <= other - time < _CROWD_MS * MS for other in times) for time in times]
    row = columns[crowd.index(max(crowd))]
    return int(row[0]), _task(run, row[2], row[1]), int(row[3]), int(row[4])


def _own(run: LoadRecording) -> pl.DataFrame:
    """Return the events that name a task of the load."""
    pids = list(run.load_tasks)
    named = [pl.col(name).is_in(pids) for name in ("prev_pid", "next_pid", "event_pid")]
    table = run.table.lazy().filter(pl.any_horizontal(named).fill_null(value=False))
    return table.sort("time_ns").collect()


def _task(run: LoadRecording, pid: int | None, comm: str | None) -> str:
    name = run.load_tasks.get(pid or 0)
    return f"{name.kind}{name.part}.{name.number}" if name else printable(comm or "?")


def _groups(run: LoadRecording, moment: int, cpu: int) -> Iterator[str]:
    """Yield the domains of a CPU with their groups, as its kernel printed them, on line CPUs only.

    Nothing for a kernel whose log has none.
    """
    runnable = _runnable(run, moment - 1)
    at = (pl.col("start_ns") <= moment) & (pl.col("end_ns") > moment)
    away = set(run.offline.filter(at)["cpu"])
    for domain in _domains(run, cpu):
        spans = [tuple(other for other in group.span if other not in away)
                 for group in domain.groups]  # fmt: skip
        if sum(map(bool, spans)) < 2:
            continue
        yield f"  domain {format_cpulist(domain.span)}"
        for place, span in enumerate(spans):
            if not span:
                continue
            tasks = sum(runnable.get(other, 0) for other in span)
            idle = sum(not runnable.get(other, 0) for other in span)
            name = "own group" if not place else "group"
            yield (
                f"    {name} {format_cpulist(span)}: {counted(tasks, 'task')} on"
                f" {counted(len(span), 'CPU')}, {idle} idle"
            )


def _domains(run: LoadRecording, cpu: int) -> Sequence[SchedDomain]:
    try:
        return next((entry.domains for entry in run.domains if entry.cpu == cpu), ())
    except (OSError, ValueError):  # the guest wrote the log
        return ()


def _runnable(run: LoadRecording, moment: int) -> dict[int, int]:
    rows = run.queue.filter((pl.col("start_ns") <= moment) & (pl.col("end_ns") > moment))
    return {int(cpu): max(0, int(count)) for cpu, count in rows.select("cpu", "runnable").rows()}


def _events(run: LoadRecording, moment: int) -> Iterator[str]:
    own = _own(run).filter(
        pl.col("time_ns").is_between(moment - _NEAR_MS * MS, moment + _NEAR_MS * MS)
    )
    before = own.filter(pl.col("time_ns") < moment).tail(_BEFORE)
    after = own.filter(pl.col("time_ns") >= moment).head(_AFTER)
    for row in pl.concat([before, after]).iter_rows(named=True):
        mark = ">" if row["time_ns"] == moment else " "
        yield (
            f"{mark}{_ms(run, row['time_ns']):>10}  CPU {row['cpu']:<3} {row['event']:<19}"
            f" {_describe(run, row)}"
        )


def _describe(run: LoadRecording, row: dict[str, object]) -> str:
    def task(pid: str, comm: str) -> str:
        number, name = row[pid], row[comm]
        return _task(run, number if isinstance(number, int) else None, str(name))

    match row["event"]:
        case "sched_switch":
            return f"{task('prev_pid', 'prev_comm')} -> {task('next_pid', 'next_comm')}"
        case "sched_migrate_task":
            return f"{task('event_pid', 'event_comm')}: CPU {row['orig_cpu']} -> {row['dest_cpu']}"
        case name if name in _WAKEUPS:
            return f"{task('event_pid', 'event_comm')} on CPU {row['target_cpu']}"
    return ""
