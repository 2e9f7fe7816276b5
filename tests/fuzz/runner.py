"""Runs the cases of a module of this folder, one seed each, and counts what came of them.

A module has `case(seed, scratch)`, which runs one case in an empty folder, says in a word what came
of it, and raises where something happened that must not; `CASES`, how many a long run has, and
`FEW`, how many one in CI. Any seed can be run again alone.
"""

import importlib
import pkgutil
import resource
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Protocol, cast

# No case does that much: one that takes longer hangs. Of CPU time, so that a busy host is no hang.
MOST_SECONDS = 120.0


class Cases(Protocol):
    """A module of cases."""

    CASES: int
    FEW: int
    case: Callable[[int, Path], str]


def modules() -> dict[str, Cases]:
    """Find the modules of cases in this folder, by name; the others are programs of their own."""
    names = (each.name for each in pkgutil.iter_modules([str(Path(__file__).parent)]))
    others = ("__main__", "runner", "test_fuzz")
    found = {
        name: importlib.import_module(f"fuzz.{name}") for name in sorted(set(names) - {*others})
    }
    return {name: cast(Cases, each) for name, each in found.items() if hasattr(each, "case")}


def run_cases(
    name: str, cases: Cases, seeds: Iterable[int], tell: Callable[[str], None] = lambda text: None
) -> tuple[Counter[str], list[str]]:
    """Run a module's cases; returns what came of them, and of each that failed its seed and why.

    `tell` is given each failure as it happens, with its traceback.
    """
    outcomes: Counter[str] = Counter()
    failures: list[str] = []
    for seed in seeds:
        began = _cpu_seconds()
        with tempfile.TemporaryDirectory(prefix=f"fuzz-{name}-") as scratch:
            try:
                outcomes[cases.case(seed, Path(scratch))] += 1
                spent = _cpu_seconds() - began
                assert spent < MOST_SECONDS, f"{spent:.0f} s of CPU time"
            except Exception as error:
                failures.append(f"{name}, seed {seed}: {type(error).__name__}: {str(error)[:500]}")
                tell(f"{failures[-1]}\n{traceback.format_exc()}")
    return outcomes, failures


def _cpu_seconds() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)
