"""Places nodes on circles, grids and lines, for drawings of a machine.

Coordinates are pixels of the drawing, x to the right and y down, of the middle of a node's box.
"""

from collections.abc import Sequence
from math import cos, pi, sin

Point = tuple[float, float]

BOX_WIDTH = 132.0
BOX_HEIGHT = 66.0
STEP_X = 208.0  # between the middles of neighbours in a grid
STEP_Y = 172.0
LINE_LENGTH = 5  # nodes in a row of a drawn line; longer lines turn


def circle(count: int) -> list[Point]:
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


def grid(rows: int, columns: int) -> list[Point]:
    """Place nodes along rows."""
    return [(column * STEP_X, row * STEP_Y) for row in range(rows) for column in range(columns)]


def snake(count: int) -> list[Point]:
    """Place nodes in rows that turn at their ends."""
    length = count if count <= LINE_LENGTH else -(-count // -(-count // LINE_LENGTH))
    points = []
    for node in range(count):
        row, place = divmod(node, length)
        points.append(((length - 1 - place if row % 2 else place) * STEP_X, row * STEP_Y))
    return points


def circles(groups: Sequence[Sequence[int]]) -> list[Point]:
    """Place each group, all of one size, on a circle, and the groups in rows."""
    inner = circle(len(groups[0]))
    width = max(x for x, _ in inner) - min(x for x, _ in inner) + STEP_X + 56
    height = max(y for _, y in inner) - min(y for _, y in inner) + STEP_Y + 56
    columns = len(groups) if len(groups) <= 3 else -(-len(groups) // 2)
    points: list[Point] = [(0.0, 0.0)] * sum(map(len, groups))
    for place, group in enumerate(groups):
        row, column = divmod(place, columns)
        for node, (x, y) in zip(group, inner, strict=True):
            points[node] = (x + column * width, y + row * height)
    return points
