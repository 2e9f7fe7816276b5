"""One command in one guest: what `numalab boot` does."""

import shutil
import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from lab.errors import LabError, UserError
from lab.kernel.catalogue import KernelSpec
from lab.machine.console import Beat
from lab.machine.hypervisor import EMBED
from lab.machine.kvm import Choice
from lab.machine.machine import Job, Machine
from lab.machine.run import Outcome, run_guest
from lab.store import RunDir, cache_dir, left_by_guest
from lab.study.check import check_topology
from lab.study.prepare import Prepared
from lab.topology.model import Topology


@dataclass(frozen=True)
class Booted:
    """What the command printed (bytes, as it did) and how it ended."""

    stdout: bytes
    stderr: bytes
    outcome: Outcome
    differences: tuple[str, ...]
    kept: Path | None


def boot(
    topology: Topology,
    kernel: KernelSpec,
    prepared: Prepared,
    argv: tuple[str, ...],
    *,
    choice: Choice,
    seed: int,
    connection: str = EMBED,
    events: tuple[str, ...] = (),
    cmdline: tuple[str, ...] = (),
    keep: Path | None = None,
    allow_mismatch: bool = False,
    on_beat: Callable[[Beat], None] | None = None,
) -> Booted:
    """Boot a guest, run `argv` in it, and return what it printed.

    The run directory is removed when all went well, unless `keep` says where to leave it. Raises
    what `run_guest` raises (the run directory then stays), and TopologyMismatch.
    """
    if keep is not None and keep.exists() and not (keep.is_dir() and not any(keep.iterdir())):
        raise UserError("is there, and is not an empty folder", file=keep, key="--keep")
    path = keep or Path(tempfile.mkdtemp(prefix="boot-", dir=cache_dir("boots")))
    directory = RunDir(path)
    machine = Machine(
        topology=topology,
        bzimage=prepared.kernels[kernel.name].bzimage,
        rootfs=prepared.image.path,
        mode=choice.mode,
        cpu_model=choice.cpu_model,
        seed=seed,
        name=f"boot-{topology.name}",
        extra_cmdline=cmdline,
        trace_memory_mib=32 if events else 0,
    )
    try:
        outcome = run_guest(
            machine,
            Job(argv=argv, events=events),
            directory,
            connection=connection,
            on_beat=on_beat,
        )
        differences = check_topology(
            topology,
            kernel,
            directory,
            reserved_mib=machine.trace_memory_mib,
            allow=allow_mismatch,
        )
        stdout, stderr = left_by_guest(directory.stdout), left_by_guest(directory.stderr)
    except KeyboardInterrupt:
        if keep is None:
            shutil.rmtree(path, ignore_errors=True)
        raise
    except LabError:
        with suppress(OSError):  # only an empty folder goes
            path.rmdir()
        raise
    if keep is None:
        shutil.rmtree(path)
    return Booted(stdout, stderr, outcome, tuple(differences), keep)
