"""Axes that plug-ins add: each value multiplies the uses of workloads.

A use `hogs` with `[axes] thp = ["always", "never"]` becomes `hogs-thp-always` and `hogs-thp-never`.
Results store these uses, so reading them does not need the plug-in.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from pydantic import Field, TypeAdapter, ValidationError

from numalab.errors import UserError
from numalab.plugins import Registry
from numalab.study.machine_table import GuestChange

AxisValue = str | int | float
Axes = Mapping[str, Sequence[AxisValue]]
_PART_OF_NAME = re.compile(r"[A-Za-z0-9.-]+")


class RunChange(GuestChange):
    """Settings of the guest and parameters of the workload for one value of an axis."""

    parameters: dict[str, AxisValue] = Field(default_factory=dict)


@dataclass(frozen=True)
class Axis:
    """An axis of a study.

    `name` is its key in `[axes]`, `values` the type of its values for pydantic (`int`,
    `Literal["always", "never"]`). `change` returns the change of a value; it may raise ValueError.
    """

    name: str
    values: Any
    change: Callable[[Any], RunChange]


Change = Callable[[Any], RunChange]
AXES: Registry[Axis] = Registry("axis", "numalab.study.axes")


def register_axis(name: str, values: Any) -> Callable[[Change], Change]:
    """Add an axis: decorate the function that turns a value into a `RunChange`.

    `name` is the key in `[axes]`, `values` the type of the values for pydantic.

        @register_axis("thp", Literal["always", "never"])
        def thp(value: str) -> RunChange:
            '''Whether the kernel uses transparent huge pages.'''
            return RunChange(tunables={"/sys/kernel/mm/transparent_hugepage/enabled": value})

    Raises UserError for a name that is taken.
    """

    def add(change: Change) -> Change:
        AXES.add(name, Axis(name, values, change), change)
        return change

    return add


def axis_labels(label: str, axes: Axes) -> tuple[str, ...]:
    """Return the labels that axes make of a label; itself without axes."""
    parts = ([f"{name}-{value}" for value in values] for name, values in axes.items())
    return tuple("-".join([label, *chosen]) for chosen in product(*parts))


def with_axes(table: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """Return the table of a study with its axes applied.

    Claims and selections of a label then name all labels that axes make of it. Raises UserError
    for an unregistered axis and for an invalid value.
    """
    axes: Axes = table["axes"]
    changes = {name: _changes(name, values, path) for name, values in axes.items()}
    labels = {use["label"]: axis_labels(use["label"], axes) for use in table["workloads"]}
    expanded = {key: value for key, value in table.items() if key != "axes"}
    expanded["workloads"] = [
        _changed(use, label, dict(zip(axes, chosen, strict=True)), path)
        for use in table["workloads"]
        for label, chosen in zip(labels[use["label"]], product(*changes.values()), strict=True)
    ]
    expanded["claims"] = [
        {**claim, "workload": label}
        for claim in table["claims"]
        for label in labels.get(claim["workload"], (claim["workload"],))
    ]
    for key in ("include", "exclude"):
        expanded[key] = table[key] and [
            {
                **selection,
                "workloads": [
                    n for name in selection["workloads"] for n in labels.get(name, (name,))
                ],
            }
            for selection in table[key]
        ]
    return expanded


def _changes(name: str, values: Sequence[AxisValue], path: Path) -> tuple[RunChange, ...]:
    """Return the change of each value of an axis."""
    if name not in (registered := AXES.all()):
        reason = f"no plug-in adds an axis {name!r}"
        raise UserError(reason, file=path, key=f"axes.{name}", choices=registered)
    return tuple(
        _change(registered[name], value, path, f"axes.{name}[{place}]")
        for place, value in enumerate(values)
    )


def _change(axis: Axis, value: AxisValue, path: Path, key: str) -> RunChange:
    if not _PART_OF_NAME.fullmatch(str(value)):
        reason = f"{value!r} is invalid in the name of a run (letters, digits, dots and dashes)"
        raise UserError(reason, file=path, key=key)
    try:
        change: object = axis.change(TypeAdapter(axis.values).validate_python(value, strict=True))
    except ValidationError as error:
        first = error.errors()[0]
        place = "".join(f"{part}: " for part in first["loc"])
        raise UserError(f"{place}{first['msg']}, found {value!r}", file=path, key=key) from None
    except ValueError as error:
        raise UserError(str(error), file=path, key=key) from None
    if not isinstance(change, RunChange):
        reason = f"the axis {axis.name} returned a {type(change).__name__}, not a RunChange"
        raise UserError(reason, file=path, key=key)
    return change


def _changed(
    use: Mapping[str, Any], label: str, changes: Mapping[str, RunChange], path: Path
) -> dict[str, Any]:
    """Return a use of a workload with the change of one value of each axis."""
    by: dict[str, str] = {}
    guest: dict[str, Any] = dict(use.get("guest", {}))
    parameters = dict(use["parameters"])
    for axis, change in changes.items():
        for what in _named(change):
            if what in by:
                reason = f"{by[what]} and {axis} both change {what}"
                raise UserError(reason, file=path, key=f"axes.{axis}")
            by[what] = axis
        parameters |= change.parameters
        new = change.model_dump(mode="json", exclude={"parameters"})
        for key in ("tunables", "env"):
            guest[key] = guest.get(key, {}) | new[key]
        guest["cmdline"] = [*guest.get("cmdline", ()), *new["cmdline"]]
        guest |= _set_once(change)
    return {**use, "label": label, "parameters": parameters, "guest": guest}


def _named(change: RunChange) -> Iterator[str]:
    yield from change.tunables
    yield from change.env
    yield from (f"the parameter {name}" for name in change.parameters)
    yield from _set_once(change)


def _set_once(change: RunChange) -> dict[str, Any]:
    """Return the settings of a change that have a single value."""
    both = {"pages": change.pages, "nodes": change.nodes}
    return {name: value for name, value in both.items() if value is not None}
