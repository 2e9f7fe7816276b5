"""One command, or a shell, in one guest: what `numalab boot` and `numalab shell` do."""

import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from numalab.campaign.check import check_topology
from numalab.campaign.prepare import Builds, with_choice, with_kernel
from numalab.errors import LabError, UserError
from numalab.files import left_by_guest
from numalab.guest.console import Beat
from numalab.guest.kvm import Choice
from numalab.guest.run import Outcome, run_guest
from numalab.guest.watch import Limits
from numalab.kernel.catalogue import KernelSpec
from numalab.machine.model import Job, Machine
from numalab.places import cache_dir
from numalab.qemu.guest import Guest
from numalab.qemu.hypervisor import EMBED
from numalab.results.run_files import RunFiles
from numalab.run_dir import RunDir
from numalab.topology.model import Topology


@dataclass(frozen=True)
class Booted:
    """What the command printed (bytes, as it did) and how it ended."""

    stdout: bytes
    stderr: bytes
    outcome: Outcome
    differences: tuple[str, ...]
    kept: Path | None


def guest(
    topology: Topology, kernel: str, prepared: Builds, choice: Choice, *, trace_mib: int = 0
) -> Machine:
    """Return a guest with one of the kernels that were prepared, by its name."""
    machine = Machine(
        topology=topology,
        bzimage=Path(),
        rootfs=prepared.image.path,
        mode=choice.mode,
        seed=1,
        name=f"boot-{topology.name}",
        trace_memory_mib=trace_mib,
    )
    return with_kernel(with_choice(machine, choice), prepared.kernels[kernel])


def boot(
    machine: Machine,
    kernel: KernelSpec,
    argv: tuple[str, ...],
    *,
    connection: str = EMBED,
    events: tuple[str, ...] = (),
    keep: Path | None = None,
    allow_mismatch: bool = False,
    on_beat: Callable[[Beat], None] | None = None,
    limits: Limits | None = None,
) -> Booted:
    """Boot a guest with `kernel`, run `argv` in it, and return what it printed.

    The run directory is removed when all went well, unless `keep` says where to leave it. Raises
    what `run_guest` raises (the run directory then stays), and TopologyMismatch.
    """
    path = _folder(keep)
    job = Job(argv=argv, events=events)
    with _tidied(path, keep=keep is not None):
        directory = RunDir(path)
        outcome = run_guest(
            machine, job, directory, connection=connection, limits=limits, on_beat=on_beat
        )
        differences = check_topology(
            machine.topology,
            kernel,
            RunFiles(directory),
            reserved_mib=machine.trace_memory_mib,
            allow=allow_mismatch,
        )
        stdout, stderr = left_by_guest(directory.stdout), left_by_guest(directory.stderr)
    return Booted(stdout, stderr, outcome, tuple(map(str, differences)), keep)


def shell(
    machine: Machine,
    job: Job,
    join: Callable[[Guest], AbstractContextManager[None]],
    *,
    connection: str = EMBED,
    limits: Limits,
) -> Outcome:
    """Boot a guest whose console is a terminal, until the shell in it ends.

    `join` is given the guest once it runs. Raises what `run_guest` raises; only then is the run
    directory kept.
    """
    path = _folder(None)
    with _tidied(path, keep=False):
        return run_guest(
            machine, job, RunDir(path), connection=connection, limits=limits, join=join,
            rescue=False,
        )  # fmt: skip


def _folder(keep: Path | None) -> Path:
    if keep is None:
        return Path(tempfile.mkdtemp(prefix="boot-", dir=cache_dir("boots")))
    if keep.exists() and not (keep.is_dir() and not any(keep.iterdir())):
        raise UserError("is there, and is not an empty folder", file=keep, key="--keep")
    return keep


@contextmanager
def _tidied(path: Path, *, keep: bool) -> Iterator[None]:
    """Remove the run directory unless it is to be kept; an error keeps what is in it."""
    try:
        yield
    except LabError:
        with suppress(OSError):  # only an empty folder goes
            path.rmdir()
        raise
    except BaseException:
        if not keep:
            shutil.rmtree(path, ignore_errors=True)
        raise
    if not keep:
        shutil.rmtree(path, ignore_errors=True)
