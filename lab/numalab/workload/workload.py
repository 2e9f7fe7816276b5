"""Workloads: what to run in a guest, fitted to the machine it runs on."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from numalab.document import read_document
from numalab.errors import UserError, did_you_mean
from numalab.places import list_inputs
from numalab.topology.model import Topology
from numalab.workload.expression import Number, evaluate, names_in, parse_expression
from numalab.workload.parameter_values import Fitted
from numalab.workload.workload_files import TABLE
from numalab.workload.workload_table import PLACEHOLDER, Value, WorkloadTable

# What a workload may use of the machine's memory. The rest is for the kernel: its memory map, page
# tables, trace buffers, and the files of tmpfs.
USABLE_MEMORY = 0.8
IN_GUEST = "/job/files"  # where a workload's files are in the guest (images/guest/init)


@dataclass(frozen=True)
class MetricSpec:
    """How to read one number from a workload's output; see `numalab.workload.metric_parsers`."""

    name: str
    pattern: re.Pattern[str]
    unit: str
    direction: str
    kind: str
    required: bool
    percentile: float | None = None


@dataclass(frozen=True)
class Workload:
    """A workload file, whole and valid in itself."""

    name: str
    file: Path
    summary: str
    stresses: str
    table: WorkloadTable

    @property
    def metrics(self) -> tuple[MetricSpec, ...]:
        """How to read what the command prints."""
        return tuple(
            MetricSpec(
                m.name, re.compile(m.pattern), m.unit, m.direction, m.kind, m.required, m.percentile
            )
            for m in self.table.metrics
        )


@dataclass(frozen=True)
class BoundWorkload:
    """A workload fitted to a machine: the command to run and what to know about it.

    `parameters` are those of the file with what the study changed, and what was derived from them
    and from the machine. `seconds` is about how long the command takes, in guest time. `tasks` are
    the names of its tasks, with `*` and `?` as in a shell. `allowed_cpus` are the CPUs on which
    these tasks may run between the trace's markers `numalab: begin` and `numalab: end`.
    `memory_mib` is about what it allocates, 0 where the file does not say; `packages` are Debian
    packages that the image has to have. `folder` holds its files (`workload_files.py`), and
    `programs` are C files that it needs beside them.
    """

    name: str
    folder: Path
    argv: tuple[str, ...]
    parameters: Mapping[str, Value]
    seconds: float
    tasks: tuple[str, ...]
    allowed_cpus: tuple[int, ...]
    metrics: tuple[MetricSpec, ...] = ()
    memory_mib: float = 0.0
    packages: tuple[str, ...] = ()
    programs: tuple[Path, ...] = ()


def list_workloads() -> tuple[str, ...]:
    """Return the names of the workloads, in order."""
    return tuple(_tables())


def _tables() -> dict[str, Path]:
    return {path.parent.name: path for path in list_inputs("workloads", f"*/{TABLE}").values()}


def load_workload(name: str) -> Workload:
    """Load `workloads/<name>/workload.toml`.

    Raises UserError for a name that no file has (with those there are), an unknown key, a pattern
    or expression that is none, and a name in them that is neither parameter nor derived.
    """
    if name not in (names := _tables()):
        hint = did_you_mean(name, names)
        raise UserError(f"no workload {name!r}{hint}", choices=names)
    file = names[name]
    table = read_document(file, WorkloadTable)
    return Workload(name, file, table.summary, table.stresses, table)


def resolve(
    workload: Workload,
    parameters: Mapping[str, Value],
    topology: Topology,
    *,
    file: Path | None = None,
    key: str = "parameters",
) -> BoundWorkload:
    """Fit a workload to a machine, with the parameters in which a study differs from the file.

    `file` and `key` say where these parameters were written, for the messages. Raises UserError,
    naming file, key and what is valid, for a parameter that the workload does not have, a value of
    another type or out of bounds, a node that the machine lacks or that has no CPUs, and for a
    workload that needs more memory than the machine has.
    """
    table = workload.table
    _refuse_unknown(workload, parameters, file or workload.file, key)
    fitted = Fitted(topology)
    for name, parameter in table.parameters.items():
        try:
            fitted.add(name, parameter, parameters.get(name, parameter.default))
        except ValueError as error:
            given = file is not None and name in parameters
            where, prefix = (file, key) if given else (workload.file, "parameters")
            raise UserError(str(error), file=where, key=f"{prefix}.{name}") from None
    numbers, values = fitted.numbers, fitted.values
    for name, expression in table.derived.items():
        result = _worked_out(workload, f"derived.{name}", expression, numbers)
        values[name] = numbers[name] = result
    memory_mib = 0.0
    if table.memory_mib is not None:
        memory_mib = float(_worked_out(workload, "memory_mib", table.memory_mib, numbers))
        where, place = (file, key) if file and parameters else (workload.file, "memory_mib")
        _check_memory(workload, fitted, memory_mib, where, place)
    return BoundWorkload(
        name=workload.name,
        folder=workload.file.parent,
        argv=tuple(
            _filled(word, {**numbers, **values, **fitted.texts, "folder": IN_GUEST})
            for word in table.command
        ),
        parameters=values,
        seconds=float(_worked_out(workload, "seconds", table.seconds, numbers)),
        tasks=table.tasks,
        allowed_cpus=fitted.cpus_of(table.allowed_nodes),
        metrics=workload.metrics,
        memory_mib=memory_mib,
        packages=table.packages,
    )


def _refuse_unknown(
    workload: Workload, parameters: Mapping[str, Value], file: Path, key: str
) -> None:
    declared = workload.table.parameters
    for name in parameters:
        if name not in declared:
            hint = did_you_mean(name, declared)
            reason = f"{workload.name} has no such parameter{hint}"
            raise UserError(reason, file=file, key=f"{key}.{name}", choices=declared)


def _check_memory(workload: Workload, fitted: Fitted, needed: float, file: Path, key: str) -> None:
    """Refuse before the boot what the guest's kernel would end by its OOM killer."""
    topology = fitted.topology
    usable = topology.memory_mib * USABLE_MEMORY
    if needed > usable:
        used = names_in(parse_expression(workload.table.memory_mib or "0"))
        named = ", ".join(f"{name} = {fitted.numbers[name]:g}" for name in dict.fromkeys(used))
        raise UserError(
            f"{workload.name} needs {needed:.0f} MiB ({named}), but of the "
            f"{topology.memory_mib} MiB of {topology.name} it may use {usable:.0f}",
            file=file,
            key=key,
        )


def _worked_out(
    workload: Workload, key: str, expression: str, numbers: Mapping[str, Number]
) -> Number:
    try:
        result = evaluate(parse_expression(expression), numbers)
    except ValueError as error:
        raise UserError(str(error), file=workload.file, key=key) from None
    if result <= 0:
        reason = f"{expression} is {result:g} here, and must be above 0"
        raise UserError(reason, file=workload.file, key=key)
    return result


def _filled(word: str, texts: Mapping[str, Value]) -> str:
    return PLACEHOLDER.sub(lambda match: str(texts[match[1]]), word)
