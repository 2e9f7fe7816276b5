"""Process identities, embedded roots, leftovers and the verdict on KVM."""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from numalab.errors import GuestLost, HostError, LabError, LossCause, QemuFailed, UserError
from numalab.guest import kvm, verdicts
from numalab.guest.console import Beat
from numalab.guest.kvm import Choice, pick_mode
from numalab.host.processes import Owner, is_alive, start_time, this_process
from numalab.machine.model import Job, Machine
from numalab.qemu import binding, embed
from numalab.qemu.binding import asking_qemu
from numalab.qemu.ending import OUT_OF_MEMORY
from numalab.qemu.hypervisor import connect, disconnect_all
from numalab.run_dir import RunDir


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    cache = tmp_path / "cache"
    monkeypatch.setenv("NUMALAB_CACHE", str(cache))
    return cache


def test_this_process_is_alive_and_another_start_is_not() -> None:
    me = this_process()
    assert is_alive(me)
    assert not is_alive(Owner(me.pid, me.started + 1))
    assert start_time(2**22 + 1) is None


def test_a_zombie_counts_as_gone() -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    deadline = time.monotonic() + 20
    while start_time(child.pid) is not None:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    child.wait()


def test_two_roots_at_once_and_one_again() -> None:
    first = embed.take_root()
    second = embed.take_root()
    assert first.path != second.path
    first.release()
    again = embed.take_root()
    assert again.path == first.path
    third = embed.take_root(second.path)
    assert third.path not in (first.path, second.path)
    second.release()
    same = embed.take_root(second.path)
    assert same.path == second.path
    same.release()
    again.release()
    third.release()


def test_the_short_folder_of_a_deep_cache_goes_with_its_last_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NUMALAB_CACHE", str(tmp_path / ("deep" * 20)))
    first = embed.take_root()
    second = embed.take_root()
    folder = first.path.parent
    assert folder.parent == Path(tempfile.gettempdir()) and second.path.parent == folder
    first.release()
    assert folder.is_dir()
    second.release()
    assert not folder.exists()
    third = embed.take_root()
    assert third.path == first.path and third.path.is_dir()
    third.release()
    assert not folder.exists()


def test_a_root_is_short_and_for_its_user_only() -> None:
    root = embed.take_root()
    try:
        assert len(str(root.path)) < 60
        assert root.path.stat().st_mode & 0o777 == 0o700
        text = (root.path / "etc" / "qemu.conf").read_text()
        assert "seccomp_sandbox = 0" in text and f'user = "+{os.getuid()}"' in text
    finally:
        root.release()


def sleeper(*words: str, name: str = "qemu-system-x") -> "subprocess.Popen[bytes]":
    """Start a process that looks like a QEMU with these arguments."""
    code = "import time; print(flush=True); time.sleep(100)"
    argv = [name, "-c", code, *words]
    process = subprocess.Popen(argv, executable=sys.executable, stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    process.stdout.close()
    return process


def test_only_its_own_leftovers_are_ended(tmp_path: Path) -> None:
    root = tmp_path / "0"
    guest = sleeper(f"-chardev path={root}/lib/qemu/monitor.sock")
    probe = sleeper(f"unix:{root}/lib/qemu/qmp-X/qmp.monitor")
    other = sleeper(f"-chardev path={tmp_path}/01/lib/qemu/monitor.sock")
    editor = sleeper(f"{root}/lib/qemu/monitor.sock", name="editor")
    try:
        (root / "run/qemu").mkdir(parents=True)
        (root / "lib/qemu/qmp-X").mkdir(parents=True)
        (root / "cache").mkdir()
        ended = embed.end_leftovers(root)
        assert set(ended) == {guest.pid, probe.pid}
        assert guest.wait(10) == -9 and probe.wait(10) == -9
        assert other.poll() is None and editor.poll() is None
        assert sorted(path.name for path in root.iterdir()) == ["cache"]
    finally:
        for process in (guest, probe, other, editor):
            process.kill()
            process.wait()


def test_a_connection_that_cannot_be_opened() -> None:
    with pytest.raises(HostError) as caught:
        connect("qemu+unix:///system?socket=/no/such/socket")
    assert "cannot connect to libvirt" in str(caught.value)
    assert "hint: " in str(caught.value)


def test_a_domain_that_libvirt_refuses() -> None:
    hypervisor = connect("test:///default")
    with pytest.raises(QemuFailed, match="the guest could not be started"):
        hypervisor.start("x", "<domain type='test'/>")
    assert hypervisor.guests == ()
    disconnect_all()


@pytest.fixture
def device(tmp_path: Path) -> Path:
    path = tmp_path / "kvm"
    path.touch()
    return path


def fake_guests(
    monkeypatch: pytest.MonkeyPatch,
    endings: dict[str, LabError | None],
    in_turn: list[LabError | None] | None = None,
) -> list[tuple[str, str]]:
    """Let probes end as told for each CPU model, or in turn; return the list of what was tried."""
    tried: list[tuple[str, str]] = []

    def run_guest(machine: Machine, job: Job, run_dir: RunDir, **options: object) -> None:
        tried.append((machine.mode, machine.cpu_model))
        error = in_turn.pop(0) if in_turn else endings[machine.cpu_model]
        if error is not None:
            raise error
        on_beat = options["on_beat"]
        assert callable(on_beat)
        on_beat(Beat("boot", 1.0))

    monkeypatch.setattr(kvm, "run_guest", run_guest)
    return tried


@pytest.fixture
def bzimage(tmp_path: Path) -> Path:
    path = tmp_path / "bzImage"
    path.write_bytes(b"kernel")
    return path


def test_auto_takes_kvm_where_it_works_and_tries_once(
    device: Path, bzimage: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    aborted = QemuFailed("the guest could not be started: QEMU aborted")
    tried = fake_guests(monkeypatch, {"host": aborted, "host-no-arch-capabilities": None})
    choice = pick_mode("auto", bzimage, bzimage, device=device)
    assert (choice.mode, choice.cpu_model) == ("kvm", "host-no-arch-capabilities")
    assert pick_mode("auto", bzimage, bzimage, device=device) == choice
    assert tried == [("kvm", "host"), ("kvm", "host-no-arch-capabilities")]


def test_auto_ends_in_icount_where_the_guest_hangs(
    device: Path, bzimage: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hung = GuestLost("the guest did not reach its init within 15 s", note="more")
    tried = fake_guests(monkeypatch, {"host": hung})
    choice = pick_mode("auto", bzimage, bzimage, device=device)
    reason = "the guest did not reach its init within 15 s"
    assert choice == Choice("icount", "host", f"KVM does not run a guest here: {reason}")
    with pytest.raises(HostError, match="did not reach its init"):
        pick_mode("kvm", bzimage, bzimage, device=device)
    assert len(tried) == 1


@pytest.mark.parametrize("reason", ["the guest rebooted", "the guest's kernel panicked: BUG"])
@pytest.mark.parametrize("again", [True, False])
def test_a_guest_that_crashes_is_booted_a_second_time(
    device: Path, bzimage: Path, monkeypatch: pytest.MonkeyPatch, reason: str, *, again: bool
) -> None:
    endings: list[LabError | None] = [GuestLost(reason), GuestLost(reason) if again else None]
    fake_guests(monkeypatch, {}, endings)
    choice = pick_mode("auto", bzimage, bzimage, device=device)
    assert endings == []
    if again:
        assert choice == Choice("icount", "host", f"KVM does not run a guest here: {reason}")
    else:
        why = f"a guest with CPU model host reached its init, the second time ({reason})"
        assert choice == Choice("kvm", "host", why)


@pytest.mark.parametrize(
    "error",
    [
        UserError("'' is not one word of a command line", key="cmdline"),
        HostError("cannot write job.img: No space left on device"),
        GuestLost(f"QEMU was killed by SIGKILL; {OUT_OF_MEMORY}", cause=LossCause.HOST),
    ],
)
def test_an_error_of_the_user_or_the_host_says_nothing_about_kvm(
    device: Path, bzimage: Path, monkeypatch: pytest.MonkeyPatch, error: LabError
) -> None:
    fake_guests(monkeypatch, {"host": error})
    with pytest.raises(type(error)) as caught:
        pick_mode("auto", bzimage, bzimage, device=device)
    assert caught.value is error
    fake_guests(monkeypatch, {"host": None})
    assert pick_mode("auto", bzimage, bzimage, device=device).mode == "kvm"


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        ("process exited: failed to set MSR 0x10a", QemuFailed),
        ("cannot set up guest memory: Cannot allocate memory", HostError),
        ("Unable to write to 'console.log': No space left on device", HostError),
    ],
)
def test_a_full_host_is_no_failure_of_qemu(message: str, kind: type[HostError]) -> None:
    with (
        pytest.raises(HostError, match="could not be started") as caught,
        asking_qemu("x could not be started"),
    ):
        raise binding.libvirt.libvirtError(message)
    assert type(caught.value) is kind


def test_kvm_works_where_any_kernel_ran_in_it(
    device: Path, bzimage: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verdicts, "unusable_device", lambda *_: None)
    fake_guests(monkeypatch, {"host": GuestLost("the guest hung")})
    pick_mode("auto", bzimage, bzimage, device=device)
    assert (first := verdicts.any_verdict()) is not None and not first.works
    bzimage.write_bytes(b"another")
    fake_guests(monkeypatch, {"host": None})
    pick_mode("auto", bzimage, bzimage, device=device)
    fake_guests(monkeypatch, {"host": GuestLost("the guest hung")})
    pick_mode("auto", bzimage, bzimage, device=device, words=("last",))
    assert (latest := verdicts.any_verdict()) is not None and latest.works


def test_another_kernel_is_tried_anew(
    device: Path, bzimage: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried = fake_guests(monkeypatch, {"host": None})
    pick_mode("auto", bzimage, bzimage, device=device)
    bzimage.write_bytes(b"another")
    pick_mode("auto", bzimage, bzimage, device=device)
    assert len(tried) == 2


def test_other_kernel_words_are_tried_anew(
    device: Path, bzimage: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried = fake_guests(monkeypatch, {"host": None})
    for words in ((), ("noxsave",), ("noxsave",), ()):
        assert pick_mode("auto", bzimage, bzimage, device=device, words=words).mode == "kvm"
    assert len(tried) == 2


def test_a_failure_without_words_decides_for_all_words(
    device: Path, bzimage: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried = fake_guests(monkeypatch, {"host": GuestLost("the guest hung")})
    for words in (("noxsave",), ("nosmp",), ()):
        choice = pick_mode("auto", bzimage, bzimage, device=device, words=words)
        assert choice.mode == "icount"
    assert len(tried) == 1


@pytest.mark.parametrize("went_on", [True, False])
def test_a_slow_guest_is_remembered_shortly_and_a_dead_one_until_the_reboot(
    device: Path, bzimage: Path, monkeypatch: pytest.MonkeyPatch, *, went_on: bool
) -> None:
    tried = []

    def run_guest(machine: Machine, job: Job, run_dir: RunDir, **options: object) -> None:
        tried.append(options["limits"])
        run_dir.path.mkdir()
        run_dir.console.write_bytes(b"[    0.0] Linux\n" if went_on else b"")
        raise GuestLost("the guest did not reach its init within 15 s")

    monkeypatch.setattr(kvm, "run_guest", run_guest)
    now = time.time()
    for later in (0.0, 300.0, 1200.0):
        monkeypatch.setattr("time.time", lambda later=later: now + later)
        assert pick_mode("auto", bzimage, bzimage, device=device).mode == "icount"
    assert len(tried) == (2 if went_on else 1)
    with pytest.raises(HostError, match="tried 20 min ago" if not went_on else "tried just now"):
        pick_mode("kvm", bzimage, bzimage, device=device)
    verdicts.forget_verdicts()
    pick_mode("auto", bzimage, bzimage, device=device)
    assert len(tried) == (3 if went_on else 2)


def test_without_the_device_nothing_is_tried(
    bzimage: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    tried = fake_guests(monkeypatch, {})
    assert pick_mode("auto", bzimage, bzimage, device=tmp_path / "none").mode == "icount"
    assert tried == []


def test_modes_that_need_no_trial(bzimage: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tried = fake_guests(monkeypatch, {})
    assert pick_mode("tcg", bzimage, bzimage).mode == "tcg"
    assert pick_mode("icount", bzimage, bzimage).mode == "icount"
    with pytest.raises(UserError, match="valid: auto, kvm, tcg, icount, timed"):
        pick_mode("xen", bzimage, bzimage)
    assert tried == []
