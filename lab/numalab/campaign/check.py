"""Checks that a guest is the machine of its topology. Without tables: `boot` starts fast."""

from collections.abc import Sequence

from numalab.errors import TopologyMismatch, WorkloadFailed
from numalab.kernel.kernel_specs import KernelSpec
from numalab.topology.differences import Difference, compare_guest, format_differences
from numalab.topology.guest_view import GuestView
from numalab.topology.predict.prediction import DEFAULT_KERNEL, Prediction, predict
from numalab.topology.predict.rules import rules_for
from numalab.topology.topology import Topology

# Documentation/admin-guide/kernel-parameters.txt of 6.12: the kernel then starts fewer CPUs.
_FEWER_CPUS = ("nosmp", "maxcpus", "nr_cpus", "possible_cpus")


def check_topology(
    topology: Topology,
    kernel: KernelSpec,
    guest: GuestView,
    *,
    reserved_mib: int,
    allow: bool,
    qemu: tuple[int, ...] = (),
    cmdline: Sequence[str] = (),
) -> tuple[Difference, ...]:
    """Compare the machine that the guest reports with the prediction for its kernel.

    `reserved_mib` is the guest memory reserved for the trace, `qemu` the version as for `predict`.
    Raises TopologyMismatch that shows both sides, or, with `allow`, returns the differences;
    WorkloadFailed where the guest did not report its kernel. Nothing is compared where `cmdline`
    asks for fewer CPUs (`kernel_remarks` says so).
    """
    if guest.kernel is None:
        raise WorkloadFailed(
            "the guest left no kernel log: its job disk may be full of what the command printed"
        )
    if _asks_for_fewer(cmdline, topology):
        return ()
    prediction = predicted(topology, kernel, guest, qemu)
    differences = compare_guest(topology, prediction, guest, reserved_mib=reserved_mib)
    if differences and not allow:
        raise TopologyMismatch(
            f"the guest is not the machine that {topology.name} describes\n"
            + format_differences(differences)
        )
    return differences


def predicted(
    topology: Topology, kernel: KernelSpec, guest: GuestView, qemu: tuple[int, ...] = ()
) -> Prediction:
    """Return the prediction for the kernel, the CPUs and the QEMU of a guest."""
    return predict(
        topology,
        guest.kernel or DEFAULT_KERNEL,
        construction=kernel.groups,
        vendor=guest.vendor or "amd",
        qemu=qemu,
    )


def kernel_remarks(
    guest: GuestView, topology: Topology, cmdline: Sequence[str] = ()
) -> tuple[str, ...]:
    """Return remarks: there are no rules for so new a kernel; it was told to start fewer CPUs."""
    remark = rules_for(guest.kernel).remark if guest.kernel is not None else ""
    remarks = [remark] if remark else []
    if word := _asks_for_fewer(cmdline, topology):
        remarks.append(
            f"{word}: the guest was not compared with the prediction, and its measures take the"
            " CPUs that it lacks for idle"
        )
    return tuple(remarks)


def _asks_for_fewer(cmdline: Sequence[str], topology: Topology) -> str:
    """Return the word that asks for fewer CPUs than the machine has; "" for none."""
    for word in cmdline:
        name, _, value = word.partition("=")
        number = int(value) if value.isascii() and value.isdecimal() else 0
        if name in _FEWER_CPUS and number < topology.cpu_count:
            return word
    return ""
