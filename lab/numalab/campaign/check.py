"""Checks that a guest is the machine of its topology. Without tables: `boot` starts fast."""

from collections.abc import Sequence

from numalab.cpulist import format_cpulist
from numalab.errors import TopologyMismatch, WorkloadFailed
from numalab.kernel.kernel_specs import KernelSpec
from numalab.topology.differences import Difference, compare_guest, format_differences
from numalab.topology.guest_view import GuestView, at_boot
from numalab.topology.predict.prediction import DEFAULT_KERNEL, Prediction, predict
from numalab.topology.predict.rules import rules_for
from numalab.topology.topology import Topology

# Documentation/admin-guide/kernel-parameters.txt of 6.12: the kernel then starts fewer CPUs.
_FEWER_CPUS = ("nosmp", "maxcpus", "nr_cpus", "possible_cpus")
# Words that take CPUs, memory or flags from sched domains and nodes.
_OTHER_MACHINE = ("isolcpus", "mem", "memmap", "nosmt", "numa", "relax_domain_level")


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
    """Compare the machine of the guest's boot, as it reports it, with the kernel's prediction.

    `reserved_mib` is the guest memory reserved for the trace, `qemu` the version as for `predict`.
    Raises TopologyMismatch that shows both sides, or, with `allow`, returns the differences;
    WorkloadFailed where the guest left no kernel log. Nothing is compared where `cmdline` asks for
    fewer CPUs, or the log's beginning is lost (`kernel_remarks` says so).
    """
    if guest.kernel is None and not guest.cut:
        raise WorkloadFailed("the guest left no kernel log")
    if guest.kernel is None or _asks_for_fewer(cmdline, topology):
        return ()
    prediction = predicted(topology, kernel, guest, qemu)
    differences = compare_guest(topology, prediction, at_boot(guest), reserved_mib=reserved_mib)
    if differences and not allow:
        reason = f"the guest is not the machine that {topology.name} describes"
        if words := [word for word in cmdline if word.partition("=")[0] in _OTHER_MACHINE]:
            reason += f"; {' '.join(words)} may be why (`boot` and `run` take --allow-mismatch)"
        raise TopologyMismatch(f"{reason}\n{format_differences(differences)}")
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
    """Return remarks: a kernel that is too new, CPUs that are left out or went off, a lost log.

    Also words of `cmdline` that the kernel does not know.
    """
    remark = rules_for(guest.kernel).remark if guest.kernel is not None else ""
    remarks = [remark] if remark else []
    if word := _asks_for_fewer(cmdline, topology):
        remarks.append(
            f"{word}: the guest was not compared with the prediction, and its measures take the"
            " CPUs that it lacks for idle"
        )
    listed = f" {guest.unknown_words} "
    if unknown := [word for word in _own_words(cmdline) if f" {word} " in listed]:
        remarks.append(
            f"the kernel does not know {', '.join(unknown)}: it gave this to init (dmesg.txt)"
        )
    if guest.cut:
        what = "the guest was" if guest.kernel is None else "sched domains were"
        remarks.append(
            "the beginning of dmesg.txt is lost, as the kernel printed more than its log holds, or"
            f" the command cleared it: {what} not compared with the prediction"
        )
    if guest.offline:
        cpus = f"CPU{'s' * (len(guest.offline) > 1)} {format_cpulist(sorted(guest.offline))}"
        remarks.append(f"{cpus} went off line after the boot: measures take that for idle time")
    return tuple(remarks)


def _own_words(cmdline: Sequence[str]) -> tuple[str, ...]:
    """Return the words before `--`, without quotes, as the kernel prints them."""
    words = cmdline[: cmdline.index("--")] if "--" in cmdline else cmdline
    return tuple(dict.fromkeys(word.replace('"', "") for word in words))


def _asks_for_fewer(cmdline: Sequence[str], topology: Topology) -> str:
    """Return the word that asks for fewer CPUs than the machine has; "" for none."""
    for word in cmdline:
        name, _, value = word.partition("=")
        number = int(value) if value.isascii() and value.isdecimal() else 0
        if name in _FEWER_CPUS and number < topology.cpu_count:
            return word
    return ""
