"""The workload file as it is written: `workloads/<name>/workload.toml`."""

import re
from typing import Annotated, Literal

from pydantic import Field, ValidationInfo, field_validator, model_validator

from numalab.document import Document
from numalab.workload.expression import names_in, parse_expression

Value = str | int | float
Identifier = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$", max_length=64)]

PLACEHOLDER = re.compile(r"\{([^{}]*)\}")
MACHINE = ("machine.cpus", "machine.nodes", "machine.memory_mib")
_LONGEST_COMM = 15  # TASK_COMM_LEN of Linux, without the NUL at its end
_LABEL = "(?P<label>"
_OPTIONAL = re.compile(r"\((?:[^()]|\([^()]*\))*\)(?:[?*]|\{0?,)")  # a group, and its groups


class ParameterTable(Document):
    """A parameter that a study may set."""

    type: Literal["integer", "number", "integers", "text", "node", "nodes"]
    """The type of the value."""
    default: Value
    """The default; an integer or a number may be an expression of the machine and earlier
    parameters."""
    least: float | None = None
    """Smallest value; for `integers`, of each."""
    most: float | None = None
    """Largest value, likewise."""
    pattern: str | None = None
    """The regular expression that a text must match."""
    help: str
    """One line for `numalab workload show`."""

    def gives(self, name: str) -> set[str]:
        """Return the numbers that expressions may use when a parameter `name` is like this."""
        if self.type in ("node", "nodes"):
            return {f"{name}.cpus", f"{name}.nodes"}
        if self.type == "integers":
            return {f"{name}.count", f"{name}.sum", f"{name}.most"}
        return set() if self.type == "text" else {name}

    @property
    def expression(self) -> str | None:
        """The default, where it is an expression."""
        written = isinstance(self.default, str) and self.type in ("integer", "number")
        return str(self.default) if written else None

    @field_validator("pattern")
    @classmethod
    def _is_a_pattern(cls, pattern: str | None) -> str | None:
        _compiled(pattern or "")
        return pattern

    @field_validator("least", "most", "pattern")
    @classmethod
    def _is_of_the_type(cls, value: float | str, info: ValidationInfo) -> float | str:
        valid = ("text",) if info.field_name == "pattern" else ("integer", "number", "integers")
        if (kind := info.data.get("type", valid[0])) not in valid:
            raise ValueError(f'has no effect with type = "{kind}" (valid: {", ".join(valid)})')
        return value


class MetricTable(Document):
    """A number that the command prints."""

    name: Identifier
    """The name of the measure."""
    pattern: str = Field(default="", max_length=500)
    """A regular expression for a whole line: the group `value` is the number, `label` tells several
    apart. The parser `lines` needs it."""
    unit: str
    """The unit of the number."""
    direction: Literal["lower", "higher", "none"]
    """Which way is better."""
    kind: Literal["placement", "timing", "identifier"]
    """`timing` depends on time, `placement` does not; an `identifier` (a CPU number, an address) is
    stored and never compared."""
    required: bool = True
    """A run without this number fails."""
    percentile: float | None = Field(default=None, gt=0, lt=100)
    """Set when the number is a percentile; `pattern` then has the group `samples`, their count."""

    @field_validator("pattern")
    @classmethod
    def _compiles(cls, pattern: str) -> str:
        groups = _compiled(pattern).groupindex
        if pattern and ("value" not in groups or set(groups) - {"value", "label", "samples"}):
            raise ValueError("needs the group (?P<value>...), and may have (?P<label>...)")
        return pattern

    @model_validator(mode="after")
    def _has_no_better_name(self) -> "MetricTable":
        if self.kind == "identifier" and self.direction != "none":
            raise ValueError('kind = "identifier" needs direction = "none": no name is better')
        return self

    @model_validator(mode="after")
    def _counts_samples(self) -> "MetricTable":
        if self.pattern and (self.percentile is not None) != (
            "samples" in _compiled(self.pattern).groupindex
        ):
            raise ValueError("percentile and the group (?P<samples>...) need each other")
        return self

    @property
    def measures(self) -> tuple[str, ...]:
        """The names of its measures, as patterns: `NAME`, `NAME_LABEL`, or both.

        The parser of a plug-in may label any number: without a pattern this is `NAME`.
        """
        if not self.has_label:
            return (self.name,)
        plain = re.sub(r"\\.|\[[^]]*\]", "x", self.pattern)
        lacks = _LABEL not in _OPTIONAL.sub("", plain) or f"{_LABEL}x*)" in plain
        return (*([self.name] if lacks else []), f"{self.name}_LABEL")

    @property
    def has_label(self) -> bool:
        """Whether its pattern has the group `label`."""
        return "label" in _compiled(self.pattern).groupindex

    def is_named(self, measure: str) -> bool:
        """Return whether a number of this metric may be the measure of this name."""
        if measure == self.name:
            return self.name in self.measures
        return measure.startswith(f"{self.name}_") and (self.has_label or not self.pattern)


class WorkloadTable(Document):
    """A command with parameters, and the numbers in its output."""

    summary: str
    """One line for lists."""
    stresses: str
    """The part of the kernel that the workload stresses."""
    command: tuple[str, ...] = Field(min_length=1)
    """The words of the command; `{name}` inserts a parameter, `{nodes.cpulist}` the CPUs of a node
    parameter."""
    tasks: tuple[str, ...] = ()
    """Names of the tasks of interest, with `*` and `?`; by default all tasks."""
    seconds: str = Field(description="An expression: about how long the command runs (guest time).")
    """An expression: the guest time that the command takes, about."""
    memory_mib: str | None = None
    """An expression: the memory that it allocates, with its files in tmpfs."""
    packages: tuple[str, ...] = ()
    """Debian packages that the image must have."""
    allowed_nodes: str | None = None
    """The node parameter that holds the nodes the tasks may run on."""
    programs: tuple[Annotated[str, Field(pattern=r"^[a-z0-9-]+/[a-z0-9-]+\.c$")], ...] = ()
    """C files of other workloads' folders, such as `hunt/hunt.c`, that the command needs too."""
    parameters: dict[Identifier, ParameterTable] = Field(default_factory=dict)
    """Parameters by name."""
    derived: dict[Identifier, str] = Field(default_factory=dict)
    """Numbers computed from parameters and the machine, in order."""
    metrics: tuple[MetricTable, ...] = ()
    """Numbers read from the output."""
    parser: str = "lines"
    """The parser that reads them: `lines`, or one of a plug-in."""

    @model_validator(mode="after")
    def _lines_have_patterns(self) -> "WorkloadTable":
        if lacking := [m.name for m in self.metrics if self.parser == "lines" and not m.pattern]:
            raise ValueError(f"metrics: {lacking[0]} has no pattern, which the parser lines needs")
        return self

    @model_validator(mode="after")
    def _metrics_differ(self) -> "WorkloadTable":
        names = [metric.name for metric in self.metrics if not metric.has_label]
        if twice := [name for place, name in enumerate(names) if name in names[:place]]:
            reason = "two have this name; give each its own, or their patterns the group `label`"
            raise ValueError(f"metrics: {twice[0]}: {reason}")
        return self

    @field_validator("command")
    @classmethod
    def _has_no_nul(cls, words: tuple[str, ...]) -> tuple[str, ...]:
        if wrong := [word for word in words if "\0" in word]:
            raise ValueError(f"a NUL in {wrong[0][:40]!r}, which no argument can have")
        return words

    @field_validator("tasks")
    @classmethod
    def _may_match(cls, tasks: tuple[str, ...]) -> tuple[str, ...]:
        for name in tasks:
            if not name or len(name.replace("*", "").encode()) > _LONGEST_COMM:
                reason = f"the kernel keeps 1 to {_LONGEST_COMM} bytes of a name"
                raise ValueError(f"no task can be called {name[:60]!r}: {reason}")
        return tasks

    @model_validator(mode="after")
    def _names_exist(self) -> "WorkloadTable":
        """Every name that is used is a parameter, something derived earlier, or the machine."""
        for key, names in (("parameters", self.parameters), ("derived", self.derived)):
            if "folder" in names:
                raise ValueError(f"{key}.folder: in `command` this is the folder of the workload")
        numbers = {*MACHINE}
        for name, parameter in self.parameters.items():
            if parameter.expression is not None:
                _check_expression(parameter.expression, numbers, f"parameters.{name}.default")
            numbers |= parameter.gives(name)
        for name, expression in self.derived.items():
            if name in self.parameters:
                raise ValueError(f"derived.{name}: there is a parameter of this name")
            _check_expression(expression, numbers, f"derived.{name}")
            numbers.add(name)
        _check_expression(self.seconds, numbers, "seconds")
        if self.memory_mib is not None:
            _check_expression(self.memory_mib, numbers, "memory_mib")
        texts = {"folder", "machine.cpulist", *self.parameters, *self.derived, *numbers}
        texts |= {f"{name}.cpulist" for name, p in self.parameters.items() if "node" in p.type}
        for word in self.command:
            _check_names(PLACEHOLDER.findall(word), texts, f"command: {word!r}")
        kind = self.parameters.get(self.allowed_nodes or "")
        if self.allowed_nodes is not None and (kind is None or "node" not in kind.type):
            raise ValueError(f"allowed_nodes: {self.allowed_nodes!r} is not a node parameter")
        return self


def _compiled(pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern)
    except re.error as error:
        raise ValueError(f"not a regular expression: {error}") from None


def _check_expression(text: str, valid: set[str], where: str) -> None:
    try:
        used = names_in(parse_expression(text))
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None
    _check_names(used, valid, where)


def _check_names(used: tuple[str, ...] | list[str], valid: set[str], where: str) -> None:
    for name in used:
        if name not in valid:
            raise ValueError(f"{where}: unknown name {name!r} (valid: {', '.join(sorted(valid))})")
