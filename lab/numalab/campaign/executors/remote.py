"""The worker side of a cluster: describes its host, receives files, executes runs.

These functions run in the worker's process. Their arguments are plain values and paths below the
worker's own cache, never paths of the submitting host.
"""

import platform
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path

from numalab.artifact.digest import hash_file
from numalab.campaign.build import Setting
from numalab.campaign.executors.assign import WorkerHost
from numalab.campaign.run_task import describe_host as host_facts
from numalab.campaign.run_task import run_task
from numalab.campaign.task import Ended, Execute, Task
from numalab.errors import LabError
from numalab.guest.verdicts import unusable_device
from numalab.host.read import total_mib
from numalab.limits.cgroup import usable_cpus
from numalab.places import cache_dir
from numalab.plugins import loaded_plugins
from numalab.process import version_line
from numalab.results.archive import pack_folder
from numalab.results.layout import Results
from numalab.scratch import scratch_folder


@dataclass(frozen=True)
class Shipped:
    """An input file of a run: its role, and the SHA-256 of its content."""

    role: str
    sha256: str


@dataclass(frozen=True)
class Delivered:
    """A run that has ended, with its packed folder; the worker chose the name `folder`."""

    ended: Ended
    folder: str
    data: bytes


def describe_host() -> WorkerHost:
    """Return a description of this worker's host; `error` is why it can run no guests."""
    about = host_facts()
    boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    kind = f"{about.processor}, {about.cpus} CPUs, Linux {about.kernel}"
    qemu, error = "", ""
    try:
        qemu = version_line("qemu-system-x86_64", "qemu-system-x86")
    except LabError as lacking:
        error = str(lacking)
    return WorkerHost(
        name=f"{platform.node()}/{boot}/{cache_dir()}",
        kind=kind,
        cpus=usable_cpus(),
        memory_mib=total_mib(),
        kvm=not unusable_device(),
        qemu=qemu,
        numalab=f"{version('numalab')}, Python {platform.python_version()}",
        error=error,
        plugins=loaded_plugins(),
    )


def _place(sha256: str) -> Path:
    return cache_dir("shipped") / sha256


def has_file(sha256: str) -> bool:
    """Return whether this host has the file; its digest was checked on arrival."""
    return _place(sha256).exists()


def take_chunk(sha256: str, sender: str, data: bytes, *, last: bool) -> str:
    """Append a part of a file; check and store the file after the last part.

    Returns the error, or an empty text. Two senders may send the same file at the same time.
    """
    partial = cache_dir("shipped") / f".{sha256}.{sender}"
    with partial.open("ab") as file:
        file.write(data)
    if not last:
        return ""
    digest = hash_file(partial)
    if digest != sha256:
        partial.unlink()
        return f"arrived as {digest[:12]}, not {sha256[:12]}"
    partial.rename(_place(sha256))
    return ""


def execute_here(
    task: Task,
    files: tuple[Shipped, ...],
    execute: Execute = run_task,
    on_phase: Callable[[str], None] | None = None,
) -> Delivered:
    """Execute a run with shipped files; return its packed folder."""
    places = {file.role: _place(file.sha256) for file in files}
    with scratch_folder(cache_dir("remote"), "run-") as scratch:
        results = Results(scratch)
        local = _with_files(replace(task, results=results), places)
        ended = execute(local, on_phase or (lambda text: None))
        for path in (results.run(task.run.id).path, results.failed(task.run.id).path):
            if path.is_dir():
                return Delivered(ended, path.name, pack_folder(path))
        return Delivered(ended, "", b"")


def _with_files(task: Task, places: Mapping[str, Path]) -> Task:
    built = replace(
        task.built, bzimage=places["bzimage"], initrd=places.get("initrd", task.built.initrd)
    )
    return replace(
        task, built=built, rootfs=places["rootfs"], setting=_with_emulator(task.setting, places)
    )


def _with_emulator(setting: Setting, places: Mapping[str, Path]) -> Setting:
    emulator = setting.choice.emulator
    if emulator is None:
        return setting
    program = places["emulator"]
    program.chmod(0o755)
    choice = replace(setting.choice, emulator=replace(emulator, program=program))
    return replace(setting, choice=choice)
