"""Loads a scheduler into kernels on machines, with a short load, and tells how each load ended."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from numalab.campaign.boot import boot_in, guest, run_folder
from numalab.campaign.build import build, choose_mode
from numalab.errors import BuildError, GuestLost, UserError
from numalab.image.recipe import chosen_recipe
from numalab.kernel.kernel_specs import KernelSpec
from numalab.machine.model import Machine
from numalab.progress import Progress, no_progress
from numalab.qemu.hypervisor import EMBED
from numalab.results.guest_output import guest_text_if_any
from numalab.results.run_files import RunFiles
from numalab.run_dir import RunDir
from numalab.scheduler.in_guest import (
    SchedulerInGuest,
    explain_end,
    parse_record,
    scheduler_in_guest,
)
from numalab.scheduler.scheduler_artifact import ensure_scheduler
from numalab.scheduler.scheduler_spec import SchedulerSpec
from numalab.scheduler.topology_view import (
    parse_view,
    predicted_view,
    view_differences,
    without_cpus,
)
from numalab.topology.topology import Topology

_TASKS_FOR_CPU = 2
# Tasks that compute and sleep in turn, so that all CPUs have tasks that wait and tasks that wake.
_LOAD = """
i=0
while [ $i -lt "$1" ]; do
    (n=0
     while [ $n -lt 5 ]; do
         m=0
         while [ $m -lt 500 ]; do m=$((m + 1)); done
         busybox sleep 0.02
         n=$((n + 1))
     done) &
    i=$((i + 1))
done
wait
"""
# Takes CPUs offline before the scheduler starts, and then runs the command.
_OFFLINE = """
for cpu in $0; do
    echo 0 >/sys/devices/system/cpu/cpu$cpu/online || exit 125
done
exec "$@"
"""


@dataclass(frozen=True)
class SchedulerCheck:
    """How a scheduler did with one kernel on one machine.

    `ops` is its name in the kernel, "" if it was not enabled. `reason` is why it failed, with the
    messages of scheduler and kernel, "" if it scheduled the load to its end. `differences` are
    those of the machine as it printed it from the prediction, None if it printed none.
    `guest_seconds` is the guest's time at the end.
    """

    topology: str
    kernel: str
    ops: str = ""
    reason: str = ""
    differences: tuple[str, ...] | None = None
    guest_seconds: float = 0.0

    @property
    def ok(self) -> bool:
        """Whether the scheduler was loaded and scheduled the load to its end."""
        return not self.reason

    @property
    def verdict(self) -> str:
        """The reason in one line."""
        return self.reason.partition("\n")[0] if self.reason else "loaded and scheduled the load"


def check_scheduler(
    spec: SchedulerSpec,
    kernels: Sequence[KernelSpec],
    topologies: Sequence[Topology],
    *,
    offline: Sequence[int] = (),
    mode: str = "auto",
    connection: str = EMBED,
    on_progress: Progress = no_progress,
) -> Iterator[SchedulerCheck]:
    """Yield how a scheduler does with each kernel on each machine, with some CPUs `offline`.

    A guest that is lost and a scheduler that does not build for a kernel are results as well.
    Raises UserError for a kernel without sched_ext and for CPUs that no machine can do without;
    HostError.
    """
    for topology in topologies:
        _check_offline(topology, offline)
    for kernel in kernels:
        builds = build([kernel], chosen_recipe("base", (), None), on_progress=on_progress)
        built = builds.kernels[kernel.name]
        try:
            scheduler = scheduler_in_guest(ensure_scheduler(spec, kernel, built, on_progress))
        except BuildError as error:
            for topology in topologies:
                yield SchedulerCheck(topology.name, kernel.name, reason=str(error))
            continue
        choice = choose_mode(mode, builds, connection, on_progress)
        for topology in topologies:
            on_progress(f"{kernel.name} on {topology.name}", None)
            machine = guest(topology, kernel.name, builds, choice)
            yield _checked(scheduler, kernel, machine, tuple(offline), connection)


def _check_offline(topology: Topology, offline: Sequence[int]) -> None:
    """Raise UserError for CPUs that cannot be taken offline."""
    if lacking := [cpu for cpu in offline if cpu >= topology.cpu_count]:
        reason = f"{topology.name} has no CPU {lacking[0]}"
    elif 0 in offline:
        reason = "CPU 0 stays online: x86 kernels since 6.5 cannot do without it"
    else:
        return
    raise UserError(reason, key="--offline")


def _checked(
    scheduler: SchedulerInGuest,
    kernel: KernelSpec,
    machine: Machine,
    offline: tuple[int, ...],
    connection: str,
) -> SchedulerCheck:
    topology = machine.topology
    tasks = str(_TASKS_FOR_CPU * topology.cpu_count)
    argv = scheduler.around(("sh", "-c", _LOAD, "load", tasks))
    if offline:
        argv = ("sh", "-c", _OFFLINE, " ".join(map(str, offline)), *argv)
    check = SchedulerCheck(topology.name, kernel.name)
    with run_folder(None) as directory:
        try:
            booted = boot_in(
                directory,
                machine,
                kernel,
                argv,
                connection=connection,
                files=scheduler.files,
                allow_mismatch=bool(offline),
            )
        except GuestLost as lost:
            reason = f"the guest was lost: {lost.reason}"
            return replace(check, reason=_with_messages(scheduler, directory, reason))
        files = RunFiles(directory)
        record = parse_record(files.scheduler)
        name = scheduler.scheduler.spec.name
        reason = explain_end(name, record, files.scheduler_log, files.dmesg)
        if not reason and booted.outcome.status:
            reason = f"the load exited with status {booted.outcome.status}"
        seconds = booted.outcome.guest_seconds
        view = parse_view(files.scheduler_log)
        differences = None
        if view is not None:
            vendor = files.guest_view.vendor or "amd"
            predicted = predicted_view(topology, machine.release, vendor)
            differences = view_differences(without_cpus(predicted, offline), view)
        return replace(
            check,
            ops=record.ops,
            reason=reason,
            differences=differences,
            guest_seconds=seconds,
        )


def _with_messages(scheduler: SchedulerInGuest, directory: RunDir, reason: str) -> str:
    """Return a reason with the messages of scheduler and kernel, if the guest left any."""
    files = RunFiles(directory)
    kernel_log = files.dmesg or guest_text_if_any(directory.console)
    name = scheduler.scheduler.spec.name
    why = explain_end(name, parse_record(files.scheduler), files.scheduler_log, kernel_log)
    return f"{reason}\n  | {why}"
