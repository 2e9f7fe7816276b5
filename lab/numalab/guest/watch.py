"""The watchdog: detects a lost guest by beats, kernel log and time. Pure."""

import math
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, replace

from numalab.errors import LossCause
from numalab.guest.console import (
    Beat,
    Phase,
    is_panic,
    is_panic_end,
    is_power_off,
    is_trouble,
    printable,
)
from numalab.qemu.ending import Loss

_KEPT_LINES = 400
_PANIC_LINES = 200  # of these, from a panic on
_MOST_TROUBLES = 5
_PANIC_SECONDS = 3.0
_MOST = 3600.0
_ORDINARY_CPUS = 32


@dataclass(frozen=True)
class Limits:
    """Time limits of a guest, in seconds of wall time without QEMU's run delay.

    `boot`: until the first beat of its init. `silence`: between two beats. `total`: from start to
    end. They find guests that hang, not slow ones. `uptime` is in seconds of guest time: in mode
    icount, hours of an idle guest pass in minutes.
    """

    boot: float = 120.0
    silence: float = 180.0
    total: float = 3600.0
    uptime: float = math.inf

    def for_cpus(self, count: int) -> "Limits":
        """Return the limits of a guest with `count` CPUs: more than 32 boot longer."""
        return replace(self, boot=self.boot * max(1.0, count / _ORDINARY_CPUS))

    def on_a_host(self, slowness: float) -> "Limits":
        """Return `boot` and `silence` times `slowness`, but not raised above an hour."""
        return Limits(
            boot=max(self.boot, min(_MOST, self.boot * slowness)),
            silence=max(self.silence, min(_MOST, self.silence * slowness)),
            total=self.total,
            uptime=self.uptime,
        )


class Watchdog:
    """Detects the loss of a guest from its beats and kernel log.

    All times are seconds of one monotonic clock.
    """

    def __init__(self, limits: Limits, started: float) -> None:
        self._limits = limits
        self._started = self._last_sign = started
        self._panicked: float | None = None
        self._panic_over = False
        self._panic_lines = 0
        self.phase: Phase | None = None
        self.uptime = 0.0
        self.status: int | None = None
        self.message = ""
        self.bad_beats = 0
        self.kept: deque[str] = deque(maxlen=_KEPT_LINES)
        self.troubles: list[str] = []  # the first error reports of the kernel
        self._panic_line = ""
        self._is_off = False

    def beat(self, beat: Beat, now: float) -> None:
        """Note a beat."""
        self._last_sign = now
        self.phase, self.uptime = beat.phase, beat.uptime
        if beat.status is not None:
            self.status = beat.status
        if beat.message:
            self.message = printable(beat.message)

    def console(self, line: str, now: float) -> None:
        """Note a line of the kernel log."""
        if self._panicked is None and is_panic(line):
            self._panicked, self._panic_line = now, printable(line)
        self._is_off = self._is_off or is_power_off(line)
        if not self._is_off and len(self.troubles) < _MOST_TROUBLES and is_trouble(line):
            self.troubles.append(printable(line))
        if self._panicked is not None:
            self._panic_lines += 1
        if self._panic_lines <= _PANIC_LINES:
            self.kept.append(line)
        if is_panic_end(line):
            self._panic_over = True

    def log(self, lines: Iterable[str]) -> None:
        """Note the log that the guest left: with `quiet`, the console lacks error reports."""
        for line in map(printable, filter(is_trouble, lines)):
            if len(self.troubles) < _MOST_TROUBLES and line not in self.troubles:
                self.troubles.append(line)

    @property
    def panic(self) -> str:
        """The first line of the panic, or an empty text."""
        return self._panic_line

    def verdict(self, now: float) -> Loss | None:
        """Return why the guest is lost, or None while it is not."""
        reason = self._reason(now)
        return None if reason is None else Loss(LossCause.GUEST, reason)

    def _reason(self, now: float) -> str | None:
        if self._panicked is not None:
            over = self._panic_over or now - self._panicked > _PANIC_SECONDS
            return "the guest's kernel panicked" if over else None
        limits = self._limits
        if now - self._started > limits.total:
            return f"the guest was not done after {limits.total:.0f} s (phase: {self._where})"
        if self.uptime > limits.uptime:
            own = f"{limits.uptime:.0f} s of its own time"
            return f"the guest was not done after {own} (phase: {self._where})"
        if self.phase is None:
            late = now - self._started > limits.boot
            return f"the guest did not reach its init within {limits.boot:.0f} s" if late else None
        if now - self._last_sign > limits.silence:
            return f"the guest has been silent for {limits.silence:.0f} s (phase: {self._where})"
        return None

    @property
    def _where(self) -> str:
        return f"{self.phase or 'kernel'}, uptime {self.uptime:.0f} s"
