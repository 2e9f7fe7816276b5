"""Where each node goes in a drawing, so that the drawing shows the shape.

Coordinates are pixels of the drawing, x to the right and y down, of the middle of a node's box.
"""

from collections.abc import Sequence
from math import cos, pi, sin

from lab.topology.model import Topology

Point = tuple[float, float]

BOX_WIDTH = 132.0
BOX_HEIGHT = 66.0
STEP_X = 208.0  # between the middles of neighbours in a grid
STEP_Y = 172.0
LINE_LENGTH = 5  # nodes in one row of a drawn line; a longer one turns
CUBE_AXES = ((440.0, 0.0), (0.0, 300.0), (190.0, -128.0), (1130.0, 0.0))


def layout(topology: Topology) -> dict[int, Point]:
    """Place every node of a topology: rings are round, meshes grids, backplanes clusters."""
    count = len(topology.nodes)
    kind = topology.layout.get("kind", "")
    if kind in ("mesh", "torus"):
        points = _grid(topology.layout["rows"], topology.layout["columns"])
    elif kind == "line":
        points = _line(count)
    elif kind == "star":
        points = [(0.0, 0.0), *_circle(count - 1)]
    elif kind == "hypercube" and count <= 1 << len(CUBE_AXES):
        points = _hypercube(count)
    elif len(found := clusters(topology)) > 1:
        points = _clusters(found, count)
    else:
        points = _circle(count)
    left = min(x for x, _ in points)
    top = min(y for _, y in points)
    return {node: (round(x - left, 1), round(y - top, 1)) for node, (x, y) in enumerate(points)}


def clusters(topology: Topology) -> tuple[tuple[int, ...], ...]:
    """Group the nodes that are nearest to each other, where that divides the machine.

    Nodes belong together when no other node is nearer, in either direction, and when that holds
    for all pairs of the group alike. A machine that does not divide is one group.
    """
    count = len(topology.nodes)
    everyone = tuple(range(count))
    apart = [
        min(topology.distances[a][b], topology.distances[b][a])
        for a in everyone
        for b in everyone
        if a < b
    ]
    if not apart:
        return (everyone,)
    near = min(apart)
    groups: dict[tuple[int, ...], None] = {}
    for a in everyone:
        group = tuple(b for b in everyone if a == b or _near(topology, a, b, near))
        groups[group] = None
    found = tuple(groups)
    if sum(len(group) for group in found) != count or len({len(group) for group in found}) > 1:
        return (everyone,)
    return found if len(found[0]) > 1 else (everyone,)


def _near(topology: Topology, a: int, b: int, near: int) -> bool:
    return max(topology.distances[a][b], topology.distances[b][a]) <= near


def _circle(count: int) -> list[Point]:
    """Place nodes clockwise, with a level edge on top (so four nodes make a square)."""
    if count <= 1:
        return [(0.0, -STEP_Y)] * count
    if count == 2:
        return [(0.0, 0.0), (STEP_X, 0.0)]
    radius_x = max(STEP_X / 2 / sin(pi / count), STEP_X * 0.72)
    radius_y = max(STEP_Y / 2 / sin(pi / count), STEP_Y * 0.72)
    first = -pi / 2 - pi / count
    angles = [first + 2 * pi * place / count for place in range(count)]
    return [(radius_x * cos(angle), radius_y * sin(angle)) for angle in angles]


def _grid(rows: int, columns: int) -> list[Point]:
    return [(column * STEP_X, row * STEP_Y) for row in range(rows) for column in range(columns)]


def _line(count: int) -> list[Point]:
    """Place nodes in rows that turn at their ends, like a snake."""
    length = count if count <= LINE_LENGTH else -(-count // -(-count // LINE_LENGTH))
    points = []
    for node in range(count):
        row, place = divmod(node, length)
        points.append(((length - 1 - place if row % 2 else place) * STEP_X, row * STEP_Y))
    return points


def _hypercube(count: int) -> list[Point]:
    """Place each node by the bits of its number: one direction for each dimension."""
    axes = CUBE_AXES[: count.bit_length() - 1]
    return [
        (
            sum(axis[0] for bit, axis in enumerate(axes) if node >> bit & 1),
            sum(axis[1] for bit, axis in enumerate(axes) if node >> bit & 1),
        )
        for node in range(count)
    ]


def _clusters(groups: Sequence[Sequence[int]], count: int) -> list[Point]:
    """Place each group as a circle of its own, and the groups in rows."""
    inner = _circle(len(groups[0]))
    width = max(x for x, _ in inner) - min(x for x, _ in inner) + STEP_X + 56
    height = max(y for _, y in inner) - min(y for _, y in inner) + STEP_Y + 56
    columns = len(groups) if len(groups) <= 3 else -(-len(groups) // 2)
    points: list[Point] = [(0.0, 0.0)] * count
    for place, group in enumerate(groups):
        row, column = divmod(place, columns)
        for node, (x, y) in zip(group, inner, strict=True):
            points[node] = (x + column * width, y + row * height)
    return points
