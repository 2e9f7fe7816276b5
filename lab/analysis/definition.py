"""What a family of measures means."""

import re
from dataclasses import dataclass
from typing import Literal

Direction = Literal["lower", "higher", "none"]
Kind = Literal["placement", "timing"]


@dataclass(frozen=True)
class Definition:
    """What a family of measures means. `name` may hold places such as `{node}`."""

    name: str
    unit: str
    direction: Direction
    kind: Kind
    definition: str
    source: str

    def pattern(self) -> "re.Pattern[str]":
        """Return the pattern that the names of this family match."""
        parts = re.split(r"\{(\w+)\}", self.name)
        text = [
            re.escape(part) if i % 2 == 0 else f"(?P<{part}>\\w+)" for i, part in enumerate(parts)
        ]
        return re.compile("".join(text))
