"""A plug-in: a measure and a shape. Change it, or delete it; nothing else refers to it."""

from numalab.api import Link, Recording, Shape, register_measure, register_shape


@register_measure(
    "busiest_task_moves", unit="moves", direction="lower", events=["sched_migrate_task"]
)
def busiest_task_moves(run: Recording) -> int:
    """The most moves of one task to another CPU."""
    moves = run.events("sched_migrate_task")
    return max(moves.group_by("event_pid").len()["len"].to_list(), default=0)


@register_shape("ladder")
class Ladder(Shape):
    """Two rows of nodes; each node is linked to its neighbours and to the node across."""

    def links(self, nodes: int) -> tuple[Link, ...]:
        """Link each node to the next of its row, and each pair."""
        along = tuple((node, node + 2) for node in range(nodes - 2))
        return along + tuple((node, node + 1) for node in range(0, nodes - 1, 2))
