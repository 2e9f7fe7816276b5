"""What a shape is, and the registry of all of them.

A shape is a pydantic model: its fields are the keys of `[shape]`. A plug-in adds one with
`register_shape`, like the modules beside this one.
"""

import json
from abc import abstractmethod
from typing import Annotated, Any, TypeVar, get_args

from pydantic import Field, ValidationError
from pydantic_core import ErrorDetails, InitErrorDetails, PydanticCustomError

from numalab.document import Document
from numalab.errors import did_you_mean
from numalab.plugins import Registry
from numalab.topology.broken_rule import check_by_hop
from numalab.topology.geometry import Point, circle
from numalab.topology.graph import Lengths, Link, Matrix, diameter, distances_by_hop, hops
from numalab.topology.limits import MAX_CPUS, MAX_DISTANCE, MAX_NODES

HopDistance = Annotated[int, Field(ge=10, le=MAX_DISTANCE)]
Count = Annotated[int, Field(ge=1, le=MAX_CPUS)]


class Shape(Document):
    """A way to link any number of nodes, and the distance of each number of hops."""

    kind: str = Field(description="How the nodes are linked.")
    distances: Annotated[tuple[HopDistance, ...], Field(min_length=1, max_length=MAX_NODES)] = (
        Field(description="SLIT distance of 0 hops (always 10), 1 hop, 2 hops and so on.")
    )

    @abstractmethod
    def links(self, nodes: int) -> tuple[Link, ...]:
        """Return the links between nodes 0 to `nodes` - 1, each once."""

    def check(self, nodes: int) -> None:
        """Check that the shape can have so many nodes. Raises RuleBroken."""

    def hops(self, nodes: int) -> Lengths:
        """Count the hops between any two nodes: links on the shortest path."""
        return hops(nodes, self.links(nodes))

    def points(self, nodes: int) -> list[Point]:
        """Place the nodes in a drawing; a circle unless a shape knows better."""
        return circle(nodes)

    def clusters(self, nodes: int) -> tuple[tuple[int, ...], ...]:
        """Return the groups of nodes that get a frame in a drawing; one group gets none.

        Between clusters a bar is drawn instead of links.
        """
        return (tuple(range(nodes)),)

    def matrix(self, nodes: int) -> Matrix:
        """Return the SLIT of so many nodes. Raises RuleBroken where the keys do not fit."""
        self.check(nodes)
        counts = self.hops(nodes)
        check_by_hop("shape.distances", self.distances, diameter(counts))
        return distances_by_hop(counts, self.distances)


S = TypeVar("S", bound=Shape)
SHAPES = Registry[type[Shape]]("shape")


def register_shape(shape: type[S]) -> type[S]:
    """Add a shape (a class decorator); its field `kind` is a Literal of its name."""
    (name,) = get_args(shape.model_fields["kind"].annotation)
    SHAPES.add(name, shape)
    return shape


def read_shape(table: Any) -> Any:
    """Turn the table `[shape]` into the shape that it names. Raises ValidationError.

    For use as a pydantic validator: what is no table is left for pydantic to refuse.
    """
    if not isinstance(table, dict) or "kind" not in table:
        return table
    kind, shapes = table["kind"], SHAPES.all()
    if not isinstance(kind, str) or kind not in shapes:
        hint = did_you_mean(str(kind)[:60], shapes)
        valid = ", ".join(shapes)
        raise _wrong("kind", kind, f"no shape is called {kind!r:.60}{hint} (valid: {valid})")
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
        # Through JSON, as `check_document` does it.
        whole = shape.model_validate_json(json.dumps(fields))
    except ValidationError as error:
        details += [_copied(detail) for detail in error.errors(include_url=False)]
    if details:
        raise ValidationError.from_exception_data("shape", details)
    return whole


def _wrong(key: str, value: Any, message: str) -> ValidationError:
    return ValidationError.from_exception_data("shape", [_detail(key, value, message)])


def _detail(key: str, value: Any, message: str) -> InitErrorDetails:
    error = PydanticCustomError("value_error", "{error}", {"error": message})
    return InitErrorDetails(type=error, loc=(key,), input=value)


def _copied(detail: ErrorDetails) -> InitErrorDetails:
    return InitErrorDetails(
        type=detail["type"], loc=detail["loc"], input=detail["input"], ctx=detail.get("ctx", {})
    )
