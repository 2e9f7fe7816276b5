"""A scheduler in a guest: the files that it needs, the command around the load, and its record.

images/guest knows nothing of schedulers: all of it goes to the guest on the job disk.
"""

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.resources import files as package_files
from pathlib import Path

from numalab.artifact.program_artifact import ensure_program
from numalab.scheduler.scheduler_artifact import BuiltScheduler
from numalab.scheduler.watchdog_artifact import StallWatchdog
from numalab.workload.host_program import guest_command

START_SECONDS = 60  # of guest time until the scheduler is enabled

_FOLDER = "scheduler"
_RUN = f"{_FOLDER}/run-scheduler.sh"
_START = f"{_FOLDER}/start"
_WATCHDOG = f"{_FOLDER}/watchdog.so"
_STATISTICS = f"{_FOLDER}/statistics"
_SERVES = b"scx_stats::server"  # in a program with that crate: the name in its log
_IN_GUEST = "/job/files"
_LINE = re.compile(r"([a-z_]{1,20})(?: ([ -~]{0,200}))?")
_MOST_LINES = 100
# scx_exit_reason() and scx_ops_disable_workfn() in kernel/sched/ext.c, Linux 6.12.
_OF_KERNEL = re.compile(r"sched_ext: .*")
_EXIT = re.compile(r"\bEXIT: (.{1,400})$", re.MULTILINE)  # crates print a time before it
_COLOUR = re.compile(r"\x1b\[[0-9;]{0,20}m")
_MOST_QUOTED = 12
_LONGEST, _BEGINNING = 200, 50


@dataclass(frozen=True)
class SchedulerInGuest:
    """The part of a job that starts a scheduler and runs the command under it.

    `watchdog_ms` is how long a task may wait until the kernel ejects the scheduler, 0 for the
    scheduler's own length.
    """

    scheduler: BuiltScheduler
    words: tuple[str, ...]
    files: Mapping[str, bytes]
    watchdog_ms: int = 0

    def around(self, argv: tuple[str, ...]) -> tuple[str, ...]:
        """Return the words that run a command under the scheduler."""
        return (*self.words, *argv)


@dataclass(frozen=True)
class SchedulerRecord:
    """How a scheduler began and ended in a guest, by run-scheduler.sh; "" is unknown."""

    values: Mapping[str, str] = field(default_factory=dict)

    @property
    def ops(self) -> str:
        """The name of the scheduler in root/ops."""
        return self.values.get("ops", "")

    @property
    def began(self) -> bool:
        """Whether the kernel enabled the scheduler."""
        return "enabled" in self.values

    @property
    def partial(self) -> bool:
        """Whether only tasks of SCHED_EXT have the scheduler (SCX_OPS_SWITCH_PARTIAL)."""
        return self.values.get("switch_all") == "0"

    @property
    def watchdog_ms(self) -> int:
        """The length of the kernel's watchdog as numalab set it, 0 if it did not."""
        text = self.values.get("watchdog", "")
        return int(text) if text.isdecimal() and len(text) < 8 else 0

    @property
    def restarts(self) -> int:
        """How often it was enabled again while the command ran."""
        first, last = (self.values.get(key, "") for key in ("seq", "end_seq"))
        return int(last) - int(first) if first.isdecimal() and last.isdecimal() else 0


def scheduler_in_guest(
    scheduler: BuiltScheduler, watchdog: StallWatchdog | None = None
) -> SchedulerInGuest:
    """Return the job's part for a scheduler: its program with its libraries, and the script.

    With a `watchdog`, the kernel looks for stalled tasks after that time, if the program loads the
    scheduler by libbpf and the C library. A program that serves statistics (the crate scx_stats)
    gets a reader of them. Raises UserError for a program that cannot run in a guest; HostError
    without a compiler.
    """
    command = guest_command([str(scheduler.program), *scheduler.spec.arguments], lambda _: False)
    script = package_files("numalab.scheduler").joinpath("run-scheduler.sh").read_bytes()
    start = "echo $$ >/run/scheduler.pid\n"
    files = {**command.files, _RUN: script}
    if _SERVES in scheduler.program.read_bytes():
        source = Path(__file__).with_name("statistics.c")
        files[_STATISTICS] = ensure_program(source).read_bytes()
    if watchdog is not None:
        start += f"export NUMALAB_WATCHDOG_MS={watchdog.ms} LD_PRELOAD={_IN_GUEST}/{_WATCHDOG}\n"
        files[_WATCHDOG] = watchdog.library.read_bytes()
    files[_START] = f"{start}exec {shlex.join(command.argv)}\n".encode()
    words = ("sh", f"{_IN_GUEST}/{_RUN}", str(START_SECONDS))
    return SchedulerInGuest(scheduler, words, files, watchdog.ms if watchdog else 0)


def parse_record(text: str) -> SchedulerRecord:
    """Parse what run-scheduler.sh writes; the guest is not trusted, so other lines are ignored."""
    lines = (_LINE.fullmatch(line.rstrip()) for line in text.splitlines()[:_MOST_LINES])
    return SchedulerRecord({line[1]: line[2] or "" for line in lines if line})


def explain_end(name: str, record: SchedulerRecord, log: str, kernel_log: str) -> str:
    """Return why a run under a scheduler does not count, "" for a run that was under it to its end.

    `log` is what the scheduler printed. The text has the scheduler's and the kernel's messages, and
    the beginning of the dump.
    """
    values = record.values
    if not values:
        return f"the guest left no record of the scheduler {name}"
    if "absent" in values:
        return f"the guest's kernel has no sched_ext, which {name} needs"
    reason = ""
    if not record.began:
        reason = f"did not start within {START_SECONDS} s: the kernel's state is"
        reason = f"{name} {reason} {values.get('state') or 'unknown'}"
        if "exit_status" in values:
            reason = f"{name} did not start and exited with status {values['exit_status']}"
    elif "end_state" not in values:  # the guest was lost: the kernel may have had it to the end
        reason = f"{name} was enabled, and the guest left no record of its end"
    elif values["end_state"] != "enabled":
        reason = f"{name} was disabled while the command ran; tasks fell back to EEVDF"
    elif values.get("end_ops") != record.ops:
        reason = f"{values.get('end_ops')} took the place of {record.ops} while the command ran"
    elif record.restarts:
        reason = f"{name} was disabled and enabled again ({record.restarts} times)"
    if not reason:
        return ""
    exits = _EXIT.findall(log)
    if exits:
        reason += f": {_shown(exits[-1])}"
    kernel = _OF_KERNEL.findall(kernel_log)
    tail = [] if exits else _verifier(log)
    return "\n  | ".join([reason, *map(_shown, [*kernel[-6:], *tail, *_dump(log)])])


def _verifier(log: str) -> list[str]:
    """Return the last lines of what a scheduler printed before it failed to load."""
    return [line for line in log.splitlines() if line.strip()][-_MOST_QUOTED:]


def _dump(log: str) -> list[str]:
    """Return the beginning of a dump's list of CPUs, with the tasks that wait for each."""
    _, _, dump = log.partition("DEBUG DUMP\n")
    _, states, text = dump.partition("CPU states")
    lines = [line for line in text.splitlines()[:_MOST_LINES] if line.strip(" -")]
    ends = (place for place, line in enumerate(lines) if line.startswith("===="))
    lines = lines[: next(ends, None)]
    return [states, *lines[:_MOST_QUOTED]] if states else []


def _shown(text: str) -> str:
    plain = _COLOUR.sub("", text[: 20 * _LONGEST])
    if len(plain) > _LONGEST:  # crates print the path of their source first
        plain = f"{plain[:_BEGINNING]} ... {plain[_BEGINNING + 5 - _LONGEST :]}"
    return "".join(char if char.isprintable() else " " for char in plain)
