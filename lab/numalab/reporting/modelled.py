"""What the model of mode timed is made of, for a report's head: from the manifest, not from today.

A file or a default that has changed since does not change what a stored result was made by.
"""

from collections.abc import Callable, Sequence
from statistics import fmean

from numalab.results.manifest import Manifest, MemoryFacts
from numalab.results.reader import StoredRun

# A copy of a line: 64 bytes read and 64 written, in two waits and so many instructions
# (workloads/distances/distances.c: eight loads, eight stores and the loop, for each line).
_COPIED_BYTES, _WAITS, _INSTRUCTIONS = 128, 2, 18


def model_lines(run: Manifest) -> tuple[str, ...]:
    """Return the model's parameters in lines of text: clocks, caches, two matrices; none where the
    run was in another mode, or an older numalab did not write them down."""
    if run.memory is None:
        return ()
    memory = run.memory
    shift = 0 if run.icount_shift is None else run.icount_shift
    quantum = 0 if run.quantum_ns is None else run.quantum_ns
    return (
        f"an instruction in {1 << shift} ns, each vCPU {quantum / 1000:g} us before the others "
        "catch up",
        f"each CPU: {memory.l1.kib} KiB first level, {memory.l2.kib} KiB second level in "
        f"{memory.l2.hit_ns} ns; {memory.llc_groups} last-level caches of {memory.llc.kib} KiB in "
        f"{memory.llc.hit_ns} ns",
        *_matrix("latency [ns], from a node's CPUs (row) to a node's memory", memory.latency_ns),
        *_matrix("bandwidth [MB/s]", memory.bandwidth_mb_s),
        *_interrupts(memory),
    )


def measured_lines(runs: Sequence[StoredRun]) -> tuple[str, ...]:
    """Return what `distances` measured from each node to each, beside what the model says of it.

    In lines of text, after those of the model; the mean of the runs of each variant. Copying by all
    threads of a node is limited by queues as well, for which no one number is expected. Nothing for
    runs that measured no such pairs.
    """
    if not runs or (memory := runs[0].manifest.memory) is None:
        return ()
    instruction_ns = 1 << (runs[0].manifest.icount_shift or 0)

    def copied(latency_ns: float) -> float:
        return 1000 * _COPIED_BYTES / (_WAITS * latency_ns + _INSTRUCTIONS * instruction_ns)

    lines: list[str] = []
    for variant in dict.fromkeys(run.manifest.variant for run in runs):
        of = [run for run in runs if run.manifest.variant == variant]
        lines += _pairs(of, memory, "chase_ns", "a chase of pointers [ns]", float)
        lines += _pairs(of, memory, "copy_rate", "a copy by one thread [MB/s]", copied)
        lines += _pairs(of, memory, "copy_rate_all", "a copy by all threads of a node [MB/s]", None)
    return tuple(lines)


def _pairs(
    runs: Sequence[StoredRun],
    memory: MemoryFacts,
    metric: str,
    what: str,
    expected: Callable[[float], float] | None,
) -> list[str]:
    """Lay out one metric of all pairs that were measured, each as `expected / measured`."""
    nodes = range(len(memory.latency_ns))
    cells = [["" for _ in nodes] for _ in nodes]
    for near in nodes:
        for far in nodes:
            name = f"{metric}_{near}-{far}"
            found = [run.measures[name].value for run in runs if name in run.measures]
            values = [value for value in found if value is not None]
            if values:
                beside = f"{expected(memory.latency_ns[near][far]):.0f} / " if expected else ""
                cells[near][far] = f"{beside}{fmean(values):.1f}"
    if not any(map(any, cells)):
        return []
    count = "1 run" if len(runs) == 1 else f"the mean of {len(runs)} runs"
    title = "expected / measured" if expected else "measured"
    return _table(f"{what}, {title}: {runs[0].manifest.variant}, {count}", cells)


def _matrix(title: str, cells: Sequence[Sequence[float]]) -> list[str]:
    return _table(title, [[f"{cell:.0f}" for cell in row] for row in cells])


def _table(title: str, texts: Sequence[Sequence[str]]) -> list[str]:
    width = max(len(text) for row in texts for text in row) + 1
    head = "".join(f"{node:>{width}}" for node in range(len(texts)))
    rows = ("".join(f"{text:>{width}}" for text in row) for row in texts)
    return [title, f"  node{head}", *(f"  {node:>3}:{row}" for node, row in enumerate(rows))]


def _interrupts(memory: MemoryFacts) -> list[str]:
    every = sorted({ns for row in memory.interrupt_ns for ns in row})
    ends = f"{every[0]}" if len(every) == 1 else f"{every[0]} to {every[-1]}"
    return [f"interrupts from CPU to CPU: {ends} ns, and up to a quantum"]
