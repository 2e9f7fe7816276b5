"""The memory model of mode timed in lines of text, for the head of a report.

The values are those of the manifest, so a later change of a file or default does not affect them.
"""

from collections.abc import Callable, Sequence
from statistics import fmean

from numalab.results.manifest import Manifest, MemoryFacts
from numalab.results.reader import StoredRun, of_variant
from numalab.topology.memory.costs import MemoryModel, expected_copy_mb_s
from numalab.topology.memory.timing import memory_model
from numalab.topology.topology import Topology
from numalab.topology.view.terminal import matrix_lines, private_caches

AT_ONCE = 6  # columns of two figures that a terminal has room for
Expected = Callable[[int, int], float]  # from a node's CPUs to a node's memory


def model_lines(run: Manifest) -> tuple[str, ...]:
    """Return the model's parameters in lines of text: clocks, caches, two matrices; none in other
    modes."""
    if run.memory is None:
        return ()
    memory = run.memory
    quantum = 0 if run.quantum_ns is None else run.quantum_ns
    return (
        f"an instruction in {_instruction_ns(run)} ns, each vCPU {quantum / 1000:g} us before the "
        "others catch up",
        f"{private_caches(memory.l1.kib, memory.l2.kib, memory.l2.hit_ns)}; "
        f"{memory.llc_groups} last-level caches of {memory.llc.kib} KiB in {memory.llc.hit_ns} ns",
        *_matrix("latency [ns], from a node's CPUs (row) to a node's memory", memory.latency_ns),
        *_matrix("bandwidth [MB/s]", memory.bandwidth_mb_s),
        *_interrupts(memory),
    )


def _instruction_ns(run: Manifest) -> int:
    return 1 << (run.icount_shift or 0)


def measured_lines(runs: Sequence[StoredRun], topology: Topology) -> tuple[str, ...]:
    """Return the measured latency and bandwidth of each pair of nodes beside the model's, as text,
    and below them what a load took beside other readers.

    The figures are means of the runs of each variant; nothing without such measures. No bandwidth
    is expected where this numalab builds another model than the runs had.
    """
    if not runs or (memory := runs[0].manifest.memory) is None:
        return ()
    instruction_ns = _instruction_ns(runs[0].manifest)
    model = memory_model(topology)
    same = _is_of(memory, model)

    def chase(near: int, far: int) -> float:
        return memory.latency_ns[near][far]

    def copy(near: int, far: int) -> float:
        return expected_copy_mb_s(model, near, far, 1, instruction_ns)

    def copy_all(near: int, far: int) -> float:
        threads = len(topology.nodes[near].cpus)
        return expected_copy_mb_s(model, near, far, threads, instruction_ns)

    of_all = "a copy by all threads of a node [MB/s]"
    lines: list[str] = []
    for variant in dict.fromkeys(run.manifest.variant for run in runs):
        of = of_variant(runs, variant)
        for metric, what, expected in (
            ("chase_ns", "a chase of pointers [ns]", chase),
            ("copy_rate", "a copy by one thread [MB/s]", copy if same else None),
            ("copy_rate_all", of_all, copy_all if same else None),
        ):
            lines += _pairs(of, len(topology.nodes), metric, what, expected)
        lines += _under_load(of)
    return tuple(lines)


def _is_of(memory: MemoryFacts, model: MemoryModel) -> bool:
    """Return whether the values of a run's manifest fit this model."""
    nodes = range(len(memory.latency_ns))
    return memory.latency_ns == model.latency_ns and all(
        memory.bandwidth_mb_s[near][far] == round(model.bandwidth_mb_s(near, far), 1)
        for near in nodes
        for far in nodes
    )


def _pairs(
    runs: Sequence[StoredRun],
    count_of_nodes: int,
    metric: str,
    what: str,
    expected: Expected | None,
) -> list[str]:
    """Lay out one metric of all measured pairs as `expected / measured`."""
    nodes = range(count_of_nodes)

    differences: list[float] = []

    def cell(near: int, far: int) -> str:
        value = _mean(runs, f"{metric}_{near}-{far}")
        if value is None:
            return ""
        if expected is None:
            return f"{value:.1f}"
        differences.append(value / expected(near, far) - 1)
        return f"{expected(near, far):.0f} / {value:.1f}"

    cells = [[cell(near, far) for far in nodes] for near in nodes]
    if not any(map(any, cells)):
        return []
    title = "expected / measured" if expected else "measured"
    largest = (
        f"; largest difference {max(differences, key=abs):+.1%}".replace("%", " %")
        if differences
        else ""
    )
    return matrix_lines(f"{what}, {title}: {_of(runs)}{largest}", nodes, cells, at_once=AT_ONCE)


def _under_load(runs: Sequence[StoredRun]) -> list[str]:
    """Lay out the latencies of `loaded-latency`, from the least to the most bandwidth."""
    idle = _mean(runs, "idle_ns")
    names = dict.fromkeys(name for run in runs for name in run.measures)
    points = sorted(
        (rate, ns)
        for name in names
        if name.startswith("loaded_ns_")
        and (ns := _mean(runs, name)) is not None
        and (rate := _mean(runs, name.replace("_ns_", "_rate_"))) is not None
    )
    if idle is None or not points:
        return []
    rows = {
        "MB/s": [f"{rate:.0f}" for rate, _ in points],
        "ns": [f"{ns:.1f}" for _, ns in points],
        "/ idle": [f"{ns / idle:.2f}" for _, ns in points],
    }
    width = max(len(text) for row in rows.values() for text in row) + 1
    return [
        f"a load while other CPUs read, {idle:.1f} ns without: {_of(runs)}",
        *(
            f"  {unit:>6}:" + "".join(f"{text:>{width}}" for text in row)
            for unit, row in rows.items()
        ),
    ]


def _mean(runs: Sequence[StoredRun], name: str) -> float | None:
    recorded = [run.measures[name].value for run in runs if name in run.measures]
    values = [value for value in recorded if value is not None]
    return fmean(values) if values else None


def _of(runs: Sequence[StoredRun]) -> str:
    count = "1 run" if len(runs) == 1 else f"the mean of {len(runs)} runs"
    return f"{runs[0].manifest.variant}, {count}"


def _matrix(title: str, cells: Sequence[Sequence[float]]) -> list[str]:
    texts = [[f"{cell:.0f}" for cell in row] for row in cells]
    return matrix_lines(title, range(len(texts)), texts)


def _interrupts(memory: MemoryFacts) -> list[str]:
    every = sorted({ns for row in memory.interrupt_ns for ns in row})
    ends = f"{every[0]}" if len(every) == 1 else f"{every[0]} to {every[-1]}"
    return [f"interrupts from CPU to CPU: {ends} ns, and up to a quantum"]
