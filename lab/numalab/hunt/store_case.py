"""Store a confirmed violation: its case file, and a reproducer beside it."""

from collections.abc import Sequence
from pathlib import Path

from numalab.files import write_text
from numalab.hunt.boot_case import HuntBench
from numalab.hunt.case_file import render_case
from numalab.hunt.hunting import ConfirmedViolation
from numalab.hunt.replay import verdict
from numalab.hunt.reproducer import write_reproducer
from numalab.hunt.workers import CaseWorkers


def store_case(
    folder: Path,
    violation: ConfirmedViolation,
    benches: Sequence[HuntBench],
    crew: CaseWorkers,
    *,
    emulator: str | None = None,
) -> Path:
    """Write the case file of a violation and its reproducer; return the case file.

    The case names the kernel of the first bench as violating, and the others as they behave.
    """
    bench, *references = benches
    violates, holds = [bench.kernel.name], list[str]()
    for reference in references:
        boots = crew.boot([(violation.case, reference, seed) for seed in violation.seeds])
        bad, _ = verdict(boots, violation.finding.prop, violation.finding.most, every=False)
        (violates if bad else holds).append(reference.kernel.name)
    text = render_case(
        violation.case,
        violation.finding,
        seeds=violation.seeds,
        violated_by=violates,
        holds_on=holds,
        emulator=emulator,
        scheduler=bench.scheduler.scheduler.spec if bench.scheduler is not None else None,
    )
    file = folder / f"{violation.finding.prop}-{violation.case.key()[:6]}.toml"
    write_text(file, text)
    if bench.scheduler is None:
        write_reproducer(
            file.with_suffix(""), violation.case, violation.finding, bench, violation.seeds[0]
        )
    return file
