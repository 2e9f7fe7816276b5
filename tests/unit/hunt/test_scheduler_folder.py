"""The folder of a finding about a scheduler: sources, a study, messages and a mail."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

from numalab.hunt.boot_case import HuntBench, SchedulerEnd
from numalab.hunt.case import Case, machine_of
from numalab.hunt.finding import Finding
from numalab.hunt.loads.load_text import parse_loads
from numalab.hunt.posting.folder import Shown
from numalab.hunt.posting.scheduler_folder import (
    MAIL,
    MESSAGES,
    STUDY,
    SchedulerReport,
    render_messages,
    render_scheduler_mail,
    write_scheduler_folder,
)
from numalab.hunt.property import SCHEDULER
from numalab.scheduler.in_guest import SchedulerInGuest
from numalab.scheduler.scheduler_artifact import BuiltScheduler
from numalab.scheduler.scheduler_spec import find_scheduler

STALL = "scx_mine was disabled while the command ran; tasks fell back to EEVDF: runnable task stall"
CASE = '[case]\nproperty = "scheduler"\nviolated_by = ["k"]\nholds_on = []\n\n'
CASE_FILE = (
    f'question = "q"\n\n{CASE}[variants.violates]\nkernel = "k"\n'
    'scheduler = "/home/me/scx_mine.bpf.c"\n'
)


def shown(prop: str, text: str) -> Shown:
    machine = machine_of(
        'summary = "s"\nnodes = 2\ncpus = 1\nmemory_mib = 512\nmatrix = [[10, 20], [20, 10]]\n'
    )
    assert machine is not None
    case = Case(machine, parse_loads("time ms=600;hog n=2 cpus=0-1"))
    return Shown(case, Finding(prop, None, 1.0, 0.0, text), (4,))


def report(tmp_path: Path, **values: object) -> SchedulerReport:
    for name in ("scx_mine.bpf.c", "scx_mine.c", "extra.h"):
        (tmp_path / name).write_text(f"/* {name} */")
    spec = find_scheduler("./scx_mine.bpf.c", (), tmp_path)
    plain = SchedulerReport(shown(SCHEDULER, STALL), spec, "debian-6.12-sched-ext", 5000)
    return replace(plain, **values)  # type: ignore[arg-type]


def test_the_folder_has_the_sources_and_a_study_that_names_them(tmp_path: Path) -> None:
    spec = report(tmp_path).spec
    scheduler = SchedulerInGuest(BuiltScheduler(spec, tmp_path / "scx_mine", "0"), (), {}, 5000)
    bench = SimpleNamespace(scheduler=scheduler, kernel=SimpleNamespace(name="k"))
    folder = tmp_path / "folder"
    finding = shown("affinity", "hog 0 ran on CPU 1")
    write_scheduler_folder(folder, finding, cast(HuntBench, bench), CASE_FILE)
    names = {"scx_mine.bpf.c", "scx_mine.c", "extra.h", STUDY, MESSAGES, MAIL}
    assert {path.name for path in folder.iterdir()} == names
    study = '[variants.violates]\nkernel = "k"\nscheduler = "./scx_mine.bpf.c"\n'
    assert (folder / STUDY).read_text() == f'question = "q"\n\n{study}'
    assert (folder / "scx_mine.c").read_text() == "/* scx_mine.c */"
    mail = (folder / MAIL).read_text()
    assert "Subject: scx_mine: affinity is violated" in mail
    assert "watchdog" not in mail


def test_the_mail_tells_what_each_watchdog_shows(tmp_path: Path) -> None:
    short = SchedulerEnd(f"{STALL} (hog0.1[99] failed to run for 5.5s)\n  | more", "")
    own = SchedulerEnd(f"{STALL} (hog0.1[99] failed to run for 44.7s)\n  | more", "")
    mail = render_scheduler_mail(report(tmp_path, short=short, own=own))
    stalled = " ".join(mail.split())
    assert "shortened to 5 s. With the scheduler's own, it is ejected, too" in stalled
    assert "failed to run for 44.7s)." in stalled
    assert "2 busy loops" in stalled
    starved = render_scheduler_mail(report(tmp_path, short=short, own=SchedulerEnd("", "")))
    assert "it stays enabled" in " ".join(starved.split())
    lost = report(tmp_path, short=short)
    assert "watchdog was lost" in " ".join(render_scheduler_mail(lost).split())
    own_only = render_scheduler_mail(report(tmp_path, short=short, watchdog_ms=0))
    assert "with the scheduler's own watchdog" in own_only
    assert max(map(len, mail.splitlines())) <= 144


def test_messages_of_a_guest_are_bounded_and_printable(tmp_path: Path) -> None:
    short = SchedulerEnd("\x1b[2J" + "r" * 9000 + "\n  | x", "\x1b]0;t\x07dump\n" * 9000)
    text = render_messages(report(tmp_path, short=short))
    assert all(line.isprintable() and len(line) <= 300 for line in text.splitlines())
    assert len(text.splitlines()) < 500
    assert "dump" in text
    assert "runnable task stall" in render_messages(report(tmp_path))
