"""What the model of mode timed is made of, for a report's head: from the manifest, not from today.

A file or a default that has changed since does not change what a stored result was made by.
"""

from collections.abc import Sequence

from numalab.results.manifest import Manifest, MemoryFacts


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


def _matrix(title: str, cells: Sequence[Sequence[float]]) -> list[str]:
    texts = [[f"{cell:.0f}" for cell in row] for row in cells]
    width = max(len(text) for row in texts for text in row) + 1
    head = "".join(f"{node:>{width}}" for node in range(len(cells)))
    rows = ("".join(f"{text:>{width}}" for text in row) for row in texts)
    return [title, f"  node{head}", *(f"  {node:>3}:{row}" for node, row in enumerate(rows))]


def _interrupts(memory: MemoryFacts) -> list[str]:
    every = sorted({ns for row in memory.interrupt_ns for ns in row})
    ends = f"{every[0]}" if len(every) == 1 else f"{every[0]} to {every[-1]}"
    return [f"interrupts from CPU to CPU: {ends} ns, and up to a quantum"]
