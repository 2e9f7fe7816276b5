"""The workload file as it is written: `workloads/<name>.toml`."""

import re
from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator

from lab.document import Document
from lab.workload.expression import names_in, parse_expression

Value = str | int | float
Identifier = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$", max_length=64)]

PLACEHOLDER = re.compile(r"\{([^{}]*)\}")
MACHINE = ("machine.cpus", "machine.nodes", "machine.memory_mib")


class ParameterTable(Document):
    """One thing a study may set, its default and its bounds (inclusive)."""

    type: Literal["integer", "number", "text", "node", "nodes"]
    default: Value
    least: float | None = None
    most: float | None = None
    help: str


class MetricTable(Document):
    """How to read one number from the output: a pattern that a whole line must match.

    The group `value` is the number; the group `label`, where there is one, tells several apart.
    """

    name: Identifier
    pattern: str = Field(max_length=500)
    unit: str
    direction: Literal["lower", "higher", "none"]
    kind: Literal["placement", "timing"]
    required: bool = True

    @field_validator("pattern")
    @classmethod
    def _compiles(cls, pattern: str) -> str:
        try:
            groups = re.compile(pattern).groupindex
        except re.error as error:
            raise ValueError(f"not a regular expression: {error}") from None
        if "value" not in groups or set(groups) - {"value", "label"}:
            raise ValueError("needs the group (?P<value>...), and may have (?P<label>...)")
        return pattern


class WorkloadTable(Document):
    """A command with parameters, what it stresses, and how to read what it prints."""

    summary: str
    stresses: str
    command: tuple[str, ...] = Field(min_length=1)
    tasks: tuple[str, ...] = ()
    seconds: str = Field(description="an expression: guest time the command takes, about")
    allowed_nodes: str | None = None
    parameters: dict[Identifier, ParameterTable] = Field(default_factory=dict)
    derived: dict[Identifier, str] = Field(default_factory=dict)
    metrics: tuple[MetricTable, ...] = ()

    @model_validator(mode="after")
    def _names_exist(self) -> "WorkloadTable":
        """Every name that is used is a parameter, something derived earlier, or the machine."""
        numbers = {*MACHINE}
        for name, parameter in self.parameters.items():
            if parameter.type in ("node", "nodes"):
                numbers |= {f"{name}.cpus", f"{name}.nodes"}
            elif parameter.type != "text":
                numbers.add(name)
        for name, expression in self.derived.items():
            if name in self.parameters:
                raise ValueError(f"derived.{name}: there is a parameter of this name")
            _check_names(names_in(parse_expression(expression)), numbers, f"derived.{name}")
            numbers.add(name)
        _check_names(names_in(parse_expression(self.seconds)), numbers, "seconds")
        texts = {*self.parameters, *self.derived, *numbers}
        texts |= {f"{name}.cpulist" for name, p in self.parameters.items() if "node" in p.type}
        for word in self.command:
            _check_names(PLACEHOLDER.findall(word), texts, f"command: {word!r}")
        kind = self.parameters.get(self.allowed_nodes or "")
        if self.allowed_nodes is not None and (kind is None or "node" not in kind.type):
            raise ValueError(f"allowed_nodes: {self.allowed_nodes!r} is not a node parameter")
        return self


def _check_names(used: tuple[str, ...] | list[str], known: set[str], where: str) -> None:
    for name in used:
        if name not in known:
            raise ValueError(
                f"{where}: nothing is called {name!r} (valid: {', '.join(sorted(known))})"
            )
