"""Store a confirmed violation: its case file, and a folder beside it that can be posted."""

import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from numalab.files import write_text
from numalab.hunt.boot_case import HuntBench
from numalab.hunt.calls.benches import for_properties
from numalab.hunt.case_file import render_case
from numalab.hunt.compare.pairs import boot_beside
from numalab.hunt.outcome import ConfirmedViolation
from numalab.hunt.posting.folder import Shown, write_folder
from numalab.hunt.posting.scheduler_folder import write_scheduler_folder
from numalab.hunt.replay import verdict
from numalab.hunt.workers import Boot, BudgetOverError, CaseWorkers


def store_case(
    folder: Path,
    violation: ConfirmedViolation,
    benches: Sequence[HuntBench],
    crew: CaseWorkers,
    *,
    emulator: str | None = None,
) -> Path:
    """Write the case file of a violation and its folder; return the case file.

    The case names the kernel of the first bench as violating, and the others as they behave: one
    that violates it in some of its boots only, or is not judged, is in neither list.
    """
    bench, *references = [for_properties(side, [violation.finding.prop]) for side in benches]
    violates, holds = [bench.kernel.name], list[str]()
    for reference in references:
        every: bool | None = False
        some: bool | None = False
        with suppress(BudgetOverError):  # the confirmation has shown it in other boots
            wanted: list[Boot] = [(violation.case, reference, seed) for seed in violation.seeds]
            boots = boot_beside(crew, wanted, violation.finding.prop, reference)
            about = violation.finding.prop, violation.finding.most
            every, some = (verdict(boots, *about, every=strict)[0] for strict in (True, False))
        if every is not None and every == some:
            (violates if every else holds).append(reference.kernel.name)
    text = render_case(
        violation.case,
        violation.finding,
        seeds=violation.seeds,
        violated_by=violates,
        holds_on=holds,
        emulator=emulator,
        scheduler=bench.scheduler.scheduler.spec if bench.scheduler is not None else None,
        watchdog_ms=bench.scheduler.watchdog_ms if bench.scheduler is not None else 0,
    )
    name = re.sub(r"[/:]", "_", violation.finding.prop)
    file = folder / f"{name}-{violation.case.key()[:6]}.toml"
    write_text(file, text)
    shown = Shown(violation.case, violation.finding, violation.seeds)
    if bench.scheduler is None:
        write_folder(file.with_suffix(""), shown, benches, holds)
    else:
        write_scheduler_folder(file.with_suffix(""), shown, bench, text)
    return file
