"""Linux cpulist and cpumask texts: `0-3,8` and `ff,00000001`.

The formats are those of `bitmap_parselist()` and `%*pbl` / `%*pb` in the kernel's lib/bitmap.c.
"""

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import groupby

MAX_CPUS = 8192  # NR_CPUS of the largest kernel configuration
# ASCII digits only: int() takes "1_0" and the digits of other scripts, too.
_RANGE = re.compile(r"([0-9]{1,18})(?:-([0-9]{1,18}))?")
_MASK = re.compile(r"[0-9a-fA-F]+(?:,[0-9a-fA-F]+)*")


def parse_cpulist(text: str) -> tuple[int, ...]:
    """Parse a cpulist such as `0-3,8` into its CPUs, ascending and without repetition.

    An empty text is the empty list. Raises ValueError for other texts, a range that runs backwards,
    or a number of `MAX_CPUS` or more (the text may come from a guest).
    """
    cpus: set[int] = set()
    for part in filter(None, text.strip().split(",")):
        match = _RANGE.fullmatch(part)
        if match is None:
            raise ValueError(f"not a cpulist: {text[:80]!r}")
        low, high = int(match[1]), int(match[2] or match[1])
        if high < low or high >= MAX_CPUS:
            raise ValueError(f"range {part[:40]!r} is backwards or past CPU {MAX_CPUS - 1}")
        cpus.update(range(low, high + 1))
    return tuple(sorted(cpus))


@dataclass
class Cpulists:
    """Parses the cpulists of one document; equal texts share one tuple.

    A short text may name 8192 CPUs, so the CPUs of all different texts are bounded.
    """

    room: int = 1 << 22
    _parsed: dict[str, tuple[int, ...]] = field(default_factory=dict)

    def parse(self, text: str) -> tuple[int, ...]:
        """Parse a cpulist. Raises ValueError as `parse_cpulist`, and when no room is left."""
        if text not in self._parsed:
            cpus = parse_cpulist(text)
            self.room -= len(cpus) + len(text)
            if self.room < 0:
                raise ValueError("the lists of CPUs are too long")
            self._parsed[text] = cpus
        return self._parsed[text]


def parse_ascending(text: str) -> tuple[int, ...]:
    """Parse a cpulist of strictly ascending CPUs, as kernels print it.

    Raises ValueError as `parse_cpulist`, and for any other order.
    """
    cpus: list[int] = []
    for part in text.split(","):
        new = parse_cpulist(part)
        if cpus and new and new[0] <= cpus[-1]:
            problem = "is listed twice" if new[0] in cpus else f"comes after CPU {cpus[-1]}"
            raise ValueError(f"CPU {new[0]} {problem}")
        cpus += new
    return tuple(cpus)


def parse_cpu_order(text: str) -> tuple[int, ...]:
    """Parse CPUs in their order, with repetitions: `4-5,20,4`. Raises as `parse_cpulist`."""
    return tuple(cpu for part in text.split(",") for cpu in parse_cpulist(part))


def format_cpulist(cpus: Iterable[int]) -> str:
    """Format CPUs as the kernel's `%*pbl` does: ascending, runs of two or more as `first-last`."""
    return format_cpu_order(sorted(set(cpus)))


def name_cpus(cpus: Collection[int]) -> str:
    """Write CPUs in a sentence: `CPU 2`, `CPUs 0-2`."""
    return f"{'CPU' if len(cpus) == 1 else 'CPUs'} {format_cpulist(cpus)}"


def format_cpu_order(cpus: Iterable[int]) -> str:
    """Format CPUs in their order, as `parse_cpu_order` reads them: `4-5,20,4`."""
    ordered = enumerate(cpus)
    runs = ([cpu for _, cpu in run] for _, run in groupby(ordered, lambda pair: pair[1] - pair[0]))
    return ",".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs)


def parse_cpumask(text: str) -> tuple[int, ...]:
    """Parse a mask of 32-bit hexadecimal words, the most significant first (`%*pb`)."""
    if not _MASK.fullmatch(text.strip()):
        raise ValueError(f"not a cpumask: {text[:80]!r}")
    words = text.strip().split(",")
    mask = int("".join(word.rjust(8, "0") for word in words), 16)
    if mask.bit_length() > MAX_CPUS:
        raise ValueError(f"a mask of {mask.bit_length()} CPUs is past {MAX_CPUS}")
    return cpus_of(mask)


def mask_of(cpus: Iterable[int]) -> int:
    """Return a set of CPUs as an integer: bit n is set for CPU n."""
    mask = 0
    for cpu in cpus:
        mask |= 1 << cpu
    return mask


@lru_cache(maxsize=1 << 16)
def cpus_of(mask: int) -> tuple[int, ...]:
    """Return the CPUs of a mask (`mask_of`), ascending."""
    return tuple(cpu for cpu in range(mask.bit_length()) if mask >> cpu & 1)
