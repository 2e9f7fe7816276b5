"""Errors with their exit codes; a class for each action of the user."""

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from enum import StrEnum
from pathlib import Path, PurePath
from typing import ClassVar

_LONGEST = 4000  # characters of each part of a message
_NO_THREAD = re.compile(r"spawn|thread ?pool|temporarily unavailable", re.IGNORECASE)
_QUOTED = re.compile(r"'([^']{1,80})'")


class LabError(Exception):
    """A failure with a message for the user, without a traceback.

    `printed`: the stdout and stderr of a guest's command that had ended. `notes`: for the user,
    about its guest and its files.
    """

    exit_code: ClassVar[int] = 70
    printed: tuple[bytes, bytes] = (b"", b"")
    notes: tuple[str, ...] = ()


class UserError(LabError):
    """The input is wrong. Names the file, the key and valid choices.

    A name in quotes that resembles a choice gets a suggestion.
    """

    exit_code = 2

    def __init__(
        self,
        message: str,
        *,
        file: Path | str | None = None,
        key: str | None = None,
        choices: Iterable[str] = (),
    ) -> None:
        self.file, self.key, self.choices = file, key, tuple(choices)
        self.message = message
        where = ": ".join(_bounded(shown(part)) for part in (file, key) if part is not None)
        text = f"{where}: {_bounded(message)}" if where else _bounded(message)
        if self.choices:
            text += _suggestion(message, self.choices)
            text += f" (valid: {_bounded(', '.join(self.choices))})"
        super().__init__(text)


@contextmanager
def named_in(file: Path | str, key: str, *, choices: Iterable[str] = ()) -> Iterator[None]:
    """Name the file and the key that hold what a UserError without a file is about.

    `choices` are valid there, too.
    """
    try:
        yield
    except UserError as error:
        if error.file is not None:
            raise
        every = (*choices, *error.choices) if error.choices else ()
        about = "" if error.key is None else f"{error.key}: "
        raise UserError(f"{about}{error.message}", file=file, key=key, choices=every) from None


class HostError(LabError):
    """Something is missing or broken on this host. Names the command that fixes it."""

    exit_code = 3

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        self.hint = hint
        super().__init__(f"{message}\n  hint: {hint}" if hint else message)


def explain_panic(error: BaseException) -> HostError | None:
    """Return an error for a panic of a library in Rust that could start no thread, else None."""
    if type(error).__name__ != "PanicException" or not _NO_THREAD.search(str(error)):
        return None
    reason = "this host starts no more threads for this command"
    return HostError(reason, hint="raise the limit of processes (ulimit -u, or pids.max)")


class QemuFailed(HostError):
    """QEMU, or libvirt for it, failed with a guest, on a host that has room for one."""


class HostBusy(HostError):
    """Other guests use the resources of this host; try again when they have ended."""


class LossCause(StrEnum):
    """The cause of a lost guest: the guest itself, or its host (QEMU was killed)."""

    GUEST = "guest"
    HOST = "host"


class GuestLost(LabError):
    """The guest panicked, hung or was killed. Names the folder of its files.

    A guest lost because of its host (`cause`) can succeed on another try. `reason` is one line.
    `trace` is the saved part of its recording, a path below `kept`; `note` is the reason why there
    is no trace.
    """

    exit_code = 4

    def __init__(
        self,
        reason: str,
        *,
        cause: LossCause = LossCause.GUEST,
        kept: Path | None = None,
        trace: PurePath | None = None,
        note: str = "",
        tail: str = "",
    ) -> None:
        self.reason, self.cause, self.kept, self.tail = reason, cause, kept, tail
        self.trace, self.note = trace, note
        if kept is not None and trace is not None:
            note = f"its trace up to the end: {kept / trace}"
        message = f"{reason}\n  {note}" if note else reason
        super().__init__(_with_evidence(message, tail, "kept", kept))

    def moved(self, kept: Path) -> "GuestLost":
        """Return the error with the new name of the folder."""
        lost = GuestLost(
            self.reason,
            cause=self.cause,
            kept=kept,
            trace=self.trace,
            note=self.note,
            tail=self.tail,
        )
        lost.notes = self.notes
        return lost


class BuildError(LabError):
    """A kernel or an image did not build. Ends with the last lines of the log and its path."""

    exit_code = 5

    def __init__(self, message: str, *, log: Path | None = None, tail: str = "") -> None:
        self.log, self.tail = log, tail
        super().__init__(_with_evidence(message, tail, "log", log))


class TopologyMismatch(LabError):
    """The guest's kernel reports another machine than the topology describes."""

    exit_code = 6


class PlacementMismatch(LabError):
    """A vCPU or a guest node does not run where the plan put it."""

    exit_code = 7


class CaptureIncomplete(LabError):
    """Events were lost, and the study forbids it."""

    exit_code = 8


class WorkloadFailed(LabError):
    """The workload exited with an error or printed invalid metrics."""

    exit_code = 9


def did_you_mean(name: str, choices: Iterable[str]) -> str:
    """Return `; did you mean NAME?` for a similar name, or an empty text."""
    by_lower_case = {choice.casefold(): choice for choice in choices}
    near = get_close_matches(name.casefold(), list(by_lower_case), 1)
    return f"; did you mean {by_lower_case[near[0]]}?" if near else ""


def _suggestion(message: str, choices: Sequence[str]) -> str:
    """Return the suggestion for the first name in quotes of a message that has none yet."""
    quoted = _QUOTED.search(message)
    if quoted is None or "did you mean" in message or quoted[1] in choices:
        return ""
    return did_you_mean(quoted[1], choices)


def shown(name: object) -> str:
    """Return a name or a path with control characters and invalid UTF-8 escaped."""
    text = str(name)
    return text if text.isprintable() else "".join(map(_shown, text))


def _shown(char: str) -> str:
    if char.isprintable():
        return char
    if "\udc80" <= char <= "\udcff":  # a byte of a file name (PEP 383)
        return f"\\x{ord(char) & 0xFF:02x}"
    return repr(char)[1:-1]


def _bounded(text: str) -> str:
    """Shorten a text that quotes a name of an untrusted file."""
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}... ({len(text)} characters)"


def _with_evidence(message: str, tail: str, what: str, path: Path | None) -> str:
    """Append the last lines of a log and its path to a message."""
    lines = [message, *(f"  | {line}" for line in tail.splitlines())]
    if path is not None:
        lines.append(f"  {what}: {path}")
    return "\n".join(lines)
