"""Compares the machine a guest reports with the topology, and with what was predicted of it."""

from numalab.errors import TopologyMismatch, WorkloadFailed
from numalab.kernel.kernel_specs import KernelSpec
from numalab.results.run_files import RunFiles
from numalab.topology.model import Topology
from numalab.topology.observed.compare import Difference, compare_guest, format_differences
from numalab.topology.predict.prediction import predict
from numalab.topology.predict.rules import rules_for


def check_topology(
    topology: Topology, kernel: KernelSpec, files: RunFiles, *, reserved_mib: int, allow: bool
) -> tuple[Difference, ...]:
    """Compare what a guest left with the prediction for its kernel.

    `reserved_mib` is what the trace takes of the guest's memory. Raises TopologyMismatch that
    shows both sides, or, with `allow`, returns the differences; WorkloadFailed where the
    guest did not report its machine.
    """
    guest = files.guest_view
    if guest.kernel is None:
        raise WorkloadFailed("the guest left no kernel log; its job disk may be full")
    prediction = predict(
        topology,
        guest.kernel,
        construction=kernel.groups,
        vendor=guest.vendor or "amd",
    )
    differences = compare_guest(topology, prediction, guest, reserved_mib=reserved_mib)
    if differences and not allow:
        raise TopologyMismatch(
            f"the guest is not the machine that {topology.name} describes\n"
            + format_differences(differences)
        )
    return differences


def kernel_remarks(files: RunFiles) -> tuple[str, ...]:
    """Return a remark where the guest's kernel is newer than what the prediction knows."""
    kernel = files.guest_view.kernel
    remark = rules_for(kernel).remark if kernel is not None else ""
    return (remark,) if remark else ()
