"""How long the command took, by the guest's own clock."""

import re
from dataclasses import dataclass

_LINE = re.compile(r"(elapsed|user|system) (\d{1,10}\.\d{1,9})")


@dataclass(frozen=True)
class Times:
    """Seconds: by the clock, and of CPU in the command and those of its descendants waited for."""

    elapsed: float
    user: float
    system: float


def parse_times(text: str) -> Times | None:
    """Parse what the guest's numalab-run wrote; None for anything else."""
    seconds = {m[1]: float(m[2]) for line in text.splitlines()[:10] if (m := _LINE.fullmatch(line))}
    return Times(**seconds) if len(seconds) == 3 else None
