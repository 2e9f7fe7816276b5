"""What the host did to QEMU's threads: how often they were switched out, how long they waited.

A vCPU that has a host CPU to itself is hardly ever switched out against its will. Where it is, or
where a hypervisor below takes the host CPU away, time passes that the guest's own clock counts and
its tasks did not use.
"""

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from numalab.cpulist import format_cpulist
from numalab.host.facts import Disturbance, DisturbanceKind

_TICK_MS = 10  # USER_HZ is 100 on x86 (proc(5): sysconf(_SC_CLK_TCK))
# A vCPU above one of these did not have its host CPU to itself.
MOST_SWITCHES = 10.0  # involuntary, in a second
MOST_LOST = 0.01  # of the time, waited for the host CPU or stolen from it


@dataclass(frozen=True)
class ThreadUsage:
    """A thread of QEMU: switches and faults (numbers), time it ran and waited for a CPU (ms).

    The times are None where the host's kernel does not count them. `vcpus` are those that it runs.
    """

    role: str
    thread: int
    voluntary: int
    involuntary: int
    minor_faults: int
    major_faults: int
    ran_ms: float | None
    waited_ms: float | None
    vcpus: tuple[int, ...] = ()


@dataclass(frozen=True)
class Usage:
    """What happened within `seconds` of wall time.

    `stolen_ms`: by host CPU of the plan, time that a hypervisor below took from it; empty where the
    host does not tell. It is counted in steps of 10 ms.
    """

    seconds: float
    threads: tuple[ThreadUsage, ...]
    stolen_ms: Mapping[int, int] = field(default_factory=dict)


def role_in_words(vcpus: Sequence[int], name: str) -> str:
    """Say what a thread does: the vCPUs that it runs, or else its own name."""
    return f"vcpu {format_cpulist(vcpus)}" if vcpus else name


def read_usage(pid: int, vcpus: Mapping[int, tuple[int, ...]], cpus: Iterable[int]) -> Usage:
    """Read what QEMU process `pid` has used since it started, and what was stolen since boot.

    `vcpus` says which ones a thread runs. `seconds` is the moment, on the monotonic clock. Without
    any thread when the process is gone.
    """
    threads = []
    try:
        folders = sorted(Path(f"/proc/{pid}/task").iterdir(), key=lambda path: int(path.name))
    except OSError:
        folders = []
    for folder in folders:
        try:
            status, stat = (
                (folder / name).read_text(encoding="utf-8", errors="replace")
                for name in ("status", "stat")
            )
        except OSError:
            continue  # it ended between listing and reading
        thread = int(folder.name)
        runs, schedstat = vcpus.get(thread, ()), _schedstat(folder)
        threads.append(parse_thread(thread, runs, status, stat, schedstat))
    host = Path("/proc/stat").read_text(encoding="utf-8", errors="replace")
    return Usage(time.monotonic(), tuple(threads), parse_stolen(host, cpus))


def waited_for_a_cpu(pid: int) -> float:
    """Return for how long the thread of process `pid` that waited longest had no CPU, in seconds.

    That is time in which it was ready to run (run delay, Documentation/scheduler/sched-stats.rst).
    0 where the host's kernel does not count it, and of a process that is gone.
    """
    longest = 0.0
    for folder in Path(f"/proc/{pid}/task").glob("*"):
        if times := parse_schedstat(_schedstat(folder)):
            longest = max(longest, times[1])
    return longest / 1000


def parse_schedstat(text: str) -> tuple[float, float] | None:
    """Parse a schedstat (Documentation/scheduler): how long it ran and waited for a CPU, in ms.

    None for an empty one.
    """
    times = [int(word) / 1e6 for word in text.split()[:2]]
    return (times[0], times[1]) if len(times) == 2 else None


def parse_thread(
    thread: int, vcpus: tuple[int, ...], status: str, stat: str, schedstat: str
) -> ThreadUsage:
    """Parse a thread's status and stat (proc(5)) and schedstat (Documentation/scheduler).

    An empty `schedstat` leaves the times None.
    """
    fields = dict(line.split(":", 1) for line in status.splitlines() if ":" in line)
    name, _, rest = stat.partition("(")[2].rpartition(")")
    numbers = rest.split()  # from field 3 on
    times = parse_schedstat(schedstat)
    return ThreadUsage(
        role=role_in_words(vcpus, name),
        thread=thread,
        voluntary=int(fields["voluntary_ctxt_switches"]),
        involuntary=int(fields["nonvoluntary_ctxt_switches"]),
        minor_faults=int(numbers[7]),
        major_faults=int(numbers[9]),
        ran_ms=times[0] if times else None,
        waited_ms=times[1] if times else None,
        vcpus=vcpus,
    )


def parse_stolen(text: str, cpus: Iterable[int]) -> dict[int, int]:
    """Parse /proc/stat (proc(5)) into the milliseconds stolen from each of `cpus` since boot."""
    wanted = set(cpus)
    stolen = {}
    for line in text.splitlines():
        words = line.split()
        number = words[0][3:] if words and words[0].startswith("cpu") else ""
        if number.isdecimal() and int(number) in wanted and len(words) > 8:
            stolen[int(number)] = int(words[8]) * _TICK_MS
    return stolen


def between(before: Usage, after: Usage) -> Usage:
    """Return what happened from one reading to the next; threads that have ended are left out."""
    earlier = {thread.thread: thread for thread in before.threads}
    return Usage(
        seconds=after.seconds - before.seconds,
        threads=tuple(_since(earlier.get(now.thread), now) for now in after.threads),
        stolen_ms={cpu: ms - before.stolen_ms.get(cpu, ms) for cpu, ms in after.stolen_ms.items()},
    )


def shared_cpus(usage: Usage, cpus: Iterable[int]) -> tuple[Disturbance, ...]:
    """List which vCPUs did not have their host CPU to themselves.

    `cpus` are the host CPUs that vCPUs are pinned to. The bounds are MOST_SWITCHES and MOST_LOST;
    stolen time counts from its second step of 10 ms on.
    """
    if usage.seconds <= 0:
        return ()
    disturbances = []
    for thread in usage.threads:
        if not thread.vcpus:
            continue
        rate = thread.involuntary / max(1.0, usage.seconds)
        if rate > MOST_SWITCHES:
            disturbances.append(Disturbance(DisturbanceKind.SWITCHED_OUT, thread.role, amount=rate))
        lost = (thread.waited_ms or 0.0) / 1000 / usage.seconds
        if lost > MOST_LOST:
            disturbances.append(Disturbance(DisturbanceKind.WAITED, thread.role, amount=lost))
    for cpu in sorted(set(cpus)):
        ms = usage.stolen_ms.get(cpu, 0)
        part = ms / 1000 / usage.seconds
        if ms > _TICK_MS and part > MOST_LOST:
            disturbances.append(Disturbance(DisturbanceKind.STOLEN, cpus=(cpu,), amount=part))
    return tuple(disturbances)


def _since(before: ThreadUsage | None, now: ThreadUsage) -> ThreadUsage:
    if before is None:
        return now
    return replace(
        now,
        voluntary=now.voluntary - before.voluntary,
        involuntary=now.involuntary - before.involuntary,
        minor_faults=now.minor_faults - before.minor_faults,
        major_faults=now.major_faults - before.major_faults,
        ran_ms=_difference(before.ran_ms, now.ran_ms),
        waited_ms=_difference(before.waited_ms, now.waited_ms),
    )


def _difference(before: float | None, now: float | None) -> float | None:
    return None if before is None or now is None else round(now - before, 3)


def _schedstat(folder: Path) -> str:
    try:
        return (folder / "schedstat").read_text(encoding="ascii")
    except OSError:
        return ""  # a kernel without CONFIG_SCHED_INFO
