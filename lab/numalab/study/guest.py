"""The guest of a study: the settings of the study file applied to a topology."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from numalab.analysis.measures.family import explain
from numalab.capture.spec import CaptureSpec
from numalab.cpulist import format_cpulist
from numalab.errors import UserError
from numalab.machine.memory import trace_region
from numalab.machine.model import Machine
from numalab.measure import MeasureKind
from numalab.study.machine_table import GuestChange
from numalab.study.model import Study
from numalab.topology.topology import Topology, memory_first, renumbered
from numalab.workload.parameter_values import cpus_of_nodes
from numalab.workload.workload import BoundWorkload


def check_guests(study: Study, topologies: Mapping[str, Topology], path: Path) -> None:
    """Raise UserError for a topology that no guest can have with these settings."""
    for name, topology in topologies.items():
        for use in study.workloads:
            key = "machine" if use.guest.pages is None else f"workloads.{use.label}.guest"
            try:
                guest_of(study, topology, use.label)
            except UserError as error:
                raise UserError(f"{name}: {error}", file=path, key=key) from None


def guest_of(study: Study, topology: Topology, label: str) -> Machine:
    """Return the guest of one topology for the use of a workload with this label.

    The caller sets kernel, root, mode and seed.
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


def changed(
    bound: BoundWorkload, change: GuestChange, topology: Topology, path: Path, key: str
) -> BoundWorkload:
    """Return a workload with the environment and the nodes of its guests.

    Raises UserError for nodes that the topology lacks or that have no CPUs, and for a workload that
    binds its tasks to CPUs outside of the nodes.
    """
    words = [f"{name}={value}" for name, value in change.env.items()]
    if words:
        bound = replace(bound, argv=("env", *words, *bound.argv))
    if change.nodes is None:
        return bound
    try:
        cpus = cpus_of_nodes(topology, change.nodes)
    except ValueError as error:
        raise UserError(str(error), file=path, key=f"{key}.nodes") from None
    allowed = tuple(cpu for cpu in bound.allowed_cpus if cpu in cpus)
    if allowed != bound.allowed_cpus and len(bound.allowed_cpus) < topology.cpu_count:
        reason = f"{bound.name} binds its tasks to CPUs outside of these nodes"
        raise UserError(reason, file=path, key=f"{key}.nodes")
    argv = ("taskset", "--cpu-list", format_cpulist(cpus), *bound.argv)
    return replace(bound, argv=argv, allowed_cpus=allowed)


def tunables_of(study: Study, variant: str, label: str) -> dict[str, str | int]:
    """Return the tunables of a variant and a use of a workload."""
    return study.variants[variant].tunables | study.guest(label).tunables


def measures_time(study: Study) -> bool:
    """Return whether a claim or key measure is about time; metrics of workloads count as time."""
    for name in {*study.key_measures, *(claim.measure for claim in study.claims)}:
        try:
            if explain(name).kind == MeasureKind.TIMING:
                return True
        except UserError:  # a metric of the workload
            return True
    return False


def check_buffer(capture: CaptureSpec, topologies: Mapping[str, Topology], path: Path) -> None:
    """Raise UserError for a trace buffer for which the first node of a machine has no room."""
    for name, topology in topologies.items():
        try:
            trace_region(renumbered(topology, memory_first(topology)), capture.buffer_mib)
        except UserError as error:
            reason = f"{name}: {error.message}"
            raise UserError(reason, file=path, key="capture.buffer_mib") from None
