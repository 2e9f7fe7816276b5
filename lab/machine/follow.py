"""Follow a running guest until it ends or is lost."""

import signal
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from lab.errors import HostError
from lab.machine.console import Beat, Follower, parse_beat
from lab.machine.hypervisor import Ending, Guest
from lab.machine.watch import Limits, Watchdog
from lab.machine.witness import Witness
from lab.store import RunDir

_TICK = 0.03
_LAST_WORDS = 3.0
_MOST_BEATS = 1_000_000


@dataclass(frozen=True)
class End:
    """How it ended: why the guest is lost (empty: it powered off), and what it had said."""

    reason: str
    watchdog: Watchdog
    floods: int


def follow(
    guest: Guest,
    witness: Witness,
    run_dir: RunDir,
    limits: Limits,
    on_beat: Callable[[Beat], None] | None,
) -> End:
    """Read both consoles until the guest powers off, dies, or breaks a limit.

    The guest is not ended here. `on_beat` sees each beat. `witness` is told when the workload
    begins, and when it is done and QEMU is still there.
    """
    watchdog = Watchdog(limits, time.monotonic())
    console, beats = Follower(run_dir.console), Follower(run_dir.heartbeat)
    while True:
        ending = guest.wait(_TICK)
        if ending is not None and ending.kind == "crashed":
            _let_it_speak(guest, console, watchdog)
        now = time.monotonic()
        for line in console.rest() if ending else console.lines():
            watchdog.console(line, now)
        for line in beats.rest() if ending else beats.lines():
            _note_beat(watchdog, line, now, on_beat)
        if "workload" in watchdog.phase_began and not ending:
            witness.workload_began()
        if "collect" in watchdog.phase_began and not ending:
            witness.workload_ended()
        reason = _reason(ending) if ending else watchdog.verdict(now)
        if reason is not None:
            return End(reason, watchdog, console.floods + beats.floods)


def _let_it_speak(guest: Guest, console: Follower, watchdog: Watchdog) -> None:
    """Let a kernel that has panicked print what happened.

    pvpanic stops the guest from the panic notifiers, and where another CPU held the console, the
    kernel prints only after those (kernel/panic.c in 6.12: console_flush_on_panic()).
    """
    with suppress(HostError):
        guest.resume()
    deadline = time.monotonic() + _LAST_WORDS
    while watchdog.verdict(time.monotonic()) is None and time.monotonic() < deadline:
        for line in console.lines():
            watchdog.console(line, time.monotonic())
        time.sleep(_TICK)


def _note_beat(
    watchdog: Watchdog, line: str, now: float, on_beat: Callable[[Beat], None] | None
) -> None:
    try:
        beat = parse_beat(line)
    except ValueError:
        watchdog.bad_beats += 1
        return
    watchdog.beat(beat, now)
    if on_beat is not None:
        on_beat(beat)


def _reason(ending: Ending) -> str:
    """Say why a guest that ended is lost; an empty text for one that powered off."""
    if ending.kind == "off":
        return ""
    if ending.kind == "crashed":
        return "the guest's kernel panicked"
    if ending.kind == "destroyed":
        return "somebody else ended the guest"
    if ending.signal is None:
        return "QEMU ended unexpectedly"
    return f"QEMU was killed by {signal.Signals(ending.signal).name}"
