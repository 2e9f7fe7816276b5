"""A synthetic study for the tests of reports: the shape of a real one, with invented figures."""

import random
import re
from dataclasses import replace
from typing import Literal

from numalab.analysis.measures.family import explain
from numalab.measure import Direction, MeasureInfo, MeasureKind, MeasureSource, SourceKind
from numalab.recording.marks import Mark
from numalab.report.claim_outcome import ClaimOutcome
from numalab.report.comparisons import compare_variants
from numalab.report.document import (
    CellReport,
    CellWorkload,
    PlacementFact,
    Provenance,
    Run,
    RunFindings,
    SchedDomains,
    VariantInfo,
)
from numalab.report.modes import RunMode
from numalab.report.settings import GuestSettings
from numalab.report.timeline import Span, Timeline
from numalab.results.manifest import RunStatus
from numalab.topology.sched_domains import CpuDomains, SchedDomain, SchedGroup
from numalab.topology.topology import CpuShape, Node, Topology
from support.findings_sample import findings, hostile_findings

HOSTILE = (
    "<script>alert(1)</script>",
    "</script><img src=x onerror=alert(2)>",
    '" onmouseover="alert(3)',
    "\u202egnp.exe\u2066",
    "\x1b[31mred\x07",
    "a\nb\tc\x00d",
    "{{ 7*7 }}${7*7}",
    "\ud800\ufffd&amp;<!--",
)

OWN = {
    "hog_cpu_time": MeasureInfo(
        "hog_cpu_time",
        "s",
        Direction.NONE,
        MeasureKind.TIMING,
        "What the hogs had of the CPUs.",
        (MeasureSource(SourceKind.WORKLOAD),),
    ),
    "cache_misses": MeasureInfo(
        "cache_misses",
        "events",
        Direction.LOWER,
        MeasureKind.TIMING,
        "Misses of the last-level cache.",
        (MeasureSource(SourceKind.PERF),),
    ),
}
VALUES: dict[str, tuple[tuple[float | None, ...], tuple[float | None, ...]]] = {
    "idle_while_overloaded": ((99.84, 99.85, 99.81), (0.72, 0.94, 1.21)),
    "task_time_share_node0": ((0, 0, 0), (0, 0, 0)),
    "task_time_share_node1": ((99.6, 99.7, 99.7), (49.9, 49.7, 50.2)),
    "task_time_share_node2": ((0, 0, 0), (0, 0, 0)),
    "task_time_share_node3": ((0, 0, 0), (49.6, 49.9, 49.3)),
    "task_migrations_node1_node3": ((0, 0, 0), (4, 5, 6)),
    "hog_cpu_time": ((5.012, 5.013, 5.011), (5.009, 5.012, 5.010)),
    "sched_move_numa": ((0, 0, 0), (4, 6, 11)),
    "sched_stick_numa": ((1555, 1611, 1409), (16, 12, 9)),
    "sched_swap_numa": ((0, 0, 0), (0, 1, 0)),
    "vmstat_numa_pages_migrated": ((0, 0, 0), (138981, 121639, 117142)),
    "cache_misses": ((None, None, None), (None, None, None)),
}
SEEDS = (1, 2, 3)
KEY_MEASURES = ("idle_while_overloaded", "task_time_share_node3", "sched_stick_numa")


def ring() -> Topology:
    nodes = tuple(Node(id=n, cpus=(2 * n, 2 * n + 1), memory_mib=512) for n in range(4))
    far = ((10, 20, 30, 20), (20, 10, 20, 30), (30, 20, 10, 20), (20, 30, 20, 10))
    return Topology(
        name="ring-4",
        summary="Four nodes in a ring; the far node is two hops away",
        source="[RFC 2/3] sched/topology: fix sched groups on NUMA machines with mesh topology",
        nodes=nodes,
        distances=far,
        cpu_shape=CpuShape(sockets=4, dies=1, cores=2, threads=1),
        llc="die",
    )


def domains(variant: Literal["before", "after"]) -> SchedDomains:
    """Group construction from the first CPU's perspective (before) or from each CPU's (after)."""

    def cpus(*nodes: int) -> tuple[int, ...]:
        return tuple(sorted(cpu for node in nodes for cpu in (2 * node, 2 * node + 1)))

    def group(span: tuple[int, ...], mask: tuple[int, ...]) -> SchedGroup:
        return SchedGroup(span=span, mask=mask, capacity=1024 * len(span))

    per_cpu = []
    for cpu in range(8):
        node = cpu // 2
        near = cpus((node - 1) % 4, node, (node + 1) % 4)
        old = (2, 0) if node == 2 else (0, 2)
        centres = (node, (node + 2) % 4) if variant == "after" else old
        alone = tuple(group((member,), (member,)) for member in (cpu, cpu ^ 1))
        wide = [
            group(cpus((centre - 1) % 4, centre, (centre + 1) % 4), cpus(centre))
            for centre in centres
        ]
        per_cpu.append(
            CpuDomains(
                cpu=cpu,
                domains=(
                    SchedDomain(0, "MC", cpus(node), ("SD_SHARE_LLC",), alone),
                    SchedDomain(1, "NUMA", near, ("SD_NUMA",), (group(near, near),)),
                    SchedDomain(2, "NUMA", cpus(0, 1, 2, 3), ("SD_NUMA",), tuple(wide)),
                ),
            )
        )
    return SchedDomains(variant=variant, cpus=tuple(per_cpu))


def timeline(variant: Literal["before", "after"], seed: int = 1) -> Timeline:
    """Eight hogs in slices of about 4 ms, on node 1 only or spread over nodes 1 and 3."""
    chance = random.Random(seed)
    length = 5000.0
    spans = []
    for cpu in (2, 3, 6, 7) if variant == "after" else (2, 3):
        mine = [hog for hog in range(8) if hog % 2 == cpu % 2]
        if variant == "after":
            mine = mine[:2] if cpu < 4 else mine[2:]
        now, turn = (0.0, 0) if cpu < 4 else (120.0 + 40 * (cpu - 6), 0)
        while now < length:
            end = min(length, now + chance.uniform(2.5, 5.5))
            spans.append(Span(cpu, cpu // 2, now, end, f"hog/{mine[turn % len(mine)]}", True))
            now, turn = end + 0.004, turn + 1
    for cpu in (0, 4):
        for _ in range(40):
            start = chance.uniform(0, length - 3)
            spans.append(Span(cpu, cpu // 2, start, start + 2, "kworker/0:1", False))
    marks = (Mark(100.0, "hogs allowed on nodes 1 and 3"),)
    return Timeline(variant, f"{variant}-s{seed}", length, tuple(spans), marks)


def info(name: str) -> MeasureInfo:
    return OWN.get(name) or explain(name)


def run(variant: str, seed: int) -> Run:
    side, place = ("before", "after").index(variant), SEEDS.index(seed)
    measures = {name: VALUES[name][side][place] for name in VALUES}
    proof = (
        PlacementFact("vCPU threads (1)", "host CPU 1", "host CPU 1"),
        PlacementFact("guest memory", "2048 MiB shared memfd", "2048 MiB shared memfd"),
    )
    return Run(
        id=f"{variant}-s{seed}",
        variant=variant,
        seed=seed,
        status=RunStatus.OK,
        measures=measures,
        seconds=21.4 + seed / 10,
        provenance=Provenance(
            qemu="7.2.19 (Debian 1:7.2+dfsg-7)",
            libvirt="9.0.0",
            host="Xeon, 2 CPUs, 1 node, Linux 6.1.0-37-amd64",
            image="base",
            image_digest="sha256:5ad1e2f0c8b7",
            placement="1 vCPU thread for 8 vCPUs (icount), read back as pinned to host CPU 1",
            events=104211 + seed,
            lost_events=0,
            proof=proof,
        ),
    )


def sample_report() -> CellReport:
    variants = (
        VariantInfo(
            name="before",
            kernel="v6.12-old-groups",
            release="6.12.48-old-groups",
            config_hash="9c1f03aa52d1",
            source_version="linux-source-6.12 6.12.48-1~bpo12+1",
            series=("old-group-construction: 0001-sched-topology-build-groups-once.patch",),
            compiler="gcc 12.2.0",
            summary="6.12 with groups built from the first CPU's perspective",
        ),
        VariantInfo(
            name="after",
            kernel="v6.12",
            release="6.12.48",
            config_hash="9c1f03aa52d1",
            source_version="linux-source-6.12 6.12.48-1~bpo12+1",
            compiler="gcc 12.2.0",
            summary="6.12 as Debian ships it",
        ),
    )
    return CellReport(
        study="group-construction",
        question="Can the scheduler move tasks between nodes 1 and 3 of a four-node ring?",
        verdict="Before, node 3 stays unused in all 3 runs; after, all four allowed CPUs are busy.",
        reference="[RFC 2/3] sched/topology: fix sched groups on NUMA machines with mesh topology, "
        "Lauro Ramos Venancio, 2017-04-13",
        axis="kernel",
        mode=RunMode("icount", "KVM did not boot a guest within 10 s"),
        workload=CellWorkload(
            "bound-hogs",
            "bound-hogs",
            "bound-hogs hogs=8 start=1 allowed=1,3 seconds=5",
            {"hogs": 8, "start": 1, "allowed": "1,3", "seconds": 5},
        ),
        created="2026-11-21 12:00 UTC",
        commands=(
            "numalab run studies/group-construction.toml",
            "numalab report reports/group-construction/1",
        ),
        topology=ring(),
        variants=variants,
        measures=tuple(info(name) for name in VALUES),
        key_measures=KEY_MEASURES,
        runs=tuple(run(variant, seed) for seed in SEEDS for variant in ("before", "after")),
        comparisons=compare_variants(
            [info(name) for name in VALUES],
            KEY_MEASURES,
            {
                variant.name: {name: values[side] for name, values in VALUES.items()}
                for side, variant in enumerate(variants)
            },
        ),
        sched_domains=(domains("before"), domains("after")),
        timelines=(timeline("before"), timeline("after")),
        findings=tuple(
            RunFindings(variant, f"{variant}-s{seed}", findings(variant, seed))
            for variant in ("before", "after")
            for seed in SEEDS
        ),
        cell="ring-4, bound-hogs",
        claims=(
            ClaimOutcome("before leaves node 3 unused", "0 % in all seeds", "0 % in 3 of 3", True),
            ClaimOutcome("after uses all four CPUs", "> 80 % on each", "98.9 % or more", True),
        ),
    )


def thread_cells() -> tuple[CellReport, ...]:
    """A study over numbers of threads: a metric, a latency, times, perf's and the kernel's counts.

    The means are those of the table of "[RFC 2/3] sched/topology: fix sched groups ...".
    """
    means = {1: (22801, 27059), 8: (146008, 209193), 32: (351030, 522445), 48: (365835, 594905)}
    return tuple(_thread_cell(threads, *pair) for threads, pair in means.items())


def _thread_cell(threads: int, before: float, after: float) -> CellReport:
    report = sample_report()
    metric = MeasureInfo(
        "throughput",
        "ops/s",
        Direction.HIGHER,
        MeasureKind.TIMING,
        "What it printed.",
        (MeasureSource(SourceKind.WORKLOAD, "warehouse"),),
    )
    perf = replace(
        explain("perf_context_switches"), sources=(MeasureSource(SourceKind.PERF, "cs"),)
    )
    latency = MeasureInfo(
        "wakeup_p99_5",
        "us",
        Direction.LOWER,
        MeasureKind.TIMING,
        "What it printed.",
        (MeasureSource(SourceKind.WORKLOAD, "warehouse"),),
    )
    times = tuple(explain(name) for name in ("elapsed_time", "user_time", "system_time"))
    measures = (metric, latency, *times, perf, explain("vmstat_numa_hint_faults"))
    steps = (0.99, 1.0, 1.01)
    sides: dict[str, dict[str, list[float]]] = {
        name: {
            "throughput": [mean * step for step in steps],
            "wakeup_p99_5": [1e6 / mean * step for step in steps],
            "elapsed_time": [60 * step for step in steps],
            "user_time": [threads * 50 * step for step in steps],
            "system_time": [threads * step for step in steps],
            "perf_context_switches": [196000 * step for step in steps],
            "vmstat_numa_hint_faults": [1000 * threads, 1000 * threads + 1, 1000 * threads + 2],
        }
        for name, mean in (("before", before), ("after", after))
    }
    runs = tuple(
        replace(
            run_,
            measures={
                name: values[SEEDS.index(run_.seed)] for name, values in sides[run_.variant].items()
            },
        )
        for run_ in report.runs
    )
    claim = ClaimOutcome(
        text="the patch speeds it up", expected="from before to after: higher", holds=True,
        measured="22801 to 27059 ops/s (+18.7%), 3 and 3 runs", measure="throughput",
        kind="timing", published="+19%", required=False,
        verdict="cannot be seen", reason="icount counts instructions",
    )  # fmt: skip
    return replace(
        report,
        measures=measures,
        key_measures=("throughput",),
        runs=runs,
        comparisons=compare_variants(measures, ("throughput",), sides),
        sched_domains=(),
        timelines=(),
        findings=(),
        claims=(claim,),
        workload=CellWorkload(
            "warehouse",
            f"warehouse-{threads}",
            f"warehouse threads={threads}",
            {"threads": threads, "seconds": 10},
        ),
        cell=f"ring-4, warehouse-{threads}",
    )


def hostile_report() -> CellReport:
    """The sample with hostile texts in every place that a guest or a file can fill."""
    report = sample_report()
    line = report.timelines[0]
    spans = tuple(
        replace(span, task=HOSTILE[place % len(HOSTILE)]) for place, span in enumerate(line.spans)
    )
    nasty = HOSTILE[0] + HOSTILE[3]
    first = report.runs[0]
    return replace(
        report,
        study=HOSTILE[0],
        question=HOSTILE[1] + HOSTILE[3],
        verdict=HOSTILE[2],
        variants=(
            replace(report.variants[0], release=nasty, series=HOSTILE, tunables=HOSTILE),
            report.variants[1],
        ),
        settings=GuestSettings(HOSTILE, HOSTILE, HOSTILE[0]),
        runs=(
            replace(
                first,
                status=RunStatus.FAILED,
                reason=HOSTILE[1],
                notes=HOSTILE,
                provenance=replace(
                    first.provenance, host=HOSTILE[7], proof=(PlacementFact(*HOSTILE[:3]),)
                ),
            ),
            *report.runs[1:],
        ),
        sched_domains=(
            replace(report.sched_domains[0], errors=HOSTILE),
            report.sched_domains[1],
        ),
        timelines=(
            replace(line, spans=spans, marks=(Mark(10.0, HOSTILE[1]),)),
            report.timelines[1],
        ),
        claims=(ClaimOutcome(HOSTILE[0], HOSTILE[1], HOSTILE[2], False, published=HOSTILE[1]),),
        remarks=HOSTILE,
        findings=tuple(
            replace(run, findings=hostile_findings(run.findings, HOSTILE))
            for run in report.findings
        ),
    )


def report_with_details() -> CellReport:
    """Return the sample with two claims whose verdicts have a detail."""
    undecided = ClaimOutcome(
        "less time", "lower", "3 to 2", True, verdict="inconclusive",
        detail="53 seeds would decide", required=False,
    )  # fmt: skip
    smaller = replace(undecided, verdict="direction only", detail="smaller")
    return replace(sample_report(), claims=(undecided, smaller))


def assert_details(text: str) -> None:
    """Assert that a text for the terminal has the details of `report_with_details`."""
    assert all(len(line) <= 100 for line in text.splitlines())
    assert re.search(r"inconclusive\b.*\(53 .*seeds .*would .*decide\)", " ".join(text.split()))
    assert "direction only" in text and "(smaller)" in text
