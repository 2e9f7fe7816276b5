"""`numalab hunt`."""

import re
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from numalab.campaign.prepare import Builds, choose_mode, prepare
from numalab.cli.output import ModeName, Progress, emit, goes_on, progress_lines, say
from numalab.errors import UserError
from numalab.files import make_dir, write_text
from numalab.hunt.case import Case
from numalab.hunt.case_file import render_case
from numalab.hunt.examine import WORKLOAD, HuntBench
from numalab.hunt.finding import Examined
from numalab.hunt.hunting import Aim, Hunt, Hunted, Hunter
from numalab.hunt.properties.catalogue import NAMES
from numalab.hunt.store import Store
from numalab.hunt.workers import host_jobs, workers
from numalab.image.recipe import load_recipe
from numalab.kernel.catalogue import KernelSpec, find_kernel
from numalab.places import project_dir
from numalab.qemu.hypervisor import EMBED, connect
from numalab.workload.build import build_workload
from numalab.workload.model import load_workload

_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "": 60.0}


def command(
    kernel: Annotated[str, typer.Option(help="The kernel to hunt on.")] = "debian-6.12",
    properties: Annotated[
        str | None, typer.Option(help=f"Only these, with commas: {', '.join(NAMES)}.")
    ] = None,
    budget: Annotated[str, typer.Option(help="How long: 90s, 20m, 2h.")] = "20m",
    machines: Annotated[
        int, typer.Option(min=0, help="At most so many machines; 0: no bound.")
    ] = 0,
    seed: Annotated[int, typer.Option(min=0, help="The same seed gives the same cases.")] = 1,
    jobs: Annotated[int | None, typer.Option("--jobs", "-j", min=1, help="Guests at once.")] = None,
    first: Annotated[
        bool, typer.Option("--first", help="Stop at the first that is found.")
    ] = False,
    survey: Annotated[
        bool, typer.Option("--survey", help="Confirm and shrink nothing: how close it all comes.")
    ] = False,
    against: Annotated[
        str | None, typer.Option(help="Say of each case whether this kernel violates it, too.")
    ] = None,
    mode: Annotated[
        ModeName, typer.Option(help="auto: kvm where it works, else icount.")
    ] = "icount",
    output: Annotated[
        Path | None, typer.Option(help="Where boots and cases go: reports/hunts/<kernel>")
    ] = None,
    connection: Annotated[str, typer.Option("--connect", help="The libvirt connection.")] = EMBED,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Look for machines and loads on which a kernel misbehaves, and make them small.

    Machines and loads are drawn from the seed; what violates a property is confirmed in a boot with
    another seed, shrunk by booting what is smaller, and written as a study of its own. Stopped by
    Ctrl-C, the same command goes on: no boot is done twice. docs/hunt.md says what is looked for.

    Exits with 1 when something was found.
    """
    aim = Aim(seed, _properties(properties), _seconds(budget), machines, first, survey)
    spec = find_kernel(kernel)
    other = find_kernel(against) if against is not None else None
    folder = output or project_dir() / "reports" / "hunts" / spec.name.replace("/", "_")
    make_dir(folder)
    connect(connection)
    with progress_lines("prepare") as tell:
        builds = _prepared([spec, *([other] if other else [])], tell)
        choice = choose_mode(mode, builds, connection, tell)
    say(f"hunting on {spec.name} with seed {seed} in mode {choice.mode}, results in {folder}")
    bench = HuntBench(spec, builds, choice, connection)

    def told(_case: Case, examined: Examined) -> None:
        if examined.error:
            say(f"not examined: {examined.error.splitlines()[0]}")

    with goes_on("the same command"), workers(Store(folder), jobs or host_jobs(), told) as crew:
        progress = Hunter(aim, bench, crew, say).run()
        files = []
        for found in progress.found:
            rival = HuntBench(other, builds, choice, connection) if other else None
            violates: list[str] = [spec.name]
            holds: list[str] = []
            if rival is not None:
                one = crew.examine([found.case], rival, found.seed)[0]
                bad = any(f.prop == found.finding.prop for f in one.violations)
                (violates if bad else holds).append(rival.kernel.name)
            files.append(_write(folder, found, violates, holds))
        booted = crew.booted
    value = {
        "kernel": spec.name,
        "seed": seed,
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "machines": progress.machines,
        "loads": progress.loads,
        "boots": booted,
        "closest": progress.closest,
        "closeness": {name: _spread(each) for name, each in progress.values.items()},
        "unconfirmed": progress.unconfirmed,
        "not_examined": progress.failed,
        "found": [_told(found, file) for found, file in zip(progress.found, files, strict=True)],
    }
    emit(value, as_json, _text(progress, files, booted))
    if progress.found:
        raise typer.Exit(1)


def _properties(text: str | None) -> frozenset[str]:
    if text is None:
        return frozenset(NAMES)
    names = [name.strip() for name in text.split(",")]
    for name in names:
        if name not in NAMES:
            raise UserError(f"no property {name!r}", key="--properties", choices=NAMES)
    return frozenset(names)


def _seconds(text: str) -> float:
    found = re.fullmatch(r"(\d{1,6})([smh]?)", text)
    if not found or not int(found[1]):
        raise UserError(f"{text!r} is no time", key="--budget", choices=["90s", "20m", "2h"])
    return int(found[1]) * _UNITS[found[2]]


def _prepared(specs: list[KernelSpec], tell: Progress) -> Builds:
    builds = prepare(specs, load_recipe("base"), (), tell)
    return replace(builds, files={WORKLOAD: build_workload(load_workload(WORKLOAD).file.parent)})


def _write(folder: Path, found: Hunted, violates: list[str], holds: list[str]) -> Path:
    name = f"{found.finding.prop}-{found.case.key()[:6]}.toml"
    text = render_case(
        found.case, found.finding, seed=found.seed, violated_by=violates, holds_on=holds
    )
    write_text(folder / name, text)
    return folder / name


def _told(found: Hunted, file: Path) -> dict[str, object]:
    machine = found.case.machine
    return {
        "property": found.finding.prop,
        "sentence": found.finding.text,
        "minutes": found.minutes,
        "minutes_until_small": found.shrunk_minutes,
        "after_machines": found.after,
        "nodes": len(machine.nodes),
        "cpus": machine.cpu_count,
        "tasks": sum(load.tasks for load in found.case.loads),
        "file": file,
    }


def _spread(values: list[float]) -> dict[str, float]:
    """Say how many there are, how many are above 1, and where the middle, 95 %, 99 % lie."""
    ordered = sorted(values)
    last = len(ordered) - 1
    found = {f"p{share}": round(ordered[round(share / 100 * last)], 4) for share in (50, 95, 99)}
    above = sum(value > 1 for value in values)
    return {"looks": len(values), "above": above, **found, "most": round(ordered[-1], 4)}


def _text(progress: Hunt, files: list[Path], booted: int) -> str:
    lines = [f"{progress.machines} machines, {progress.loads} loads, {booted} boots"]
    for found, file in zip(progress.found, files, strict=True):
        machine = found.case.machine
        tasks = sum(load.tasks for load in found.case.loads)
        lines.append(
            f"{found.finding.prop}: {len(machine.nodes)} nodes, {machine.cpu_count} CPUs, {tasks}"
            f" tasks, met after {found.minutes:.1f} min: {found.finding.text}\n  {file}"
        )
    if not progress.found:
        lines.append("nothing found")
    return "\n".join(lines)
