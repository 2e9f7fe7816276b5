"""Workloads: the commands that guests run, fitted to a machine."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from numalab.document import read_document
from numalab.errors import UserError, did_you_mean
from numalab.places import find_input, list_inputs, own_input
from numalab.topology.topology import Topology
from numalab.workload.expression import Number, evaluate, names_in, parse_expression
from numalab.workload.metric_parsers import PARSERS
from numalab.workload.parameter_values import ParameterValues
from numalab.workload.workload_files import TABLE
from numalab.workload.workload_table import PLACEHOLDER, MetricTable, Value, WorkloadTable

# The part of the machine's memory that a workload may use. The kernel needs the rest: memory map,
# page tables, trace buffers, and the files of tmpfs.
USABLE_MEMORY = 0.8
IN_GUEST = "/job/files"  # where a workload's files are in the guest (images/guest/init)


@dataclass(frozen=True)
class Workload:
    """A workload by its name, with its file and the content of the file."""

    name: str
    file: Path
    table: WorkloadTable


@dataclass(frozen=True)
class BoundWorkload:
    """A workload fitted to a machine: the command and its properties.

    `parameters` are those of the file, as the study changed them, and the derived ones; their nodes
    have the numbers of the machine's file, those in `argv` the guest's. `seconds` is the
    approximate guest time of the command. `tasks` are the names of its tasks, with `*` and `?` as
    in a shell. `allowed_cpus` are the CPUs on which these tasks may run between the trace's
    markers `numalab: begin` and `numalab: end`. `memory_mib` is the approximate memory, 0 if
    unknown; `packages` are Debian packages that the image must have. `folder` holds its files
    (`workload_files.py`), and `programs` are further C files.
    """

    name: str
    folder: Path
    argv: tuple[str, ...]
    parameters: Mapping[str, Value]
    seconds: float
    tasks: tuple[str, ...]
    allowed_cpus: tuple[int, ...]
    metrics: tuple[MetricTable, ...] = ()
    parser: str = "lines"
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

    Raises UserError for an unknown name, key or parameter, and a bad pattern or expression.
    """
    if name not in (names := _tables()):
        find_input("workloads", f"{name}/{TABLE}")  # raises UserError for a file that is not used
        raise UserError(f"no workload {name!r}", choices=names)
    file = names[name]
    own_input(file.parent)
    table = read_document(file, WorkloadTable)
    try:
        PARSERS.find(table.parser)
    except UserError as error:
        raise UserError(str(error), file=file, key="parser") from None
    return Workload(name, file, table)


def resolve(
    workload: Workload,
    parameters: Mapping[str, Value],
    topology: Topology,
    *,
    file: Path | None = None,
    key: str = "parameters",
) -> BoundWorkload:
    """Fit a workload to a machine, with the parameters that a study changes.

    Messages name `file` and `key` as the place of these parameters. Raises UserError for an unknown
    parameter, a value of another type or out of bounds, a node that the machine lacks or that has
    no CPUs, and for a workload that needs more memory than the machine has.
    """
    table = workload.table
    _refuse_unknown(workload, parameters, file or workload.file, key)
    fitted = ParameterValues(topology)
    for name, parameter in table.parameters.items():
        try:
            fitted.add(name, parameter, parameters.get(name, parameter.default))
        except ValueError as error:
            in_study = file is not None and name in parameters
            where, prefix = (file, key) if in_study else (workload.file, "parameters")
            raise UserError(str(error), file=where, key=f"{prefix}.{name}") from None
    numbers, values = fitted.numbers, fitted.values
    for name, expression in table.derived.items():
        result = _evaluated(workload, f"derived.{name}", expression, numbers)
        values[name] = numbers[name] = result
    memory_mib = 0.0
    if table.memory_mib is not None:
        memory_mib = float(_evaluated(workload, "memory_mib", table.memory_mib, numbers))
        where, place = (file, key) if file and parameters else (workload.file, "memory_mib")
        _check_memory(workload, fitted, memory_mib, where, place)
    return BoundWorkload(
        name=workload.name,
        folder=workload.file.parent,
        argv=tuple(
            _with_values(word, {**numbers, **values, **fitted.texts, "folder": IN_GUEST})
            for word in table.command
        ),
        parameters=values,
        seconds=float(_evaluated(workload, "seconds", table.seconds, numbers)),
        tasks=table.tasks,
        allowed_cpus=fitted.cpus_of(table.allowed_nodes),
        metrics=table.metrics,
        parser=table.parser,
        memory_mib=memory_mib,
        packages=table.packages,
        programs=tuple(_program(workload, name) for name in table.programs),
    )


def _program(workload: Workload, name: str) -> Path:
    """Return a C file of another workload. Raises UserError for one that does not exist."""
    if path := find_input("workloads", name):
        return path
    raise UserError(f"no such file: workloads/{name}", file=workload.file, key="programs")


def _refuse_unknown(
    workload: Workload, parameters: Mapping[str, Value], file: Path, key: str
) -> None:
    declared = workload.table.parameters
    for name in parameters:
        if name not in declared:
            hint = did_you_mean(name, declared)
            reason = f"{workload.name} has no such parameter{hint}"
            raise UserError(reason, file=file, key=f"{key}.{name}", choices=declared)


def _check_memory(
    workload: Workload, fitted: ParameterValues, needed: float, file: Path, key: str
) -> None:
    """Raise UserError where the guest's OOM killer would end the workload."""
    topology = fitted.topology
    usable = topology.memory_mib * USABLE_MEMORY
    if needed > usable:
        used = names_in(parse_expression(workload.table.memory_mib or "0"))
        named = ", ".join(f"{name} = {fitted.numbers[name]:g}" for name in dict.fromkeys(used))
        why = f" ({named})" if named else ""
        raise UserError(
            f"{workload.name} needs {needed:.0f} MiB{why}, but of the "
            f"{topology.memory_mib} MiB of {topology.name} it may use {usable:.0f}",
            file=file,
            key=key,
        )


def _evaluated(
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


def _with_values(word: str, texts: Mapping[str, Value]) -> str:
    return PLACEHOLDER.sub(lambda match: str(texts[match[1]]), word)
