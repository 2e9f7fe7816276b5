"""The guest that a study boots of a topology, as far as the study file decides it."""

from collections.abc import Mapping
from pathlib import Path

from numalab.analysis.measures.catalogue import explain
from numalab.errors import UserError
from numalab.machine.model import Machine
from numalab.measure import MeasureKind
from numalab.study.model import Study
from numalab.topology.model import Topology


def check_guests(study: Study, topologies: Mapping[str, Topology], path: Path) -> None:
    """Refuse a topology that no guest can have, or that the table `machine` does not fit.

    Raises UserError that names the study's file.
    """
    for name, topology in topologies.items():
        for use in study.workloads:
            key = "machine" if use.guest.pages is None else f"workloads.{use.label}.guest"
            try:
                guest_of(study, topology, use.label)
            except UserError as error:
                raise UserError(f"{name}: {error}", file=path, key=key) from None


def guest_of(study: Study, topology: Topology, label: str) -> Machine:
    """Return a study's guest of one topology for the use of a workload with this label.

    Kernel, root, mode and seed are still to be set.
    """
    own = study.guest(label)
    return Machine(
        topology=topology,
        bzimage=Path(),
        rootfs=Path(),
        mode="icount",
        seed=0,
        name="guest",
        pages=own.pages or study.machine.pages,
        quantum_ns=study.machine.quantum_ns,
        icount_shift=ns.bit_length() - 1 if (ns := study.machine.instruction_ns) else None,
        slow_motion=study.machine.slow_motion,
        vcpu_cpus=study.machine.vcpu_cpus,
        host_nodes=study.machine.nodes,
        extra_cmdline=study.machine.cmdline + own.cmdline,
        measures_time=measures_time(study),
    )


def tunables_of(study: Study, variant: str, label: str) -> dict[str, str | int]:
    """Return what is written before the command of a variant and a use of a workload."""
    return study.variants[variant].tunables | study.guest(label).tunables


def measures_time(study: Study) -> bool:
    """Say whether some claim or key measure is about time; what a workload prints is taken so."""
    for name in {*study.key_measures, *(claim.measure for claim in study.claims)}:
        try:
            if explain(name).kind == MeasureKind.TIMING:
                return True
        except UserError:  # a metric of the workload
            return True
    return False
