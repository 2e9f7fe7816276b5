"""`numalab hunt`."""

import time
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from numalab.cli import completion, options
from numalab.cli.hunt.hunt_output import hunt_text, hunt_value
from numalab.cli.hunt.replay_cases import replay_cases
from numalab.cli.kernel_choice import chosen_kernel
from numalab.cli.output import ModeName, continued_by, emit, progress_lines, say
from numalab.emulator.emulator_artifact import ensure_emulator
from numalab.emulator.emulator_specs import find_emulator
from numalab.errors import HostError, LabError, UserError
from numalab.files import make_dir
from numalab.hunt.boot_case import HuntBench, prepare_benches
from numalab.hunt.calls.benches import plan_calls
from numalab.hunt.calls.trend import CallTrends
from numalab.hunt.case import Case
from numalab.hunt.compare.leftovers import Leftovers
from numalab.hunt.compare.pairs import require_different
from numalab.hunt.direction.direction import HuntDirection
from numalab.hunt.direction.plan import plan_direction
from numalab.hunt.finding import BootResult
from numalab.hunt.hunting import Aim, Hunter
from numalab.hunt.outcome import Hunt
from numalab.hunt.property import CALLS, LEFT, OF_SCHEDULER, describe_property, property_names
from numalab.hunt.result.page import HuntFacts, write_result
from numalab.hunt.store_case import store_case
from numalab.hunt.workers import Store, host_jobs, workers
from numalab.kernel.kernel_specs import KernelSpec, without_last_series
from numalab.places import project_dir
from numalab.plugins import require_plugins
from numalab.progress import Progress
from numalab.qemu.hypervisor import EMBED, connect
from numalab.reach.model import CodeChange
from numalab.scheduler.scheduler_spec import find_scheduler
from numalab.scheduler.watchdog_artifact import LONGEST_SECONDS, SHORTEST_SECONDS
from numalab.units import parse_seconds

_USUAL = "debian-6.12"
_NONE = "none"
_SCHED_EXT = "debian-6.12-sched-ext"


def command(
    context: typer.Context,
    kernel: Annotated[
        list[str] | None,
        typer.Option(
            help="Kernel to test (default: debian-6.12). With --replay: repeatable; default: the"
            " kernels of the case.",
            autocompletion=completion.kernels,
        ),
    ] = None,
    properties: Annotated[
        str | None,
        typer.Option(help="Properties to check, with commas; --list prints them. Default: all."),
    ] = None,
    budget: Annotated[
        str,
        typer.Option(
            help="Wall time of the search, without a finding's folder: 90s, 20m, 2h, or minutes."
        ),
    ] = "20m",
    machines: Annotated[
        int, typer.Option(min=0, help="Maximum number of machines; 0: no limit.")
    ] = 0,
    loads: Annotated[
        int,
        typer.Option(
            min=0, max=99, help="Maximum loads of a machine; 0: as many as a boot pays for."
        ),
    ] = 0,
    seed: Annotated[
        int, typer.Option(min=0, help="Seed; the same seed generates the same cases.")
    ] = 1,
    jobs: options.Guests = None,
    first: Annotated[bool, typer.Option("--first", help="Stop at the first violation.")] = False,
    survey: Annotated[
        bool,
        typer.Option(
            "--survey", help="Print the distribution of each property; confirm and shrink nothing."
        ),
    ] = False,
    against: Annotated[
        str | None,
        typer.Option(
            help="Reference kernel: only what it does not show counts. Default: the kernel without"
            " its last series; none: no reference kernel."
        ),
    ] = None,
    undirected: Annotated[
        bool,
        typer.Option("--undirected", help="Ignore the code of the series."),
    ] = False,
    mode: Annotated[
        ModeName, typer.Option(help="Emulation mode; auto selects kvm if it works, else icount.")
    ] = "icount",
    scheduler: Annotated[
        str | None,
        typer.Option(
            help="Scheduler (sched_ext) to hunt, as for `numalab scheduler check`; the default"
            f" kernel is then {_SCHED_EXT}."
        ),
    ] = None,
    argument: Annotated[
        list[str] | None,
        typer.Option(metavar="WORD", help="Argument of the scheduler; repeatable."),
    ] = None,
    watchdog: Annotated[
        float,
        typer.Option(
            min=SHORTEST_SECONDS,
            max=LONGEST_SECONDS,
            help="Seconds that a task may wait before the scheduler is ejected.",
        ),
    ] = 5.0,
    emulator: options.Emulator = None,
    cold: options.Cold = False,
    show: Annotated[bool, typer.Option("--list", help="List the properties and exit.")] = False,
    again: Annotated[
        bool, typer.Option("--replay", help="Repeat the stored cases of hunts/ on --kernel.")
    ] = False,
    junit: Annotated[
        Path | None, typer.Option(help="With --replay: write JUnit XML to this file.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option(help="Folder of boots and cases (default: reports/hunts/KERNEL).")
    ] = None,
    connection: options.Connect = EMBED,
    as_json: options.Json = False,
) -> None:
    """Search for machines and loads that violate a scheduler property.

    Machines and loads are generated from the seed. A violation is confirmed with another seed,
    shrunk to a smaller machine and load, and written as a study. After Ctrl-C, the same command
    continues without repeating a boot.

    Exits with 1 if a violation is confirmed.
    """
    if show:
        selected = _properties(properties)
        _list_properties([name for name in property_names() if name in selected], as_json)
        return
    require_plugins()
    options.file_to_write(junit, "--junit")
    if again:
        options.refuse_given(context, "with --replay", *_OF_A_SEARCH)
        replay_cases(kernel, mode, jobs, output, junit, connection, as_json)
        return
    if junit is not None:
        raise UserError("needs --replay", key="--junit")
    if scheduler is None:
        options.refuse_given(context, "without --scheduler", "argument", "watchdog")
    hunted = find_scheduler(scheduler, argument or ()) if scheduler is not None else None
    aim = Aim(
        seed,
        _properties(properties, hunted is not None),
        options.parsed(partial(parse_seconds, plain="m"), budget, "--budget"),
        machines,
        loads,
        first,
        survey,
    )
    spec = _one_kernel(kernel or [_USUAL if hunted is None else _SCHED_EXT])
    other = _reference(spec, against)
    subject = spec.name if hunted is None else f"{spec.name}-{hunted.name}"
    folder = output or project_dir() / "reports" / "hunts" / subject.replace("/", "_")
    make_dir(folder)
    connect(connection)
    with progress_lines("prepare") as tell:
        if mode == "icount" and emulator is None:
            emulator = _own_emulator(tell)
        bench, *references = prepare_benches(
            [spec, *([other] if other else [])],
            mode,
            connection,
            tell,
            emulator=emulator,
            cold=cold,
            properties=aim.properties,
            scheduler=hunted,
            watchdog=watchdog,
        )
        if references and not aim.survey:
            require_different(bench, references[0])
        direction = _direction(spec, bench, steers=not undirected, tell=tell)
        calls, left = _calls(bench, references, aim, tell, direction)
    beside = f" against {other.name}" if other else ""
    say(
        f"hunting on {bench.title}{beside} with seed {seed} in mode {bench.choice.mode},"
        f" results in {folder}"
    )

    def report_error(_case: Case, result: BootResult) -> None:
        if result.error:
            say(f"not judged: {result.error.splitlines()[0]}")

    store = Store(output or folder.parent)  # hunts share boots of reference kernels
    with (
        continued_by("the same command"),
        workers(store, jobs or host_jobs(), report_error) as crew,
    ):
        hunter = Hunter(aim, bench, crew, say, next(iter(references), None), direction, calls, left)
        progress = hunter.run()
        files = [
            store_case(folder, violation, [bench, *references], crew, emulator=emulator)
            for violation in progress.violations
        ]
        boots = crew.requested
    coverage = direction.coverage if direction is not None else None
    created = datetime.now(UTC).isoformat(timespec="seconds")
    facts = HuntFacts(
        spec.name,
        other.name if other else None,
        seed,
        bench.choice.mode,
        created,
        round((time.monotonic() - hunter.began) / 60, 1),
        boots,
        survey,
    )
    page = write_result(folder, facts, progress, files, direction)
    value = hunt_value(facts, progress, files, coverage) | {"page": page}
    emit(value, as_json, f"{hunt_text(progress, files, boots, coverage)}\npage: {page}")
    if progress.violations:
        raise typer.Exit(1)
    _require_values(progress)


def _require_values(hunt: Hunt) -> None:
    """Raise HostError for a hunt that cannot have found anything."""
    if not hunt.machines:
        raise HostError("no machine was judged; a longer --budget may be enough")
    if hunt.compares_nothing:
        raise HostError(f"nothing was compared: {hunt.reason}")


_OF_A_SEARCH = (
    "properties", "budget", "machines", "loads", "seed", "first", "survey", "against", "undirected",
    "scheduler", "argument", "watchdog", "emulator", "cold",
)  # fmt: skip


def _own_emulator(tell: Progress) -> str | None:
    """Return the emulator to hunt with, built; None for the host's QEMU if it cannot be built.

    Before 8.1 QEMU lets a busy CPU wait in icount mode, so that waits of tasks vary ten times as
    much by chance; and no version as it is distributed repeats every run.
    """
    spec = find_emulator()
    try:
        ensure_emulator(spec, on_progress=tell)
    except LabError as error:
        say(
            f"warning: hunting with the host's QEMU, whose runs vary more by chance:"
            f" {str(error).splitlines()[0]}"
        )
        return None
    return spec.name


def _direction(
    spec: KernelSpec, bench: HuntBench, *, steers: bool, tell: Progress
) -> HuntDirection | None:
    """Return the direction of a hunt; None for a kernel whose code cannot be counted."""
    if bench.choice.mode == "kvm" or bench.scheduler is not None:
        return None  # nothing to count with, or not the kernel's own scheduler
    try:
        code = plan_direction(spec, tell)
    except LabError as error:  # a hunt needs no line numbers
        say(f"warning: hunting without direction: {str(error).splitlines()[0]}")
        return None
    if code is None:
        return None
    if code.change is CodeChange.NONE:
        say(f"warning: {code.series} compiles to the same code as the kernel without it")
    return HuntDirection(code.table, code.bias, steers)


def _calls(
    bench: HuntBench, references: Sequence[HuntBench], aim: Aim, tell: Progress,
    direction: HuntDirection | None,
) -> tuple[CallTrends | None, Leftovers | None]:  # fmt: skip
    """Return what compares calls and run queues; None where they are not counted."""
    counts = {CALLS, LEFT} & aim.properties and bench.choice.mode == "icount" and not aim.survey
    if direction is None or not (references and counts):
        return None, None
    lines = direction.table.changed_addresses
    try:
        return plan_calls(bench, references[0], tell, lines) or (None, None)
    except LabError as error:
        say(f"warning: calls of functions are not compared: {str(error).splitlines()[0]}")
        return None, None


def _list_properties(names: Sequence[str], as_json: bool) -> None:
    described = {name: describe_property(name) for name in names}
    width = max(map(len, described))
    lines = [f"{name:{width}}  {text}" for name, text in described.items()]
    rows = [{"name": name, "description": text} for name, text in described.items()]
    emit(rows, as_json, "\n".join(lines))


def _one_kernel(names: Sequence[str]) -> KernelSpec:
    if len(names) > 1:
        reason = f"a hunt is on one kernel, not {len(names)}; --replay takes several"
        raise UserError(reason, key="--kernel")
    return chosen_kernel(names[0])


def _reference(spec: KernelSpec, against: str | None) -> KernelSpec | None:
    if against is not None:
        return None if against == _NONE else chosen_kernel(against)
    return without_last_series(spec)


def _properties(text: str | None, of_scheduler: bool = False) -> frozenset[str]:
    if text is None:
        return OF_SCHEDULER if of_scheduler else frozenset(property_names())
    names = [name.strip() for name in text.split(",")]
    for name in names:
        if name not in (choices := property_names()):
            reason = f"no property is called {name!r}"
            raise UserError(reason, key="--properties", choices=choices)
    return frozenset(names)
