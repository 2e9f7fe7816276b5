"""`numalab bisect --case`."""

from pathlib import Path

import typer

from numalab.bisect.history import History, Step, git_history, series_history
from numalab.cli.kernel_choice import chosen_kernel
from numalab.cli.output import emit, progress_lines, say
from numalab.errors import UserError, shown
from numalab.hunt.boot_case import HuntBench, bench_like, prepare_benches
from numalab.hunt.calls.benches import for_properties
from numalab.hunt.case_file import read_case
from numalab.hunt.compare.pairs import boot_beside
from numalab.hunt.finding import BootResult
from numalab.hunt.replay import CaseBisection, JudgedStep, bisect_case, verdict
from numalab.hunt.workers import Store, workers
from numalab.kernel.kernel_specs import KernelSpec
from numalab.kernel.patched_kernel import named_kernel
from numalab.places import project_dir
from numalab.plugins import require_plugins
from numalab.qemu.hypervisor import connect
from numalab.report.formatting import printable
from numalab.study.model import CaseTable


def run(
    path: Path,
    good: str | None,
    bad: str | None,
    series: str | None,
    *,
    kernel: str | None,
    mode: str | None,
    output: Path | None,
    connection: str,
    as_json: bool,
) -> None:
    """Find the first step on which a case violates its property; exit with 1 if there is none.

    Without `series` and revisions, the steps are the last series of `kernel`, or of the first
    kernel that violates the property.
    """
    require_plugins()
    case, table, study = read_case(path)
    history = _history(path, _base(path, table, kernel), good, bad, series)
    folder = output or project_dir() / "reports" / "hunts" / path.stem
    connect(connection)
    say(f"{history.summary}, results in {shown(folder)}")
    benches: dict[str, HuntBench] = {}
    judged: list[HuntBench] = []  # the first is the good end of the history
    with progress_lines("prepare") as tell, workers(Store(folder), 1, lambda *_: None) as crew:

        def judge(step: Step) -> tuple[bool | None, str]:
            spec = step.spec
            if not benches:
                wanted = mode or study.mode
                (benches[spec.name],) = prepare_benches(
                    [spec], wanted, connection, tell, emulator=study.machine.emulator
                )
            bench = bench_like(next(iter(benches.values())), spec, tell)
            bench = for_properties(bench, [table.property])
            judged.append(bench)
            boots: list[BootResult] = []
            for seed in study.seeds:
                boots += boot_beside(crew, [(case, bench, seed)], table.property, judged[0])
                violated, text = verdict(boots, table.property, table.most)
                if not violated:
                    break
            return violated, text

        bisection = bisect_case(history, judge, lambda row: say(_line(row)))
    emit(bisection, as_json, _text(bisection))
    if not bisection.first:
        raise typer.Exit(1)


def _base(path: Path, table: CaseTable, kernel: str | None) -> KernelSpec:
    """Return the kernel of --kernel, or the first that violates the property of the case."""
    if kernel is not None:
        return chosen_kernel(kernel)
    if not table.violated_by:
        raise UserError("names no kernel that violates it", file=path, key="case.violated_by")
    return named_kernel(table.violated_by[0], path, "case.violated_by")


def _history(
    path: Path, spec: KernelSpec, good: str | None, bad: str | None, series: str | None
) -> History:
    if good is not None and bad is not None and series is None:
        return git_history(spec, good, bad)
    if good is not None or bad is not None:
        raise UserError("give either --good and --bad, or --series")
    if series is None and not spec.series:
        raise UserError(f"{spec.name} has no series; say --good and --bad, or --series", file=path)
    return series_history(spec, series or spec.series[-1])


def _line(row: JudgedStep) -> str:
    side = {True: "violates", False: "holds", None: "not judged"}[row.violates]
    return f"{row.step}: {side}, {printable(row.title)}: {printable(row.seen)}"


def _text(bisection: CaseBisection) -> str:
    if not bisection.first:
        return f"no first bad step: {bisection.ended}"
    if len(bisection.first) == 1:
        return f"first bad step: {printable(bisection.first[0])}"
    lines = ["the first bad step is in this list; all but the last were not judged:"]
    return "\n".join([*lines, *map(printable, bisection.first)])
