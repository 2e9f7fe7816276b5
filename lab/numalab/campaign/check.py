"""Compares the machine a guest reports with the topology, and with what was predicted of it."""

from pathlib import Path

from numalab.errors import TopologyMismatch, WorkloadFailed
from numalab.files import left_by_guest
from numalab.kernel.catalogue import KernelSpec
from numalab.run_dir import RunDir
from numalab.topology.model import Topology
from numalab.topology.observed.compare import compare_guest, format_differences
from numalab.topology.observed.guest import parse_guest_view
from numalab.topology.predict.prediction import predict


def check_topology(
    topology: Topology,
    kernel: KernelSpec,
    directory: RunDir,
    *,
    reserved_mib: int,
    allow: bool,
) -> tuple[str, ...]:
    """Compare what a guest left in `directory` with the prediction for its kernel.

    `reserved_mib` is what the trace takes of the guest's memory. Raises TopologyMismatch that
    shows both sides, or, with `allow`, returns the differences in words.
    """
    guest = parse_guest_view(
        {
            str(path.relative_to(directory.sysfs)): _text(path)
            for path in sorted(directory.sysfs.glob("node*/*"))
        },
        _text(directory.sched_domains),
        _text(directory.dmesg),
    )
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
    return tuple(f"{d.subject}: expected {d.expected}, found {d.found}" for d in differences)


def _text(path: Path) -> str:
    return left_by_guest(path).decode("utf-8", "replace")
