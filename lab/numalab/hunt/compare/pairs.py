"""Findings about two boots of one case and seed: of a kernel, and of its reference kernel."""

from collections.abc import Sequence
from dataclasses import replace

from numalab.errors import UserError
from numalab.hunt.boot_case import HuntBench
from numalab.hunt.compare.facts import differing_facts
from numalab.hunt.finding import BootResult, Finding
from numalab.hunt.property import FACTS
from numalab.hunt.workers import Boot, CaseWorkers
from numalab.kernel.kernel_specs import other_configurations


def with_differences(result: BootResult, reference: BootResult) -> BootResult:
    """Return a boot with a finding on the facts that are not those of the reference kernel's boot.

    The value is the number of facts that differ, 0 for two boots of one kernel. A boot without
    facts, or one that failed, gets no finding.
    """
    if result.error or not (result.facts and reference.facts):
        return result
    differences = differing_facts(result.facts, reference.facts)
    text = "as the reference kernel has them"
    if differences:
        first = differences[0]
        more = f"; {len(differences) - 1} more differences" if len(differences) > 1 else ""
        text = f"{first.subject}: {first.actual}, with the reference kernel {first.expected}{more}"
    finding = Finding(FACTS, None, float(len(differences)), 0.0, text)
    return replace(result, findings=(*result.findings, finding))


def boot_beside(
    crew: CaseWorkers, boots: Sequence[Boot], prop: str, reference: HuntBench | None
) -> list[BootResult]:
    """Boot cases; for `topology-facts`, also on the reference kernel, to compare each boot."""
    results = crew.boot(boots)
    if reference is None or prop != FACTS:
        return results
    references = crew.boot([(case, reference, seed) for case, _, seed in boots])
    return list(map(with_differences, results, references))


def require_different(bench: HuntBench, reference: HuntBench) -> None:
    """Raise UserError for two kernels with the same bytes: no boot can tell them apart."""
    mine, theirs = (side.builds.kernels[side.kernel.name] for side in (bench, reference))
    if bench.kernel == reference.kernel and bench.scheduler == reference.scheduler:
        raise UserError(
            f"{bench.kernel.name} is compared with itself",
            key="--against",
            choices=("another kernel", "none"),
        )
    if mine.bzimage_sha256 == theirs.bzimage_sha256 and bench.scheduler == reference.scheduler:
        names = ", ".join(other_configurations(reference.kernel))
        raise UserError(
            f"{bench.kernel.name} and {reference.kernel.name} are the same kernel, byte for byte:"
            " the patch changes no code of this configuration"
            + (f"; other configurations of this source: {names}" if names else ""),
            key="--against",
            choices=("another kernel", "none"),
        )
