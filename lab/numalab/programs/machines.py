"""Machines as values of a Python program: boot one, run commands in it, read what they left."""

import shlex
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import MappingProxyType

import polars as pl

from numalab.campaign.boot import boot, boot_in, guest, run_folder
from numalab.campaign.build import Builds, build, choose_mode
from numalab.campaign.check import check_topology
from numalab.capture.joined_tables import keep_memory_tables
from numalab.capture.spec import load_capture, render_events
from numalab.errors import HostError, UserError, WorkloadFailed, shown
from numalab.files import make_dir
from numalab.guest.run import Outcome
from numalab.guest.session import INBOX_MIB, Session, session_job, start_session
from numalab.image.image_artifact import has_program
from numalab.image.recipe import chosen_recipe
from numalab.kernel.kernel_specs import KernelSpec
from numalab.kernel.patched_kernel import find_kernel
from numalab.locality.count_places import count_places
from numalab.locality.locality import BARRIERS, COMMAND, Locality, Marks
from numalab.machine.model import Machine
from numalab.measure import Measure, valid_in
from numalab.programs.command_result import SAMPLE_MS, CommandResult, read_result
from numalab.programs.marked_command import marked_tasks, measures_of_marked
from numalab.progress import Progress, no_progress
from numalab.qemu.emulator import qemu_version
from numalab.qemu.hypervisor import EMBED
from numalab.recording.events import of_interest
from numalab.results.guest_output import read_guest_view
from numalab.results.run_files import RunFiles
from numalab.run_dir import RunDir
from numalab.topology.load import load_topology
from numalab.topology.predict.firmware import as_guest_numbers
from numalab.topology.topology import Topology
from numalab.workload.host_program import GuestCommand, Surroundings, guest_command
from numalab.workload.luggage import require_preloaded
from numalab.workload.starters import MARKED
from numalab.workload.workload import BoundWorkload

LONGEST_COMM = 15  # TASK_COMM_LEN without the NUL (include/linux/sched.h)
_TRACE_MIB = 32
_LONGEST_STDERR = 400


class GuestSession:
    """A running guest.

    `machine` is its topology with the node numbers of its kernel, `directory` the folder of its
    files while it runs, `results` what its commands did so far.
    """

    def __init__(
        self, session: Session, image: Path, topology: Topology, directory: RunDir, recorded: bool
    ) -> None:
        self.machine, self.directory, self._files = topology, directory.path, directory
        self._session, self._image, self._recorded, self._commands = session, image, recorded, 0
        self.results: list[CommandResult] = []

    @property
    def alive(self) -> bool:
        """Whether the guest still runs."""
        return self._session.alive

    def keep(self, folder: str | Path, commands: Sequence[CommandResult] = ()) -> None:
        """Copy the guest's console, and the files of these commands, to a folder.

        Raises HostError.
        """
        target = Path(folder)
        make_dir(target)
        try:
            for path in (self._files.console, *(command.directory for command in commands)):
                if path.is_dir():
                    shutil.copytree(path, target / path.name)
                elif path.is_file():
                    shutil.copy2(path, target)
        except OSError as error:
            raise HostError(f"cannot write {target}: {error.strerror or error}") from None

    def run(
        self,
        words: Sequence[str | Path],
        *,
        timeout: float | None = None,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        input: str | bytes | None = None,
        add: Sequence[str] = (),
        memory: bool = False,
    ) -> CommandResult:
        """Run a command and return what it did, whatever its exit status.

        A program of this host goes to the guest with its libraries and the current folder, as with
        `numalab boot`. `timeout` is in seconds of guest time, after which the status is 124. `cwd`
        is a folder below the current one, or a path of the guest. `add` are further files of this
        host, each `FILE` or `FILE:TARGET`. With `memory`, its memory is sampled every `SAMPLE_MS`
        of guest time. Processes that it leaves running are killed. Raises UserError for a program
        that cannot run in a guest, WorkloadFailed for a full job disk, GuestLost for a guest that
        panicked, hung or was killed.
        """
        around = _surroundings(timeout, env, cwd, input, add)
        command = _command(words, self._image, around)
        self._commands += 1
        into = RunDir(self.directory / f"command-{self._commands}")
        script = f"exec {shlex.join(command.argv)}"
        end = self._session.run(script, command.files, into, sample_ms=memory * SAMPLE_MS)
        recorded = self.machine if self._recorded and not end.full else None
        notes = (*command.remarks, *end.notes)
        self.results.append(result := read_result(words, into, end.status, recorded, notes))
        if end.full:
            raise WorkloadFailed(f"{end.full}\n{result}")
        return result


@dataclass(frozen=True)
class LabMachine:
    """A machine with its kernel and image, built and ready to boot. Make one with `machine`.

    `guest` is what `run` and `measure` boot, `session_guest` what `boot` starts.
    """

    topology: Topology
    kernel: KernelSpec
    builds: Builds
    guest: Machine
    session_guest: Machine

    @property
    def mode(self) -> str:
        """The mode of `run` and `measure`."""
        return self.guest.mode

    @contextmanager
    def boot(
        self,
        *,
        events: Sequence[str] = (),
        keep: str | Path | None = None,
        cold: bool = False,
        connection: str = EMBED,
    ) -> Iterator[GuestSession]:
        """Start a guest for several commands; it ends with the block.

        In the modes tcg and icount, the first guest of a machine is saved when it has booted, and
        later ones continue there; `cold` boots. `events` (`system:event`) are recorded for each
        command. `keep` is an empty or new folder for console, output and recordings. The machine
        is compared with its prediction first.
        Because the host answers while the guest runs, two sessions are not the same to the byte;
        `run` boots a guest whose runs are. Raises UserError, HostError, GuestLost and
        TopologyMismatch.
        """
        started = replace(self.session_guest, inbox_mib=INBOX_MIB, trace_memory_mib=0, cold=cold)
        events = listed(events, "events")
        job = session_job(started.job_disk_mib, events, _buffer_kib(self.topology))
        with run_folder(Path(keep) if keep else None) as directory:
            session = start_session(started, job, directory, connection)
            try:
                session.collect(directory.out, "/out")
                view = read_guest_view(directory)
                check_topology(
                    self.topology, self.kernel, view,
                    reserved_mib=0, allow=False, qemu=qemu_version(started.emulator),
                    cmdline=started.extra_cmdline,
                )  # fmt: skip
                image = self.builds.image.path
                machine = as_guest_numbers(self.topology)
                yield GuestSession(session, image, machine, directory, bool(events))
            finally:
                session.end()

    def measure(
        self,
        words: Sequence[str | Path],
        *,
        seed: int | None = None,
        tasks: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
        tunables: Mapping[str, str] = MappingProxyType({}),
        cwd: str | None = None,
        input: str | bytes | None = None,
        add: Sequence[str] = (),
        keep: str | Path | None = None,
    ) -> Mapping[str, Measure]:
        """Boot a guest for one command that succeeds, and return its measures by name.

        The events are those that a study records; memory is sampled. `tasks` are names of tasks,
        with `*` and `?`; by default those that the command's threads and descendants had.
        Elapsed, user and system time are those of the command alone. `tunables` are files below
        /proc/sys or /sys, and the values to write to them before the command. In mode timed there
        are also the measures of memory accesses. The other arguments are those of `run`, and it
        raises what `run` raises, and WorkloadFailed for a command that fails.
        """
        sampled = {"sample": ["numa_maps"], "sample_ms": SAMPLE_MS}
        capture = load_capture(sampled, Path("numalab.api"))
        around = replace(_surroundings(None, env, cwd, input, add), returns=True)
        command = _command([MARKED, *listed(words, "words")], self.builds.image.path, around)
        with run_folder(Path(keep) if keep else None) as directory:
            outcome = self._boot(
                directory, seed, command,
                events=render_events(capture), sample_ms=SAMPLE_MS, tunables=tunables,
            )  # fmt: skip
            result = read_result(words, directory, outcome.status, self.topology).check()
            if self.mode == "timed" and result.events is not None:
                switches = result.events.filter(pl.col("event") == "sched_switch")
                keep_memory_tables(directory, as_guest_numbers(self.topology), switches)
            named = listed(tasks, "tasks")
            if result.events is not None and (ran := marked_tasks(result.events)) is not None:
                named = _names_of_tasks(named, ran, result.events)
            workload = BoundWorkload(
                name=command.program, folder=directory.path, argv=command.argv, parameters={},
                seconds=0.0, tasks=named or (command.program[:LONGEST_COMM],), allowed_cpus=(),
            )  # fmt: skip
            RunFiles(directory).measure(as_guest_numbers(self.topology), workload, capture)
            return dict(valid_in(measures_of_marked(directory), self.mode))

    def locality(
        self,
        words: Sequence[str | Path],
        *,
        window: str | tuple[str, str] = "command",
        seed: int | None = None,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        input: str | bytes | None = None,
        add: Sequence[str] = (),
    ) -> Locality:
        """Boot a guest of mode timed for one command, and return its memory accesses.

        By thread, node, region and contended line. `window` is `command`, `barriers` (from the
        first barrier of its threads to the last) or two marks that it writes. The other arguments
        are those of `run`, and it raises what `run` raises, and WorkloadFailed for a command that
        fails.
        """
        if self.mode != "timed":
            choices = ('mode="timed"',)
            raise UserError(f"mode {self.mode} counts no accesses", key="mode", choices=choices)
        windows = {"command": COMMAND, "barriers": BARRIERS}
        if isinstance(window, str) and window not in windows:
            raise UserError(f"{window!r} is no window", key="window", choices=(*windows, "2 marks"))
        between: Marks = window if isinstance(window, tuple) else windows[window]
        around = _surroundings(None, env, cwd, input, add)
        command = _command([MARKED, *listed(words, "words")], self.builds.image.path, around)
        symbols = self.builds.kernels[self.kernel.name].symbols
        started = self.guest if seed is None else replace(self.guest, seed=seed)
        started, command = count_places(started, symbols, command, barriers=between == BARRIERS)
        booted = boot(started, self.kernel, command.argv, files=command.files, between=between)
        errors = booted.stderr.decode("utf-8", "replace")
        if status := booted.outcome.status:
            end = shown(errors[-_LONGEST_STDERR:])
            raise WorkloadFailed(f"{command.program} exited with {status}: {end}")
        require_preloaded(command.program, errors)
        return booted.locality or Locality(0.0, (), ())

    def run(
        self,
        words: Sequence[str | Path],
        *,
        seed: int | None = None,
        events: Sequence[str] = (),
        timeout: float | None = None,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        input: str | bytes | None = None,
        add: Sequence[str] = (),
        memory: bool = False,
        keep: str | Path | None = None,
        connection: str = EMBED,
    ) -> CommandResult:
        """Boot a guest for one command, and return what the command did.

        In the modes icount and timed, the same command and seed give the same result to the byte.
        The arguments are those of `boot` and of `GuestSession.run`, and it raises what they raise.
        """
        around = replace(_surroundings(timeout, env, cwd, input, add), returns=True)
        command = _command(words, self.builds.image.path, around)
        with run_folder(Path(keep) if keep else None) as directory:
            outcome = self._boot(
                directory, seed, command,
                events=events, sample_ms=memory * SAMPLE_MS, connection=connection,
            )  # fmt: skip
            status, notes = outcome.status, (*command.remarks, *outcome.new_notes)
            return read_result(words, directory, status, self.topology if events else None, notes)

    def _boot(
        self,
        directory: RunDir,
        seed: int | None,
        command: GuestCommand,
        *,
        events: Sequence[str],
        sample_ms: int,
        tunables: Mapping[str, str] = MappingProxyType({}),
        connection: str = EMBED,
    ) -> Outcome:
        started = self.guest if seed is None else replace(self.guest, seed=seed)
        started = replace(started, trace_memory_mib=started.trace_memory_mib if events else 0)
        return boot_in(
            directory, started, self.kernel, command.argv, connection=connection,
            events=listed(events, "events"), files=command.files, sample_ms=sample_ms,
            tunables=tunables,
        ).outcome  # fmt: skip


def machine(
    topology: str | Path | Topology,
    *,
    mode: str = "auto",
    kernel: str = "debian-6.12",
    image: str = "base",
    packages: Sequence[str] = (),
    overlay: str | Path | None = None,
    seed: int = 1,
    cmdline: Sequence[str] = (),
    on_progress: Progress = no_progress,
) -> LabMachine:
    """Return a machine, after building the kernel and the image that the cache lacks.

    `topology` is a name from `numalab topology list`, a file or a value; `kernel` and `image` are
    names from the lists of the same commands; `packages` are further Debian packages, `overlay` is
    a folder to copy over the image, `cmdline` are further kernel parameters. Mode `auto` is kvm
    where it works, else icount for `run` and `measure`, and the faster tcg for `boot`, which does
    not repeat to the byte anyway. `on_progress` gets lines about builds. Raises UserError,
    HostError and BuildError.
    """
    model = topology if isinstance(topology, Topology) else load_topology(str(topology))
    spec = find_kernel(kernel, on_progress)
    cmdline, packages = listed(cmdline, "cmdline"), listed(packages, "packages")
    recipe = chosen_recipe(image, packages, Path(overlay) if overlay else None)
    builds = build([spec], recipe, on_progress=on_progress)
    choose = partial(choose_mode, mode, builds, EMBED, on_progress, words=cmdline)
    choice = choose()
    session_choice = choose(repeatable=False) if mode == "auto" else choice
    guests = (
        replace(
            guest(model, spec.name, builds, chosen, trace_mib=_TRACE_MIB),
            seed=seed,
            extra_cmdline=cmdline,
        )
        for chosen in (choice, session_choice)
    )
    return LabMachine(model, spec, builds, *guests)


def _buffer_kib(topology: Topology) -> int:
    """Return the trace buffer of each CPU: of all, as much as a guest reserves elsewhere."""
    return max(64, (_TRACE_MIB << 10) // topology.cpu_count)


def _surroundings(
    timeout: float | None,
    env: Mapping[str, str] | None,
    cwd: str | None,
    text: str | bytes | None,
    add: Sequence[str],
) -> Surroundings:
    stdin = text.encode() if isinstance(text, str) else text
    if timeout is not None and not timeout > 0:
        raise UserError(f"{timeout} is not above 0 s", key="timeout")
    for name in env or {}:
        if not name.isidentifier():
            raise UserError(f"{name!r} is not a name of a variable", key="env")
    return Surroundings(listed(add, "add"), dict(env or {}), cwd, stdin, timeout)


def listed(words: Sequence[str | Path], key: str) -> tuple[str, ...]:
    """Return a list of words as texts. Raises UserError for one string, whose parts are letters."""
    if isinstance(words, str | bytes):
        raise UserError(f"is one string; write a list of words, such as [{words!r}]", key=key)
    return tuple(map(str, words))


def _names_of_tasks(
    tasks: tuple[str, ...], marked: tuple[str, ...], events: pl.DataFrame
) -> tuple[str, ...]:
    """Return the names of the tasks to measure, of `marked` ones if none are asked for.

    Raises UserError if none of `tasks` ran.
    """
    ran = events.select("pid", comm="prev_comm")
    if tasks and ran.filter(of_interest(tasks)).is_empty():
        raise UserError(f"no task is called {tasks[0]!r}", key="tasks", choices=marked)
    # A name is no pattern: the `*` of one stands for that character, or for another one.
    return tasks or tuple(name.replace("*", "?") for name in marked)


def _command(words: Sequence[str | Path], image: Path, around: Surroundings) -> GuestCommand:
    texts = listed(words, "words")
    if not texts:
        raise UserError("no command to run in the guest")
    return guest_command(texts, partial(has_program, image), around)
