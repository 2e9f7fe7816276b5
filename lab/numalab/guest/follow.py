"""Follow a running guest until it ends or is lost."""

import resource
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from numalab.errors import HostError
from numalab.files import free_space
from numalab.guest.console import LARGEST_FILE, Beat, Follower, parse_beat
from numalab.guest.usage import waited_for_a_cpu
from numalab.guest.watch import Limits, Watchdog
from numalab.guest.witness import Witness
from numalab.qemu.ending import Loss
from numalab.qemu.guest import Guest
from numalab.run_dir import RunDir

_TICK = 0.03
_SHORT_TICK = 0.002  # the hold is short
_FLUSH_SECONDS = 3.0
_LOOK_SECONDS = 1.0  # between two readings of QEMU's run delay
_WAKE_SECONDS = 1.0


@dataclass(frozen=True)
class End:
    """The end of a guest: its loss (None: it powered off), and the state of the watchdog.

    `phase_began`: the host's monotonic time of the first beat of each phase.
    """

    loss: Loss | None
    watchdog: Watchdog
    floods: int
    phase_began: Mapping[str, float]


class GuestClock:
    """The monotonic clock without the run delay of QEMU.

    The clock stops while QEMU is ready to run but other programs have the host's CPUs. So a guest
    on a busy host is not lost, although it may be silent for minutes.
    """

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._waited = self._latest = 0.0
        self._looked = -_LOOK_SECONDS

    def now(self) -> float:
        """Return the time in seconds; it never decreases."""
        now = time.monotonic()
        if now - self._looked >= _LOOK_SECONDS:
            self._looked = now
            self._waited = max(self._waited, waited_for_a_cpu(self._pid))
        self._latest = max(self._latest, now - self._waited)
        return self._latest


def follow(
    guest: Guest,
    witness: Witness,
    run_dir: RunDir,
    limits: Limits,
    on_beat: Callable[[Beat], None] | None,
    *,
    awake: bool = False,
    on_hold: Callable[[], None] | None = None,
) -> End:
    """Read both consoles until the guest powers off, dies, or breaks a limit.

    Does not end the guest. With `awake`, QEMU's main loop is woken every second. Calls `on_beat`
    with each beat, `on_hold` as soon as the guest is held, and `witness` when the workload begins
    and ends while QEMU still runs. Raises
    HostError when libvirt is gone, or the host has no space left for the guest's output.
    """
    _bound_files(guest.pid)
    clock = GuestClock(guest.pid)
    watchdog = Watchdog(limits, clock.now())
    console, beats = Follower(run_dir.console), Follower(run_dir.heartbeat)
    phase_began: dict[str, float] = {}
    woken = time.monotonic()
    while True:
        ending = guest.wait(_TICK if on_hold is None else _SHORT_TICK)
        if awake and not ending and time.monotonic() - woken >= _WAKE_SECONDS:
            _wake(guest)
            woken = time.monotonic()
        if ending is not None and ending.kind == "crashed":
            _flush_console(guest, console, watchdog, clock)
        now = clock.now()
        for line in console.rest() if ending else console.lines():
            watchdog.console(line, now)
        for line in beats.rest() if ending else beats.lines():
            beat = _note_beat(watchdog, line, now)
            if beat is not None:
                phase_began.setdefault(beat.phase, time.monotonic())
                if on_beat is not None:
                    on_beat(beat)
        if on_hold is not None and phase_began.keys() - {"boot"}:
            if watchdog.phase == "held" and not ending:
                on_hold()
            on_hold = None
        if "workload" in phase_began and not ending:
            witness.workload_began()
        if "collect" in phase_began and not ending:
            witness.workload_ended()
        loss = ending.loss() if ending else watchdog.verdict(now)
        _check_space(run_dir.path)
        if ending or loss:
            return End(loss, watchdog, console.floods + beats.floods, phase_began)


def _wake(guest: Guest) -> None:
    """Wake QEMU's main loop.

    With `-icount sleep=on`, QEMU 7.2 may sleep for ever when all CPUs are idle: a timer of the
    guest is due, and the timer of the host that moves the guest's clock there is not set.
    main_loop_wait() (util/main-loop.c) sets it whenever something wakes the loop.
    """
    with suppress(HostError):
        guest.monitor("query-status")


def _bound_files(pid: int) -> None:
    """Limit the size of files that QEMU can write, for output faster than `Follower` cuts."""
    with suppress(OSError):  # needs CAP_SYS_RESOURCE for a process of another user
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (4 * LARGEST_FILE, 4 * LARGEST_FILE))


def _check_space(path: Path) -> None:
    """Raise HostError when the disk is full: QEMU silently drops output it cannot write."""
    if free_space(path) == 0:
        raise HostError(f"no space left for {path}", hint="free some space there")


def _flush_console(guest: Guest, console: Follower, watchdog: Watchdog, clock: GuestClock) -> None:
    """Resume a guest after a panic, so that its kernel prints the rest of the report.

    pvpanic stops the guest from the panic notifiers, and where another CPU held the console, the
    kernel prints only after those (kernel/panic.c in 6.12: console_flush_on_panic()).
    """
    with suppress(HostError):
        guest.resume()
    deadline = time.monotonic() + _FLUSH_SECONDS
    while watchdog.verdict(clock.now()) is None and time.monotonic() < deadline:
        for line in console.lines():
            watchdog.console(line, clock.now())
        time.sleep(_TICK)


def _note_beat(watchdog: Watchdog, line: str, now: float) -> Beat | None:
    try:
        beat = parse_beat(line)
    except ValueError:
        watchdog.bad_beats += 1
        return None
    watchdog.beat(beat, now)
    return beat
