"""A case file: a study with its machine, and a sentence about the violation."""

import re
from collections.abc import Sequence
from pathlib import Path

from numalab.cpulist import format_cpulist
from numalab.emulator.emulator_specs import emulator_for
from numalab.errors import UserError
from numalab.hunt.case import Case
from numalab.hunt.finding import Finding
from numalab.hunt.loads.load_text import parse_loads, render_loads
from numalab.hunt.property import describe_property, is_property, property_names
from numalab.places import HUNTS, list_inputs
from numalab.scheduler.scheduler_spec import SchedulerSpec
from numalab.study.model import CaseTable, Study, load_study
from numalab.study.plan import machine_of_table
from numalab.topology.export import render_topology_file

MACHINE = "hunted"
_TABLE = re.compile(r"(\[\[?)([a-z_]+)(\]\]?)")


def render_case(
    case: Case,
    finding: Finding,
    *,
    seeds: Sequence[int],
    violated_by: Sequence[str],
    holds_on: Sequence[str],
    emulator: str | None = None,
    scheduler: SchedulerSpec | None = None,
    watchdog_ms: int = 0,
) -> str:
    """Return the text of a case file, a study for `numalab run`, with its QEMU.

    The kernel that violates the property may have a `scheduler` (sched_ext), with a watchdog of
    another length than its own.
    """
    kernels = [*violated_by, *holds_on]
    lines = [
        f"question = {_text(f'Does {finding.prop} hold: {describe_property(finding.prop)}')}",
        f"summary = {_text(finding.text)}",
        "",
        f'topologies = ["{MACHINE}"]',
        f"seeds = {list(seeds)}",
        'mode = "icount"',
        "",
        "[case]",
        f"property = {_text(finding.prop)}",
        f"value = {finding.value}",
        f"most = {finding.most}",
        f"sentence = {_text(finding.text)}",
        f"violated_by = {_texts(violated_by)}",
        f"holds_on = {_texts(holds_on)}",
        "",
    ]
    for place, kernel in enumerate(kernels):
        name = "violates" if kernel in violated_by else "holds"
        lines += [f"[variants.{name}{place or ''}]", f"kernel = {_text(kernel)}"]
        lines += [*(_scheduler(scheduler, watchdog_ms) if scheduler and not place else []), ""]
    seconds = sum(load.ms + 300 for load in case.loads) / 1000
    lines += [
        "[[workloads]]",
        'name = "hunt"',
        f"parameters = {{ seconds = {seconds}, loads = {_text(render_loads(case.loads))} }}",
        "",
        "[capture]",
        'sets = ["balance"]',
        "",
        *(["[machine]", f"emulator = {_text(emulator)}", ""] if emulator else []),
    ]
    return "\n".join(lines) + _machine(case)


def _scheduler(spec: SchedulerSpec, watchdog_ms: int) -> list[str]:
    """Write the scheduler of a variant."""
    name = f"{spec.name}@{spec.version}" if spec.version else spec.name
    lines = [f"scheduler = {_text(str(spec.path) if spec.path else name)}"]
    lines += [f"scheduler_arguments = {_texts(spec.arguments)}"] if spec.arguments else []
    return lines + ([f"scheduler_watchdog = {watchdog_ms / 1000:g}"] if watchdog_ms else [])


def _machine(case: Case) -> str:
    """Write the topology file as a table of the study."""
    lines = [f"[machines.{MACHINE}]"]
    for line in render_topology_file(case.machine).splitlines():
        if opened := _TABLE.fullmatch(line):
            lines.append(f"{opened[1]}machines.{MACHINE}.{opened[2]}{opened[3]}")
        else:
            lines.append(line)
    return "\n".join(lines) + "\n"


def read_case(path: Path) -> tuple[Case, CaseTable, Study]:
    """Read the file of a case. Raises UserError."""
    study = load_study(path)
    if study.case is None or not study.machines:
        raise UserError("is not a case file: [case] or [machines.NAME] is missing", file=path)
    if not is_property(study.case.property):
        reason = f"no property is called {study.case.property!r}"
        raise UserError(reason, file=path, key="case.property", choices=property_names())
    if any(variant.scheduler is not None for variant in study.variants.values()):
        reason = "has a scheduler (sched_ext); numalab run repeats it by the study in its folder"
        raise UserError(reason, file=path, key="variants")
    machine = machine_of_table(study, study.topologies[0], path)
    if machine is None:
        raise UserError("the first topology is not in [machines]", file=path, key="topologies")
    key = "workloads[0].parameters.loads"
    text = study.workloads[0].parameters.get("loads")
    if text is None:
        raise UserError("this key is missing", file=path, key=key)
    try:
        loads = parse_loads(str(text))
    except ValueError as error:
        raise UserError(str(error), file=path, key=key) from None
    cpus = set(range(machine.cpu_count))
    for number, load in enumerate(loads):
        if lacking := load.every_cpu - cpus:
            reason = f"load {number} names CPU {min(lacking)}"
            raise UserError(reason, file=path, key=key, choices=[format_cpulist(sorted(cpus))])
        for part in load.parts:
            if part.node is not None and part.node >= len(machine.nodes):
                reason = f"load {number} names node {part.node}"
                choices = [str(node.id) for node in machine.nodes]
                raise UserError(reason, file=path, key=key, choices=choices)
    try:
        emulator_for(study.mode, study.machine.emulator)
    except UserError as error:
        raise UserError(
            error.message, file=path, key="machine.emulator", choices=error.choices
        ) from None
    return Case(machine, loads), study.case, study


def find_cases() -> list[Path]:
    """Return the case files of the lab folders, by name.

    Raises UserError for a file that another user can change.
    """
    return list(list_inputs(HUNTS, "*.toml", strict=True).values())


def _text(text: str) -> str:
    clean = "".join(char if char.isprintable() else " " for char in text)
    return '"' + clean.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _texts(texts: Sequence[str]) -> str:
    return "[" + ", ".join(map(_text, texts)) + "]"
