"""Runs cases of the modules of this folder, one seed each, and counts their outcomes.

A module has `case(seed, scratch)`, which runs one case in an empty folder, returns its outcome in a
few words and raises for a defect; `CASES`, the number of a long run, and `FEW`, that of one in CI.
A module that needs something of the host also has `missing()`, which returns what is not there.
"""

import importlib
import os
import pkgutil
import resource
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, cast

# No case does that much: one that takes longer hangs. Of CPU time, so that a busy host is no hang.
MOST_SECONDS = 120.0


class Cases(Protocol):
    """A module of cases."""

    CASES: int
    FEW: int
    case: Callable[[int, Path], str]


@dataclass(frozen=True)
class CaseResult:
    """The result of one case: its outcome, or the failure with its traceback; times in seconds."""

    outcome: str = ""
    failure: str = ""
    traceback: str = ""
    cpu: float = 0.0
    wall: float = 0.0


def modules() -> dict[str, Cases]:
    """Return the modules of cases in this folder, by name."""
    names = sorted(module.name for module in pkgutil.iter_modules([str(Path(__file__).parent)]))
    programs = ("__main__", "test_fuzz")
    imported = {name: importlib.import_module(f"fuzz.{name}") for name in names
                if name not in programs}  # fmt: skip
    return {name: cast(Cases, module) for name, module in imported.items()
            if hasattr(module, "case")}  # fmt: skip


def missing(cases: Cases) -> str:
    """Return what a module of cases needs and this host lacks; empty for nothing."""
    question: Callable[[], str] = getattr(cases, "missing", lambda: "")
    return question()


def run_case(name: str, cases: Cases, seed: int) -> CaseResult:
    """Run one case in a folder of its own, which is removed."""
    cpu, wall, outcome, failure, text = _cpu_seconds(), time.monotonic(), "", "", ""
    environment, folder = dict(os.environ), Path.cwd()
    with tempfile.TemporaryDirectory(prefix=f"fuzz-{name}-", ignore_cleanup_errors=True) as scratch:
        try:
            outcome = cases.case(seed, Path(scratch))
            spent = _cpu_seconds() - cpu
            assert spent < MOST_SECONDS, f"{spent:.0f} s of CPU time"
        except Exception as error:
            failure = f"{name}, seed {seed}: {type(error).__name__}: {str(error)[:2000]}"
            text = traceback.format_exc()
        finally:  # the next case in this process may be one of another module
            os.environ.clear()
            os.environ.update(environment)
            os.chdir(folder)
    return CaseResult(outcome, failure, text, _cpu_seconds() - cpu, time.monotonic() - wall)


def run_cases(name: str, cases: Cases, seeds: Iterable[int]) -> tuple[Counter[str], list[str]]:
    """Run cases one after the other; return the outcomes and the failures."""
    results = [run_case(name, cases, seed) for seed in seeds]
    outcomes = Counter(result.outcome for result in results if not result.failure)
    return outcomes, [result.failure for result in results if result.failure]


def _cpu_seconds() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in used)
