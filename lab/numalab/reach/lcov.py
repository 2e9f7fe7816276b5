"""The reach of a patch as a tracefile of lcov: geninfo(1), "FILES". Pure."""

from collections.abc import Iterator
from itertools import groupby
from math import ceil

from numalab.reach.model import PatchReach, RunReach


def render_lcov(reach: PatchReach) -> str:
    """Return the lines and branches of both kernels, each kernel a test of its own.

    A count is that of a mean run, rounded up: numbers of runs differ, and tracefiles have none.
    """
    sides = [side for side in (reach.baseline, reach.patched) if side is not None]
    return "".join(f"{line}\n" for side in sides for line in _records(side))


def _records(side: RunReach) -> Iterator[str]:
    for file, lines in groupby(side.lines, key=lambda line: line.file):
        executable = [line for line in lines if line.executable]
        if not executable:
            continue
        yield f"TN:{side.side}"
        yield f"SF:{file}"
        ways_known = ways_taken = 0
        for line in executable:
            for number, branch in enumerate(line.branches):
                ways = (branch.taken, branch.not_taken)
                for way, count in enumerate(ways):
                    mean = ceil(count / side.runs) if any(ways) else "-"
                    yield f"BRDA:{line.number},{number},{way},{mean}"
                    ways_known, ways_taken = ways_known + 1, ways_taken + bool(count)
        yield f"BRF:{ways_known}"
        yield f"BRH:{ways_taken}"
        yield from (f"DA:{line.number},{ceil(line.executions / side.runs)}" for line in executable)
        yield f"LF:{len(executable)}"
        yield f"LH:{sum(1 for line in executable if line.executions)}"
        yield "end_of_record"
