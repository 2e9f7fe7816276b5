"""`numalab hunt --replay`: boot the stored cases again."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import typer

from numalab.cli.kernel_choice import chosen_kernel
from numalab.cli.output import ModeName, continued_by, emit, progress_lines, say
from numalab.files import write_text
from numalab.hunt.boot_case import HuntBench, prepare_benches
from numalab.hunt.calls.benches import for_properties
from numalab.hunt.case import Case
from numalab.hunt.case_file import find_cases, read_case
from numalab.hunt.compare.pairs import boot_beside
from numalab.hunt.finding import BootResult
from numalab.hunt.property import FACTS
from numalab.hunt.replay import Replayed, render_replay_junit, replay
from numalab.hunt.workers import Boot, Store, workers
from numalab.kernel.patched_kernel import named_kernel
from numalab.places import project_dir
from numalab.qemu.hypervisor import connect
from numalab.study.model import CaseTable


def replay_cases(
    kernels: Sequence[str] | None,
    mode: ModeName,
    jobs: int | None,
    output: Path | None,
    junit: Path | None,
    connection: str,
    as_json: bool,
) -> None:
    """Boot the stored cases again; exit with 1 if a result differs from the case file."""
    cases = [(path, *read_case(path)) for path in find_cases()]
    tables = [(path, case, table, study.seeds) for path, case, table, study in cases]
    specs = {spec.name: spec for spec in map(chosen_kernel, kernels or ())}
    wanted = {
        path.stem: [
            (name, name in table.violated_by)
            for name in ([*specs] or [*table.violated_by, *table.holds_on])
        ]
        for path, _, table, _ in tables
    }
    for path, _, table, _ in tables:
        of_case = {"violated_by": table.violated_by, "holds_on": table.holds_on}
        if kernels:  # the kernel that a case with `topology-facts` compares with
            of_case = {"holds_on": table.holds_on[:1] if table.property == FACTS else ()}
        for key, names in of_case.items():
            for name in names:
                specs[name] = named_kernel(name, path, f"case.{key}")
    folder = output or project_dir() / "reports" / "hunts" / "replay"
    connect(connection)
    emulators = {path.stem: study.machine.emulator for path, _, _, study in cases}
    benches: dict[str | None, dict[str, HuntBench]] = {}
    with progress_lines("prepare") as tell:
        for emulator in dict.fromkeys(emulators.values()):
            made = prepare_benches([*specs.values()], mode, connection, tell, emulator=emulator)
            benches[emulator] = {bench.kernel.name: bench for bench in made}
    rows: list[Replayed] = []
    with (
        continued_by("the same command"),
        workers(Store(folder), jobs or 1, lambda *_: None) as crew,
    ):
        for path, case, table, seeds in tables:
            on = benches[emulators[path.stem]]

            def boots(
                case: Case,
                name: str,
                at: Sequence[int] = seeds,
                on: Mapping[str, HuntBench] = on,
                table: CaseTable = table,
            ) -> list[BootResult]:
                reference = on.get(table.holds_on[0]) if table.holds_on else None
                bench = for_properties(on[name], [table.property])
                wanted: list[Boot] = [(case, bench, seed) for seed in at]
                return boot_beside(crew, wanted, table.property, reference)

            done = replay(path.stem, case, table, wanted[path.stem], boots)
            for row in done:
                how = "ok" if row.passes else "UNEXPECTED"
                say(f"{row.case} on {row.kernel}: {how}: {row.seen}")
            rows += done
    if junit is not None:
        write_text(junit, render_replay_junit(rows))
    bad = [row for row in rows if not row.passes]
    emit(rows, as_json, f"{len(rows)} done, {len(bad)} unexpected")
    if bad:
        raise typer.Exit(1)
