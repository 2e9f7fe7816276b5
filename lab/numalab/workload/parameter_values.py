"""The values of a workload's parameters on one machine, computed in the order of its file."""

import re
import sys
from dataclasses import dataclass, field

from numalab.cpulist import format_cpulist, parse_cpulist
from numalab.topology.predict.firmware import node_numbers
from numalab.topology.topology import Topology
from numalab.workload.expression import Number, evaluate, parse_expression
from numalab.workload.workload_table import ParameterTable, Value

MAX_INTEGERS = 64
_INTEGERS = re.compile(r"\d+(,\d+)*")


@dataclass
class ParameterValues:
    """Values so far, and the names that follow from them.

    `values` are the parameters, with expressions evaluated. An expression may use `numbers`, a
    command also `texts`; `nodes` are the nodes of the node parameters. All nodes have the numbers
    of the machine's file, except in `texts`: a program needs those of the guest's kernel.
    """

    topology: Topology
    values: dict[str, Value] = field(default_factory=dict)
    numbers: dict[str, Number] = field(init=False)
    texts: dict[str, str] = field(default_factory=dict)
    nodes: dict[str, tuple[int, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.numbers = {
            "machine.cpus": self.topology.cpu_count,
            "machine.nodes": len(self.topology.nodes),
            "machine.memory_mib": self.topology.memory_mib,
        }
        self.texts["machine.cpulist"] = format_cpulist(self.cpus_of(None))

    def add(self, name: str, table: ParameterTable, value: Value) -> None:
        """Add a parameter. Raises ValueError with the reason for a bad value."""
        match table.type:
            case "node" | "nodes":
                self._add_nodes(name, table, value)
            case "integer" | "number":
                if isinstance(value, str):
                    value = evaluate(parse_expression(value), self.numbers)
                value = self.numbers[name] = _checked_number(value, table)
            case "integers":
                value = self._add_integers(name, table, value)
            case "text":
                value = _checked_text(value, table)
        self.values[name] = value

    def cpus_of(self, name: str | None) -> tuple[int, ...]:
        """Return the CPUs of a node parameter, or of the whole machine without one."""
        chosen = self.nodes.get(name or "", tuple(node.id for node in self.topology.nodes))
        return _cpus(self.topology, chosen)

    def _add_nodes(self, name: str, table: ParameterTable, value: Value) -> None:
        self.nodes[name] = _nodes(value, self.topology, single=table.type == "node")
        numbers = node_numbers(self.topology)
        guest = tuple(numbers[node] for node in self.nodes[name])
        if set(guest) != set(self.nodes[name]):  # else the text stays as it was written
            self.texts[name] = ",".join(map(str, sorted(guest)))
        cpus = self.cpus_of(name)
        self.texts[f"{name}.cpulist"] = format_cpulist(cpus)
        self.numbers[f"{name}.cpus"] = len(cpus)
        self.numbers[f"{name}.nodes"] = len(self.nodes[name])

    def _add_integers(self, name: str, table: ParameterTable, value: Value) -> str:
        text = str(value)
        if not _INTEGERS.fullmatch(text):
            raise ValueError(f"needs integers such as 1,2,4, found {value!r}")
        numbers = [_checked_number(int(part), table) for part in text.split(",")]
        if len(numbers) > MAX_INTEGERS:
            raise ValueError(f"needs at most {MAX_INTEGERS} integers, found {len(numbers)}")
        if len(set(numbers)) < len(numbers):
            raise ValueError(f"names a number twice: {text}")
        self.numbers[f"{name}.count"] = len(numbers)
        self.numbers[f"{name}.sum"] = sum(numbers)
        self.numbers[f"{name}.most"] = max(numbers)
        return text


def cpus_of_nodes(topology: Topology, value: Value) -> tuple[int, ...]:
    """Return the CPUs of nodes such as "1,4"; ValueError for a node that has none."""
    return _cpus(topology, _nodes(value, topology))


def _cpus(topology: Topology, ids: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(cpu for node in topology.nodes if node.id in ids for cpu in node.cpus)


def _nodes(value: Value, topology: Topology, *, single: bool = False) -> tuple[int, ...]:
    """Return the nodes of a `node` or `nodes` parameter; ValueError for a bad one."""
    usable = [node.id for node in topology.nodes if node.cpus]
    valid = f"nodes with CPUs on {topology.name}: {format_cpulist(usable)}"
    if single and not isinstance(value, int):
        raise ValueError(f"needs the number of a node, found {value!r} ({valid})")
    ids = (value,) if isinstance(value, int) else parse_cpulist(str(value))
    if not ids:
        raise ValueError(f"needs at least one node ({valid})")
    for number in ids:
        if number not in usable:
            lacks = "has no CPUs" if 0 <= number < len(topology.nodes) else "is not there"
            raise ValueError(f"node {number} {lacks} ({valid})")
    return ids


def _checked_text(value: Value, table: ParameterTable) -> str:
    text = str(value)
    if "\0" in text:
        raise ValueError(f"a NUL in {text[:40]!r}, which no argument can have")
    if table.pattern is not None and not re.fullmatch(table.pattern, text):
        raise ValueError(f"needs a text that matches {table.pattern}, found {value!r}")
    return text


def _checked_number(value: Value, table: ParameterTable) -> Number:
    """Return a number if it has the parameter's type and is within its bounds; else ValueError."""
    article = "a number" if table.type == "number" else "an integer"
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise ValueError(f"needs {article}, found {value!r}")  # noqa: TRY004 - as documented
    if not abs(value) <= sys.float_info.max:  # a larger integer, infinity or NaN
        raise ValueError(f"needs {article} of at most 308 digits, found {value!r:.30}")
    if table.type != "number":
        if value != int(value):
            raise ValueError(f"needs {article}, found {value!r}")
        value = int(value)
    if table.least is not None and value < table.least:
        raise ValueError(f"needs at least {table.least:g}, found {value}")
    if table.most is not None and value > table.most:
        raise ValueError(f"needs at most {table.most:g}, found {value}")
    return value
