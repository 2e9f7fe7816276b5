"""The host's end of a session, with a thread in place of the guest."""

import base64
import io
import os
import shutil
import subprocess
import tarfile
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from numalab.errors import GuestLost, UserError
from numalab.guest import session as session_module
from numalab.guest.session import CommandEnd, Session, session_job
from numalab.run_dir import RunDir
from support.console_socket import ConsoleSocket
from support.ext4_disks import make_disk

DISK_MIB = 2


class TalkingGuest:
    """Answers every line as session.sh would; `script` is what it was sent last."""

    def __init__(self, directory: RunDir) -> None:
        self.directory = directory
        self.socket = ConsoleSocket(Path(tempfile.mkdtemp(prefix="numalab-")) / "socket")
        self.console = self.socket.path
        self.sent: list[tuple[int, int, str]] = []
        self.files: list[dict[str, bytes]] = []
        self.over = threading.Event()
        self.has_room = True

    def end(self) -> None:
        self.over.set()

    def talk(self, session: Session) -> Any:
        with session.joined(self):  # type: ignore[arg-type]
            host = self.socket.descriptor
            os.write(host, b"noise\x05\x06\x05x 0\x06\x050 0\x06")
            buffer, number = b"", 0
            while not self.over.wait(0.01):
                os.set_blocking(host, False)
                try:
                    buffer += os.read(host, 4096)
                except BlockingIOError:
                    continue
                while b"\n" in buffer:
                    line, _, buffer = buffer.partition(b"\n")
                    number += 1
                    self.take(line)
                    status = number + 2 if self.has_room else 999
                    os.write(host, b"[ 1.0] kernel says\x05%d %d\x06" % (number, status))
        self.socket.close()
        shutil.rmtree(self.console.parent)
        raise GuestLost("ended")

    def take(self, line: bytes) -> None:
        mib, sample_ms, text = line.split(b" ")
        self.sent.append((int(mib), int(sample_ms), base64.b64decode(text).decode()))
        data = self.directory.job_disk.read_bytes()[DISK_MIB << 20 :]
        with tarfile.open(fileobj=io.BytesIO(data[: int(mib) << 20] or bytes(1024))) as archive:
            members = [(member, archive.extractfile(member)) for member in archive]
            self.files.append({member.name: file.read() for member, file in members if file})


@pytest.fixture
def directory(tmp_path: Path) -> RunDir:
    run_dir = RunDir(tmp_path)
    run_dir.job_disk.write_bytes(bytes(DISK_MIB << 20))
    return run_dir


@contextmanager
def started(directory: RunDir) -> Iterator[tuple[Session, TalkingGuest]]:
    guest = TalkingGuest(directory)
    session = Session(directory, DISK_MIB)
    try:
        session.start(guest.talk)
        yield session, guest
    finally:
        session.end()


def test_commands_and_files_arrive(directory: RunDir, tmp_path: Path) -> None:
    with started(directory) as (session, guest):
        into = RunDir(tmp_path / "1")
        assert session.run("exec a 'b'", {"x/y": b"1", "z": bytes(3 << 20)}, into).status == 3
        assert session.run("next", {"x/y": b"1", "z": b"2"}, into, sample_ms=20).status == 4
        assert session.alive
    assert [script for _, _, script in guest.sent] == ["exec a 'b'", "next"]
    assert [sample for _, sample, _ in guest.sent] == [0, 20]
    assert guest.files[0] == {"x/y": b"1", "z": bytes(3 << 20)}
    assert guest.files[1] == {"z": b"2"}, "what the guest has is not sent again"
    assert not directory.job_disk.exists()


def test_what_is_missing_of_a_command_is_noted(directory: RunDir, tmp_path: Path) -> None:
    """An exit status of no bytes is that of a guest without room for it."""
    into = RunDir(tmp_path / "1")
    for number in (1, 2):
        (tmp_path / f"disk/out/commands/{number}/files").mkdir(parents=True)
        (tmp_path / f"disk/out/commands/{number}/status").write_text("3" if number == 1 else "")
    (tmp_path / "disk/out/commands/1/files/link").symlink_to("x")
    make_disk(directory.job_disk, tmp_path / "disk", DISK_MIB)
    with started(directory) as (session, _):
        end = session.run("true", {}, into)
        note = "not taken from the guest: files/link: a symbolic link"
        assert end == CommandEnd(3, (note,), "")
        full = session.run("true", {}, RunDir(tmp_path / "2")).full
        assert full.startswith("the job disk (2 MiB) is full: the command's output and files")


def test_the_end_of_a_guest_is_raised(directory: RunDir, tmp_path: Path) -> None:
    with started(directory) as (session, guest):
        guest.over.set()
        with pytest.raises(GuestLost, match="ended"):
            session.run("true", {}, RunDir(tmp_path / "1"))
        assert not session.alive
        with pytest.raises(GuestLost, match="ended"):
            session.run("true", {}, RunDir(tmp_path / "1"))


def test_a_guest_that_does_not_start_says_why(directory: RunDir) -> None:
    def fails(_: Session) -> Any:
        raise UserError("no such machine")

    session = Session(directory, DISK_MIB)
    with pytest.raises(UserError, match="no such machine"):
        session.start(fails)
    session.end()


def test_too_many_files_are_refused(
    directory: RunDir, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_module, "INBOX_MIB", 1)
    with started(directory) as (session, guest):
        with pytest.raises(UserError, match="more than 1 MiB"):
            session.run("true", {"x": bytes(1 << 20)}, RunDir(tmp_path / "1"))
        assert not guest.sent
        assert session.run("true", {"x": bytes(1000)}, RunDir(tmp_path / "1")).status == 3


def test_files_that_the_guest_could_not_unpack_are_sent_again(
    directory: RunDir, tmp_path: Path
) -> None:
    with started(directory) as (session, guest):
        into = RunDir(tmp_path / "1")
        session.run("true", {"first": b"1"}, into)
        guest.has_room = False
        refused = r"could not unpack 4 MiB of files; is there room on its disk of 2 MiB\?"
        with pytest.raises(UserError, match=refused):
            session.run("true", {"big": bytes(3 << 20)}, into)
        guest.has_room = True
        with pytest.raises(UserError, match="longer than"):
            session.run("x" * (1 << 20), {"new": b"3"}, into)
        session.run("true", {"first": b"1", "big": b"2", "new": b"3"}, into)
    assert guest.files[-1] == {"big": b"2", "new": b"3"}


BUSYBOX = """#!/bin/sh
case $1 in
mount | dmesg | sync) ;;
*) exec "$@" ;;
esac
"""


def test_the_script_of_the_guest_runs_nothing_without_its_files(tmp_path: Path) -> None:
    """The second archive ends in the middle of its last file, as a disk without room would."""
    for name in ("bin", "lab", "machine", "job/files"):
        (tmp_path / name).mkdir(parents=True)
    programs = {"bin/busybox": BUSYBOX, "bin/stty": "", "lab/capture.sh": "capture_stop() { :; }\n"
                "capture_start() { :; }\ncapture_wanted() { false; }\n",
                "lab/numalab-run": "#!/bin/sh\nshift 4\nexec \"$@\"\n"}  # fmt: skip
    for name, text in programs.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    places = {"/usr/lib/numalab": "lab", "/job": "job", "/run/machine": "machine", "iflag=direct ":
              None, "/run/numalab": "command", "/dev/pmem1": "disk"}  # fmt: skip
    script = session_job(1, (), 64).files["session.sh"].decode()
    for place, ours in places.items():
        script = script.replace(place, str(tmp_path / ours) if ours else "")
    with tarfile.open(tmp_path / "disk", "w") as archive:
        for name, size in (("small", 10), ("sub/big", 3 << 20)):
            member = tarfile.TarInfo(name)
            member.size = size
            archive.addfile(member, io.BytesIO(bytes(size)))
    text = base64.b64encode(f"ls -R {tmp_path}/job/files; exit 7".encode()).decode()
    done = subprocess.run(
        ["sh", "-c", script, "session.sh", "0"],
        input=f"4 0 {text}\n2 0 {text}\n0 0 {text}\n",
        env={"PATH": f"{tmp_path}/bin:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "\x050 0\x06\x051 7\x06\x052 999\x06\x053 7\x06"
    commands = tmp_path / "job/out/commands"
    assert "small" not in (commands / "3/stdout").read_text()


def test_the_job_carries_the_script_of_the_guest() -> None:
    job = session_job(128, ("sched:sched_switch",), 64)
    assert job.argv == ("sh", "/job/files/session.sh", "128")
    assert job.files["session.sh"].startswith(b"#!/bin/sh\n")
