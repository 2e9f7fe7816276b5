"""The folder of a finding about a scheduler (sched_ext): its sources, a study, messages, a mail."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from numalab.errors import LabError
from numalab.files import make_dir, write_text
from numalab.guest.console import printable
from numalab.hunt.boot_case import HuntBench, SchedulerEnd, end_of_scheduler
from numalab.hunt.finding import Finding
from numalab.hunt.posting.folder import Shown
from numalab.hunt.posting.mail import WIDTH, describe_load, machine_rows, paragraph
from numalab.hunt.posting.program import describe_machine
from numalab.hunt.property import SCHEDULER
from numalab.scheduler.in_guest import SchedulerInGuest, scheduler_in_guest
from numalab.scheduler.scheduler_spec import SchedulerOrigin, SchedulerSpec

STUDY = "reproduce.toml"
MESSAGES = "messages.txt"
MAIL = "mail.txt"
_MOST_SOURCE = 4 << 20
_MOST_LINES = 400
_LONGEST = 300
_NAME = re.compile(r"^scheduler = .*$", re.MULTILINE)
_CASE = re.compile(r"^\[case\]\n(?:[^\[\n].*\n)*\n?", re.MULTILINE)


@dataclass(frozen=True)
class SchedulerReport:
    """What the mail says: the case with its finding, the kernel, and the ends of the two boots.

    `short` is the boot with the hunt's watchdog, `own` the one with the kernel's; None where the
    finding is not about the scheduler's end, or the boot failed.
    """

    shown: Shown
    spec: SchedulerSpec
    kernel: str
    watchdog_ms: int
    short: SchedulerEnd | None = None
    own: SchedulerEnd | None = None


def write_scheduler_folder(folder: Path, shown: Shown, bench: HuntBench, study: str) -> None:
    """Write the folder of a finding; `study` is the text of its case file.

    A stall is booted again with the hunt's watchdog, for its messages and its dump, and with the
    scheduler's own. Ctrl-C is passed on.
    """
    assert bench.scheduler is not None
    make_dir(folder)
    scheduler: SchedulerInGuest = bench.scheduler
    spec = scheduler.scheduler.spec
    sources = list(_sources(spec))
    for path in sources:
        write_text(folder / path.name, path.read_text(encoding="utf-8", errors="replace"))
    here = f'scheduler = "./{sources[0].name}"' if sources else ""
    # A study with a case may come from anybody, and may not name a source (require_lab_names()).
    plain = _CASE.sub("", study)
    write_text(folder / STUDY, _NAME.sub(lambda _: here, plain) if here else plain)
    report = SchedulerReport(shown, spec, bench.kernel.name, scheduler.watchdog_ms)
    if shown.finding.prop == SCHEDULER:
        own = replace(bench, scheduler=scheduler_in_guest(scheduler.scheduler))
        report = replace(report, short=_end(shown, bench), own=_end(shown, own))
    write_text(folder / MESSAGES, render_messages(report))
    write_text(folder / MAIL, render_scheduler_mail(report))


def _sources(spec: SchedulerSpec) -> Iterator[Path]:
    """Yield the user's sources and the headers beside them, the BPF program first."""
    if spec.origin is not SchedulerOrigin.SOURCE or spec.path is None:
        return
    paths = [spec.path, spec.path.with_name(f"{spec.name}.c")]
    paths += sorted(path for path in spec.path.parent.glob("*.h") if path.is_file())
    yield from (path for path in paths if path.stat().st_size <= _MOST_SOURCE)


def _end(shown: Shown, bench: HuntBench) -> SchedulerEnd | None:
    try:
        return end_of_scheduler(shown.case, bench, shown.seeds[0])
    except LabError:  # a guest that is lost has no messages
        return None


def render_messages(report: SchedulerReport) -> str:
    """Return the messages of scheduler and kernel, with the dump, without control characters."""
    lines = [f"{report.spec.title} on {report.kernel}, seed {report.shown.seeds[0]}", ""]
    if report.short is None:
        return "\n".join([*lines, printable(report.shown.finding.text), ""])
    lines += [*report.short.reason.splitlines(), "", "What the scheduler printed:", ""]
    lines += report.short.log.splitlines()[-_MOST_LINES:]
    return "\n".join(printable(line)[:_LONGEST] for line in lines) + "\n"


def render_scheduler_mail(report: SchedulerReport) -> str:
    """Return the draft of a mail."""
    shown, spec = report.shown, report.spec
    case = shown.case
    loads = describe_load(case.loads[0], case) if len(case.loads) == 1 else f"see {STUDY}."
    subject = f"Subject: {spec.name}: {_subject(shown.finding)}"
    paragraphs = (
        f"{spec.title} on {report.kernel}, {describe_machine(case)}: "
        f"{printable(shown.finding.text)}.",
        *([_watchdogs(report)] if report.short else []),
    )
    lines = ["To: sched-ext@lists.linux.dev", subject[: 2 * WIDTH], ""]
    for text in paragraphs:
        lines += [*paragraph(text), ""]
    lines += ["Machine (distances of nodes, as in the SLIT):", "", *machine_rows(case), ""]
    lines += [*paragraph(f"Load: {loads}"), ""]
    how = f"To reproduce: numalab run {STUDY} boots it, and the same seed gives the same result."
    lines += [*paragraph(f"{how} {MESSAGES} has the messages and the dump."), ""]
    return "\n".join(
        [*lines, *paragraph("Not known: the cause, and whether hardware shows it."), ""]
    )


def _subject(finding: Finding) -> str:
    text = printable(finding.text).rpartition("EEVDF: ")[2]
    return text if finding.prop == SCHEDULER else f"{finding.prop} is violated"


def _watchdogs(report: SchedulerReport) -> str:
    """Return how long a task waited, with both lengths of the watchdog."""
    text = "This is with the scheduler's own watchdog."
    if report.watchdog_ms:
        text = f"Here the kernel's watchdog is shortened to {report.watchdog_ms / 1000:g} s."
        if report.own is None:
            text += " A boot with the scheduler's own watchdog was lost."
        elif not report.own.reason:
            text += " With the scheduler's own, it stays enabled: no task waits for so long."
        else:
            reason = printable(report.own.reason.splitlines()[0]).rpartition("EEVDF: ")[2]
            text += f" With the scheduler's own, it is ejected, too: {reason}."
    return text
