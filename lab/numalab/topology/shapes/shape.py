"""The base of a shape, and the registry of shapes.

A shape is a pydantic model whose fields are the keys of `[shape]`. `register_shape` adds a shape.
"""

import inspect
import json
from abc import abstractmethod
from collections.abc import Callable, Iterator
from itertools import islice, product
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin

from pydantic import Field, ValidationError
from pydantic_core import InitErrorDetails, PydanticCustomError

from numalab.document import Document
from numalab.errors import UserError, did_you_mean
from numalab.places import skip_input
from numalab.plugins import Registry, explain_fault
from numalab.topology.distances import Lengths, Link, Matrix, diameter, distances_by_hop, hops
from numalab.topology.limits import (
    MAX_CPUS,
    MAX_DISTANCE,
    MAX_NODES,
    RuleBroken,
    broken_by_hop,
    refuse,
)
from numalab.topology.view.placement import Point, circle

HopDistance = Annotated[int, Field(ge=10, le=MAX_DISTANCE)]
Count = Annotated[int, Field(ge=1, le=MAX_CPUS)]


class Shape(Document):
    """A way to link any number of nodes, and the distance of each number of hops."""

    kind: str = Field(description="The name of the shape.")
    distances: Annotated[tuple[HopDistance, ...], Field(min_length=1, max_length=MAX_NODES)] = (
        Field(description="SLIT distance of 0 hops (always 10), 1 hop, 2 hops and so on.")
    )

    @abstractmethod
    def links(self, nodes: int) -> tuple[Link, ...]:
        """Return the links between nodes 0 to `nodes` - 1, each once."""

    def check(self, nodes: int) -> None:
        """Check that the shape can have `nodes` nodes. Raises RuleBroken."""

    def hops(self, nodes: int) -> Lengths:
        """Count the hops between any two nodes: links on the shortest path."""
        links = tuple(self.links(nodes))
        for link in links:
            if not all(0 <= node < nodes for node in link):
                text = f"this shape links nodes {link[0]} and {link[1]}; there are {nodes}"
                raise RuleBroken("shape.kind", text)
        return hops(nodes, links)

    def points(self, nodes: int) -> list[Point]:
        """Place the nodes in a drawing; by default on a circle."""
        return circle(nodes)

    def clusters(self, nodes: int) -> tuple[tuple[int, ...], ...]:
        """Return the groups of nodes that get a frame in a drawing; a single group gets none.

        A bar replaces the links between clusters.
        """
        return (tuple(range(nodes)),)

    def matrix(self, nodes: int) -> Matrix:
        """Return the SLIT of `nodes` nodes. Raises RuleBroken where the keys do not fit."""
        self.check(nodes)
        counts = self.hops(nodes)
        refuse(broken_by_hop("shape.distances", self.distances, diameter(counts)))
        return distances_by_hop(counts, self.distances)


S = TypeVar("S", bound=Shape)
SHAPES: Registry[type[Shape]] = Registry("shape", __package__)
_MOST_DRAWN = 4096  # combinations of keys that are tried


def register_shape(name: str) -> Callable[[type[S]], type[S]]:
    """Add a shape that topology files select with `kind = "NAME"`; a class decorator.

        @register_shape("ladder")
        class Ladder(Shape):
            '''Two rows of nodes, linked along and across.'''

            def links(self, nodes: int) -> tuple[Link, ...]:
                return tuple((a, a + 2) for a in range(nodes - 2)) + tuple(
                    (a, a + 1) for a in range(0, nodes - 1, 2)
                )

    Raises UserError for a name that is taken.
    """

    def add(shape: type[S]) -> type[S]:
        SHAPES.add(name, shape, shape)
        return shape

    return add


def fitting_keys(name: str, nodes: int) -> list[dict[str, Any]]:
    """Return the keys with which a shape can have `nodes` nodes, without kind and distances.

    `numalab hunt` draws from them. An integer takes every value within the bounds of its type up to
    the number of nodes, a Literal each of its words, any other key its default.

    The shape of a plug-in that fails is left out, with a warning (`numalab.places.skip_input`).
    """
    shape = SHAPES.find(name)
    own = [key for key in shape.model_fields if key not in Shape.model_fields]
    values = (list(_values(shape, key, nodes)) for key in own)
    fitting = []
    for combination in islice(product(*values), _MOST_DRAWN):
        keys = dict(zip(own, combination, strict=True))
        try:
            drawn = shape.model_validate({"kind": name, "distances": (10,), **keys})
            drawn.check(nodes)
            drawn.hops(nodes)
        except (RuleBroken, ValidationError):
            continue
        except Exception as error:  # a plug-in may raise anything
            if SHAPES.is_built_in(name):
                raise
            reason = f"{type(error).__name__}: {str(error)[:200]}"
            fault = explain_fault(error) or UserError(reason, file=Path(inspect.getfile(shape)))
            skip_input(UserError(f"the shape {name!r}: {fault}"), f"shape {name}")
            return []
        fitting.append(keys)
    return fitting


def _values(shape: type[Shape], key: str, nodes: int) -> Iterator[Any]:
    field = shape.model_fields[key]
    if get_origin(field.annotation) is Literal:
        yield from get_args(field.annotation)
    elif field.annotation is bool:
        yield from (False, True)
    elif field.annotation is int:
        bounds = [(getattr(rule, "ge", None), getattr(rule, "le", None)) for rule in field.metadata]
        least = max([0, *(low for low, _ in bounds if low is not None)])
        most = min([nodes, *(high for _, high in bounds if high is not None)])
        yield from range(least, most + 1)
    elif not field.is_required():
        yield field.get_default(call_default_factory=True)


def read_shape(table: Any) -> Any:
    """Turn the table `[shape]` into its shape. Raises ValidationError.

    This is a pydantic validator: it returns other values than tables for pydantic to refuse.
    """
    if not isinstance(table, dict):
        return table
    kind, shapes = table.get("kind"), SHAPES.all()
    if not isinstance(kind, str) or kind not in shapes:
        hint = did_you_mean(str(kind)[:60], shapes)
        problem = (
            f"no shape is called {kind!r:.60}{hint}"
            if "kind" in table
            else "the key kind is missing"
        )
        message = f"{problem} (valid: {', '.join(shapes)})"
        raise ValidationError.from_exception_data("shape", [_detail("kind", kind, message)])
    shape = shapes[kind]
    valid = ", ".join(shape.model_fields)
    details = [
        _detail(
            key,
            value,
            f"a {kind} has no {key[:60]}{did_you_mean(key, shape.model_fields)} (valid: {valid})",
        )
        for key, value in table.items()
        if key not in shape.model_fields
    ]
    fields = {key: value for key, value in table.items() if key in shape.model_fields}
    try:
        # Strict rules differ for JSON; `check_document` validates JSON, too.
        whole = shape.model_validate_json(json.dumps(fields))
    except ValidationError as error:
        details += [
            InitErrorDetails(
                type=detail["type"],
                loc=detail["loc"],
                input=detail["input"],
                ctx=detail.get("ctx", {}),
            )
            for detail in error.errors(include_url=False)
        ]
    if details:
        raise ValidationError.from_exception_data("shape", details)
    return whole


def _detail(key: str, value: Any, message: str) -> InitErrorDetails:
    error = PydanticCustomError("value_error", "{error}", {"error": message})
    return InitErrorDetails(type=error, loc=(key,), input=value)
