"""How a function that takes minutes reports its progress."""

from collections.abc import Callable

# Gets a message and the fraction that is done, None where it is unknown.
Progress = Callable[[str, float | None], None]


def no_progress(_message: str, _fraction: float | None) -> None:
    """Report nothing."""
