"""CPU usage of QEMU's threads: context switches, run delay and stolen time.

A vCPU with a host CPU of its own has hardly any involuntary context switches. Where it has some,
or a hypervisor below steals the host CPU, the guest's clock counts time that its tasks did not
get.
"""

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from numalab.cpulist import format_cpulist
from numalab.host.facts import Disturbance, DisturbanceKind

_TICK_MS = 10  # USER_HZ is 100 on x86 (proc(5): sysconf(_SC_CLK_TCK))
# A vCPU above one of these shared its host CPU.
MOST_SWITCHES = 10.0  # involuntary, in a second
MOST_LOST = 0.01  # of the time, waited for the host CPU or stolen from it


@dataclass(frozen=True)
class ThreadUsage:
    """A thread of QEMU: switches and faults (numbers), time it ran and waited for a CPU (ms).

    The times are None where the host's kernel does not count them.
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
    """The usage of QEMU's threads within `seconds` of wall time.

    `stolen_ms`: stolen time of each host CPU of the plan, in steps of 10 ms; empty where the host
    does not count it.
    """

    seconds: float
    threads: tuple[ThreadUsage, ...]
    stolen_ms: Mapping[int, int] = field(default_factory=dict)


def role_in_words(vcpus: Sequence[int], name: str) -> str:
    """Return the role of a thread: its vCPUs, or else its name."""
    return f"vcpu {format_cpulist(vcpus)}" if vcpus else name


def read_usage(pid: int, vcpus: Mapping[int, tuple[int, ...]], cpus: Iterable[int]) -> Usage:
    """Read the usage of QEMU process `pid` since its start, and stolen time since boot.

    `vcpus` maps a thread to its vCPUs. `seconds` is the monotonic time of the reading. A process
    that has ended has no threads.
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
    """Return the longest run delay of a thread of process `pid`, in seconds.

    Run delay is time ready to run without a CPU (Documentation/scheduler/sched-stats.rst). 0 where
    the host's kernel does not count it, or the process has ended.
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
    """Return the usage between two readings, without threads that have ended."""
    earlier = {thread.thread: thread for thread in before.threads}
    return Usage(
        seconds=after.seconds - before.seconds,
        threads=tuple(_since(earlier.get(now.thread), now) for now in after.threads),
        stolen_ms={cpu: ms - before.stolen_ms.get(cpu, ms) for cpu, ms in after.stolen_ms.items()},
    )


def shared_cpus(usage: Usage, cpus: Iterable[int]) -> tuple[Disturbance, ...]:
    """Return disturbances of vCPUs that shared their host CPU.

    `cpus` are the host CPUs of vCPUs. The bounds are MOST_SWITCHES and MOST_LOST;
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
