"""How something that takes minutes tells how far it is."""

from collections.abc import Callable

# What is being done, and the part of all that is done: None where that is unknown.
Progress = Callable[[str, float | None], None]
