"""Several commands in one guest, one after the other, while it runs.

The host sends them to `session.sh` in the guest over its first console. Files for a command are a
tar archive on the job disk, behind the file system: the guest reads it past its page cache. Results
are read from the job disk, which the guest has written by then.
"""

import base64
import hashlib
import io
import math
import os
import re
import select
import tarfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.resources import files as package_files
from pathlib import Path

from numalab.errors import GuestLost, HostError, UserError
from numalab.files import read_regular
from numalab.guest.console import printable
from numalab.guest.run import Outcome, full_disk, is_full, left_out_remarks, run_guest
from numalab.guest.terminal import open_console
from numalab.guest.watch import Limits
from numalab.machine.model import Job, Machine
from numalab.qemu.collect import Collected, read_job_disk
from numalab.qemu.guest import Guest
from numalab.run_dir import RunDir

INBOX_MIB = 512  # behind the file system of the job disk, for files; a hole until it is used
_MIB = 1 << 20
_LONGEST_SCRIPT = 1 << 20
_ANSWER = re.compile(rb"\x05([0-9]{1,9}) ([0-9]{1,3})\x06")
_LONGEST_ANSWER = 16
_NO_CAPTURE, _NOT_UNPACKED = "no-capture", 999  # session.sh
_LONGEST_REASON = 4096
_CHUNK = 4096
_LOOK = 0.2  # seconds between two looks whether the guest still runs
_TIME = 1_704_067_200  # of files in the guest: 2024-01-01T00:00:00Z


@dataclass(frozen=True)
class CommandEnd:
    """How a command ended: its exit status, and what of its files is missing on the host.

    `full` says that it filled the job disk; empty where it did not.
    """

    status: int
    notes: tuple[str, ...]
    full: str


def session_job(job_disk_mib: int, events: tuple[str, ...], buffer_kib: int) -> Job:
    """Return the job that waits for commands; each command has a recording of its own."""
    script = package_files("numalab.guest").joinpath("session.sh").read_bytes()
    return Job(
        argv=("sh", "/job/files/session.sh", str(job_disk_mib)),
        mode="shell",
        files={"session.sh": script},
        events=events,
        buffer_kib=buffer_kib,
    )


def start_session(machine: Machine, job: Job, directory: RunDir, connection: str) -> "Session":
    """Start a session whose thread runs the guest for as long as it takes.

    Raises what `run_guest` raises.
    """
    session = Session(directory, machine.job_disk_mib)

    def run(session: Session) -> Outcome:
        return run_guest(
            machine, job, directory, connection=connection, limits=Limits(total=math.inf),
            join=session.joined, rescue=False,
        )  # fmt: skip

    try:
        session.start(run)
    except BaseException:
        session.end()
        raise
    return session


class Session:
    """The host's end of a session. One thread runs the guest, another one sends commands."""

    def __init__(self, directory: RunDir, job_disk_mib: int) -> None:
        self._directory = directory
        self._disk_mib = job_disk_mib  # of its file system
        self._guest: Guest | None = None
        self._console = -1
        self._started = threading.Event()
        self._failed: BaseException | None = None
        self._thread: threading.Thread | None = None
        self._number = 0
        self._buffer = b""
        self._in_guest: dict[str, bytes] = {}  # digests of the files that were sent

    def start(self, run: Callable[["Session"], Outcome]) -> None:
        """Run the guest in a thread, and wait until it takes commands; `run` joins `joined`.

        Raises what `run` raises.
        """
        self._thread = threading.Thread(target=self._run, args=(run,), daemon=True)
        self._thread.start()
        while not self._started.wait(_LOOK):
            self._check()
        self._await(0)

    def _run(self, run: Callable[["Session"], Outcome]) -> None:
        try:
            run(self)
        except BaseException as error:  # it is raised where the next command is sent
            self._failed = error
        finally:
            self._guest = None

    @contextmanager
    def joined(self, guest: Guest) -> Iterator[None]:
        """Connect to the guest's console while it runs."""
        self._console = open_console(guest)
        self._guest = guest
        self._started.set()
        try:
            yield
        finally:
            console, self._console = self._console, -1
            os.close(console)

    def run(
        self, script: str, files: Mapping[str, bytes], into: RunDir, *, sample_ms: int = 0
    ) -> CommandEnd:
        """Run a shell script after copying `files` below /job/files; return how it ended.

        Every `sample_ms` the memory of its processes is read (0: never). `into` gets what it left:
        output, times, files below $OUT, a recording. Files that the guest has already are not sent
        again. Raises GuestLost when the guest is lost, UserError for too many files or an event
        that the kernel lacks, HostError for a full disk of this host.
        """
        self._check()
        text = base64.b64encode(script.encode("utf-8", "surrogateescape"))
        if len(text) > _LONGEST_SCRIPT:
            raise UserError(f"the command is longer than {_LONGEST_SCRIPT >> 20} MiB")
        mib = self._send_files(files)
        self._number += 1
        self._write(b"%d %d %s\n" % (mib, sample_ms, text))
        status = self._await(self._number)
        if status == _NOT_UNPACKED:
            self._in_guest = {name: self._in_guest[name] for name in self._in_guest.keys() - files}
            room = f"is there room on its disk of {self._disk_mib} MiB?"
            raise UserError(f"the guest could not unpack {mib} MiB of files; {room}")
        collected = self.collect(into.out, f"/out/commands/{self._number}")
        with suppress(FileNotFoundError):
            reason = read_regular(into.out / _NO_CAPTURE, _LONGEST_REASON, follow=False)
            raise UserError(printable(reason.decode("utf-8", "replace").strip()), key="events")
        full = full_disk(self._disk_mib) if is_full(into, collected) else ""
        return CommandEnd(status, left_out_remarks(collected), full)

    @property
    def alive(self) -> bool:
        """Whether the guest still runs."""
        return self._thread is not None and self._thread.is_alive()

    def collect(self, into: Path, folder: str) -> Collected:
        """Copy a folder of the job disk as it is now."""
        return read_job_disk(self._directory.job_disk, into, folder)

    def end(self) -> None:
        """End the guest, and wait until its thread has ended. Safe to call again."""
        guest = self._guest
        if guest is not None:
            guest.end()
        if self._thread is not None:
            self._thread.join()
        self._directory.job_disk.unlink(missing_ok=True)

    def _send_files(self, files: Mapping[str, bytes]) -> int:
        """Write the files that the guest lacks behind its file system; return the size in MiB."""
        digests = {name: hashlib.sha256(data).digest() for name, data in files.items()}
        wanted = {name for name in files if self._in_guest.get(name) != digests[name]}
        if not wanted:
            return 0
        data = io.BytesIO()
        with tarfile.open(fileobj=data, mode="w", format=tarfile.GNU_FORMAT) as archive:
            for name in sorted(wanted):
                member = tarfile.TarInfo(name)
                member.size, member.mode, member.mtime = len(files[name]), 0o755, _TIME
                archive.addfile(member, io.BytesIO(files[name]))
        size = data.tell()
        mib = -(-size // _MIB)
        if mib > INBOX_MIB:
            raise UserError(f"the files of a command have more than {INBOX_MIB} MiB")
        try:
            with self._directory.job_disk.open("r+b") as disk:
                disk.seek(self._disk_mib * _MIB)
                disk.write(data.getbuffer())
        except OSError as error:
            path = self._directory.job_disk
            raise HostError(f"cannot write {path}: {error.strerror}") from None
        self._in_guest |= digests
        return mib

    def _await(self, number: int) -> int:
        """Return the exit status that the guest tells for a command."""
        while True:
            for answered, status in _ANSWER.findall(self._buffer):
                if int(answered) == number:
                    self._buffer = b""
                    return int(status)
            self._buffer = self._buffer[-_LONGEST_ANSWER:]
            self._check()
            self._read()

    def _read(self) -> None:
        console = self._console
        try:
            ready, _, _ = select.select([console], [], [], _LOOK)
            data = os.read(console, _CHUNK) if ready else b""
            if ready and not data:
                time.sleep(_LOOK)  # QEMU has ended; its thread says why
            self._buffer += data
        except (OSError, ValueError):  # closed, or hung up
            time.sleep(_LOOK)

    def _write(self, data: bytes) -> None:
        while data:
            self._check()
            with suppress(OSError, ValueError):
                _, writable, _ = select.select([], [self._console], [], _LOOK)
                if writable:
                    data = data[os.write(self._console, data) :]
                    continue
            time.sleep(0 if self._console >= 0 else _LOOK)

    def _check(self) -> None:
        """Raise what ended the guest, if it has ended."""
        if self.alive:
            return
        if self._failed is not None:
            raise self._failed
        raise GuestLost("the guest has ended", kept=None)
