"""Workloads: what to run in a guest, fitted to the machine it runs on."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from lab.cpulist import format_cpulist, parse_cpulist
from lab.document import read_document
from lab.errors import UserError
from lab.store import project_dir
from lab.topology.model import Topology
from lab.workload.document import PLACEHOLDER, ParameterTable, Value, WorkloadTable
from lab.workload.expression import Number, evaluate, parse_expression


@dataclass(frozen=True)
class MetricSpec:
    """How to read one number from a workload's output; see `lab.workload.parse`."""

    name: str
    pattern: re.Pattern[str]
    unit: str
    direction: str
    kind: str
    required: bool


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
            MetricSpec(m.name, re.compile(m.pattern), m.unit, m.direction, m.kind, m.required)
            for m in self.table.metrics
        )


@dataclass(frozen=True)
class BoundWorkload:
    """A workload fitted to a machine: the command to run and what to know about it.

    `parameters` are those of the file with what the study changed, and what was derived from them
    and from the machine. `seconds` is about how long the command takes, in guest time. `tasks` are
    the names of its tasks, with `*` and `?` as in a shell. `allowed_cpus` are the CPUs on which
    these tasks may run between the trace's markers `numalab: begin` and `numalab: end`.
    """

    name: str
    argv: tuple[str, ...]
    parameters: Mapping[str, Value]
    seconds: float
    tasks: tuple[str, ...]
    allowed_cpus: tuple[int, ...]
    metrics: tuple[MetricSpec, ...] = ()


def workloads_dir() -> Path:
    """Return the folder of the workload files."""
    return project_dir() / "workloads"


def list_workloads() -> tuple[str, ...]:
    """Return the names of the workloads, in order."""
    return tuple(sorted(path.stem for path in workloads_dir().glob("*.toml")))


def load_workload(name: str) -> Workload:
    """Load `workloads/<name>.toml`.

    Raises UserError for a name that no file has (with those there are), an unknown key, a pattern
    or expression that is none, and a name in them that is neither parameter nor derived.
    """
    if name not in (names := list_workloads()):
        near = get_close_matches(name, names, 1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise UserError(f"no workload {name!r}{hint}", file=workloads_dir(), choices=names)
    file = workloads_dir() / f"{name}.toml"
    table = read_document(file, WorkloadTable)
    return Workload(name, file, table.summary, table.stresses, table)


def resolve(
    workload: Workload, parameters: Mapping[str, Value], topology: Topology
) -> BoundWorkload:
    """Fit a workload to a machine, with the parameters in which a study differs from the file.

    Raises UserError, naming the file, the key and what is valid, for a parameter that the workload
    does not have, a value of another type or out of bounds, and a node that the machine lacks or
    that has no CPUs.
    """
    declared = workload.table.parameters
    for key in parameters:
        if key not in declared:
            raise UserError("no such parameter", file=workload.file, key=key, choices=declared)
    values: dict[str, Value] = {}
    nodes: dict[str, tuple[int, ...]] = {}
    for key, table in declared.items():
        value = parameters.get(key, table.default)
        try:
            if table.type in ("node", "nodes"):
                nodes[key] = _nodes(value, table, topology)
            values[key] = _checked(value, table)
        except ValueError as error:
            raise UserError(str(error), file=workload.file, key=f"parameters.{key}") from None
    numbers = _numbers(values, nodes, topology)
    for key, expression in workload.table.derived.items():
        values[key] = numbers[key] = _worked_out(workload, f"derived.{key}", expression, numbers)
    seconds = _worked_out(workload, "seconds", workload.table.seconds, numbers)
    texts = {**numbers, **values}
    texts |= {f"{key}.cpulist": format_cpulist(_cpus(topology, ids)) for key, ids in nodes.items()}
    allowed = nodes.get(workload.table.allowed_nodes or "", tuple(n.id for n in topology.nodes))
    return BoundWorkload(
        name=workload.name,
        argv=tuple(_filled(word, texts) for word in workload.table.command),
        parameters=values,
        seconds=float(seconds),
        tasks=workload.table.tasks,
        allowed_cpus=_cpus(topology, allowed),
        metrics=workload.metrics,
    )


def _nodes(value: Value, table: ParameterTable, topology: Topology) -> tuple[int, ...]:
    """Return the nodes that a `node` or `nodes` parameter names; ValueError for any it cannot."""
    usable = [node.id for node in topology.nodes if node.cpus]
    valid = f"nodes with CPUs on {topology.name}: {format_cpulist(usable)}"
    if table.type == "node" and not isinstance(value, int):
        raise ValueError(f"needs the number of a node, found {value!r} ({valid})")
    ids = (value,) if isinstance(value, int) else parse_cpulist(str(value))
    if not ids:
        raise ValueError(f"needs at least one node ({valid})")
    for number in ids:
        if number not in usable:
            lacks = "has no CPUs" if 0 <= number < len(topology.nodes) else "is not there"
            raise ValueError(f"node {number} {lacks} ({valid})")
    return ids


def _checked(value: Value, table: ParameterTable) -> Value:
    """Return a value that has the parameter's type and is within its bounds; else ValueError."""
    if table.type == "text" and not isinstance(value, str):
        raise ValueError(f"needs a text, found {value!r}")
    if table.type not in ("integer", "number"):
        return value
    kinds = (int,) if table.type == "integer" else (int, float)
    if not isinstance(value, kinds) or isinstance(value, bool) or not math.isfinite(value):
        article = "an integer" if table.type == "integer" else "a number"
        raise ValueError(f"needs {article}, found {value!r}")
    if table.least is not None and value < table.least:
        raise ValueError(f"needs at least {table.least:g}, found {value}")
    if table.most is not None and value > table.most:
        raise ValueError(f"needs at most {table.most:g}, found {value}")
    return value


def _numbers(
    values: Mapping[str, Value], nodes: Mapping[str, tuple[int, ...]], topology: Topology
) -> dict[str, Number]:
    """Return every number that an expression may use, by name."""
    numbers: dict[str, Number] = {
        "machine.cpus": topology.cpu_count,
        "machine.nodes": len(topology.nodes),
        "machine.memory_mib": topology.memory_mib,
    }
    for key, value in values.items():
        if key in nodes:
            numbers[f"{key}.cpus"] = len(_cpus(topology, nodes[key]))
            numbers[f"{key}.nodes"] = len(nodes[key])
        elif not isinstance(value, str):
            numbers[key] = value
    return numbers


def _cpus(topology: Topology, nodes: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(cpu for node in topology.nodes if node.id in nodes for cpu in node.cpus)


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
