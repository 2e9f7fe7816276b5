"""Where everything lies on disk: the only module that knows file names in a run directory.

A result is `reports/<study>/<id>/`, with one folder a run under `runs/`. A run is written in
`runs/<run>.running/` and renamed when it is whole, so what has its final name is never half done.
"""

import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from fcntl import LOCK_EX, LOCK_NB, flock
from pathlib import Path
from typing import Any, NoReturn

from lab.errors import HostError, UserError, WorkloadFailed

FORMAT = 2
READABLE = (1, 2)  # formats of results that are still read
UNFINISHED = (".running", ".failed", ".interrupted")  # a run's folder that is no result


def project_dir() -> Path:
    """Return the folder that holds `topologies/`, `studies/` and the other input folders.

    `$NUMALAB_HOME` if set, else the current folder if it looks like one, else the checkout that
    this package was installed from.
    """
    candidates = [Path.cwd(), Path(__file__).parent.parent]
    if home := os.environ.get("NUMALAB_HOME"):
        candidates.insert(0, Path(home))
    for path in candidates:
        if (path / "topologies").is_dir() and (path / "kernel-configs").is_dir():
            return path
    raise UserError("no topologies/ and kernel-configs/ here", file=candidates[0])


def cache_dir(*parts: str) -> Path:
    """Return a folder below `$NUMALAB_CACHE` or ~/.cache/numalab, created for this user only."""
    base = os.environ.get("NUMALAB_CACHE")
    if not base:
        base = str(Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "numalab")
    path = Path(base).joinpath(*parts)
    make_dir(path)
    return path


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Give a temporary name in the same folder, and rename it to `path` when the block succeeds.

    The temporary name may be made a file, which then only this user can read, or a folder; on any
    failure it is removed. A full disk is a HostError that names the path.
    """
    make_dir(path.parent)
    try:
        with tempfile.TemporaryDirectory(prefix=f".{path.name}.", dir=path.parent) as scratch:
            temporary = Path(scratch) / path.name
            yield temporary
            if temporary.is_file() and not temporary.stat().st_mode & 0o100:
                temporary.chmod(0o600)
            if temporary.is_dir() and path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            temporary.replace(path)
    except OSError as error:
        raise HostError(f"cannot write {path}: {error.strerror or error}") from error


def make_dir(path: Path) -> None:
    """Create a folder, for this user only, with those above it; HostError when that fails."""
    try:
        for missing in reversed([each for each in (path, *path.parents) if not each.is_dir()]):
            missing.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise HostError(f"cannot create {path}: {error.strerror}") from None


def left_by_guest(path: Path) -> bytes:
    """Read what the guest was to leave; WorkloadFailed when it is not there, or is no file."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise WorkloadFailed(
            f"the guest left no {path.name} ({error.strerror}); its job disk may be full"
        ) from None


def write_text(path: Path, text: str) -> None:
    """Write a text file whole or not at all."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_json(path: Path, value: object) -> None:
    """Write a JSON document whole or not at all: indented, keys in the order given."""
    write_text(path, json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False) + "\n")


def read_json(path: Path) -> Any:
    """Read a JSON document that numalab wrote. UserError when it is missing or not JSON."""
    try:
        return json.loads(path.read_text(encoding="utf-8"), parse_constant=_no_number)
    except FileNotFoundError:
        raise UserError("no such file", file=path) from None
    except (ValueError, RecursionError, OSError) as error:
        raise UserError(f"not JSON: {error}", file=path) from None


def _no_number(text: str) -> NoReturn:
    raise ValueError(f"{text} is no number")


def _try_lock(descriptor: int) -> bool:
    try:
        flock(descriptor, LOCK_EX | LOCK_NB)
    except BlockingIOError:
        return False
    return True


def is_locked(path: Path) -> bool:
    """Tell whether some process holds the lock on an existing folder or file."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return not _try_lock(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def locked(
    path: Path,
    on_wait: Callable[[], None] | None = None,
    *,
    wait: bool = True,
    patience: float = 0.0,
) -> Iterator[int]:
    """Hold an exclusive lock on `path` against other processes: a folder, or a file made for it.

    Gives the descriptor that holds it; a process that is handed it holds the lock as well.
    `on_wait` is called once if another process has the lock. Without `wait`, it is a HostError
    that it still has it after `patience` seconds.
    """
    make_dir(path.parent)
    flags = os.O_RDONLY | os.O_CLOEXEC | (0 if path.is_dir() else os.O_CREAT)
    descriptor = os.open(path, flags, 0o600)
    try:
        if not _try_lock(descriptor):
            if on_wait is not None:
                on_wait()
            deadline = time.monotonic() + patience
            while not wait and not _try_lock(descriptor):
                if time.monotonic() >= deadline:
                    raise HostError(f"another numalab is using {path}")
                time.sleep(0.1)
            flock(descriptor, LOCK_EX)
        yield descriptor
    finally:
        os.close(descriptor)


@dataclass(frozen=True)
class RunDir:
    """The files of one run."""

    path: Path

    @property
    def manifest(self) -> Path:
        """What ran and how it ended: JSON, see `docs/formats.md`."""
        return self.path / "manifest.json"

    @property
    def console(self) -> Path:
        """The kernel log, as it came out of ttyS0."""
        return self.path / "console.log"

    @property
    def heartbeat(self) -> Path:
        """One JSON object a line, as it came out of ttyS1."""
        return self.path / "heartbeat.jsonl"

    @property
    def domain_xml(self) -> Path:
        """The libvirt domain that was started."""
        return self.path / "domain.xml"

    @property
    def job_disk(self) -> Path:
        """The ext4 image that carries the job in and the results out."""
        return self.path / "job.img"

    @property
    def out(self) -> Path:
        """What the guest left in /job/out."""
        return self.path / "out"

    @property
    def trace(self) -> Path:
        """The recording, as trace-cmd wrote it in the guest."""
        return self.out / "trace.dat"

    @property
    def exit_status(self) -> Path:
        """The exit status of the command, decimal."""
        return self.out / "status"

    @property
    def stdout(self) -> Path:
        """What the command printed."""
        return self.out / "stdout"

    @property
    def stderr(self) -> Path:
        """What the command printed as errors."""
        return self.out / "stderr"

    @property
    def dmesg(self) -> Path:
        """The guest's whole kernel log, `sched_verbose` included."""
        return self.out / "dmesg.txt"

    @property
    def sysfs(self) -> Path:
        """The guest's nodes: node<N>/cpulist, distance and meminfo."""
        return self.out / "sysfs"

    @property
    def sched_domains(self) -> Path:
        """/sys/kernel/debug/sched/domains, one `path:value` a line."""
        return self.out / "sched_domains.txt"

    @property
    def vmstat_before(self) -> Path:
        """/proc/vmstat before the command."""
        return self.out / "vmstat.before"

    @property
    def vmstat_after(self) -> Path:
        """/proc/vmstat after the command."""
        return self.out / "vmstat.after"

    @property
    def schedstat_before(self) -> Path:
        """/proc/schedstat before the command, where the kernel has it."""
        return self.out / "schedstat.before"

    @property
    def schedstat_after(self) -> Path:
        """/proc/schedstat after the command."""
        return self.out / "schedstat.after"

    @property
    def numastat_before(self) -> Path:
        """The counters of every node before the command: `path:counter value` lines."""
        return self.out / "numastat.before"

    @property
    def numastat_after(self) -> Path:
        """The counters of every node after the command."""
        return self.out / "numastat.after"

    @property
    def times(self) -> Path:
        """Elapsed, user and system time of the command."""
        return self.out / "times"

    @property
    def perf_stat(self) -> Path:
        """What `perf stat -x ,` wrote."""
        return self.out / "perf-stat.csv"

    @property
    def samples(self) -> Path:
        """Counters that were read while the command ran."""
        return self.out / "samples"

    @property
    def absent_events(self) -> Path:
        """The events that were wanted where the kernel has them, and that it has not."""
        return self.out / "absent-events"

    @property
    def trace_stats(self) -> Path:
        """Entries, overruns and drops of each CPU's ring buffer."""
        return self.out / "trace-stats.txt"

    @property
    def trace_memory(self) -> Path:
        """The guest's trace memory, saved when the guest did not end by itself."""
        return self.path / "trace-memory.bin"

    @property
    def qemu_log(self) -> Path:
        """What QEMU and libvirt said about a guest that was lost."""
        return self.path / "qemu.log"

    @property
    def rescue(self) -> "RunDir":
        """The guest that reads a lost guest's trace memory; removed when it is done."""
        return RunDir(self.path / "rescue")

    @property
    def events(self) -> Path:
        """The decoded events, Parquet."""
        return self.path / "events.parquet"

    @property
    def measures(self) -> Path:
        """The measures of this run, JSON."""
        return self.path / "measures.json"

    @property
    def perfetto(self) -> Path:
        """The run for the Perfetto UI, written when it is asked for."""
        return self.path / "run.perfetto-trace"

    @property
    def analysis(self) -> Path:
        """The matrices, series and lists of this run, JSON."""
        return self.path / "analysis.json"


@dataclass(frozen=True)
class Results:
    """The files of one execution of a study; the report of one of several cells has some of them
    below `cells/`."""

    path: Path

    @property
    def plan(self) -> Path:
        """The study as loaded and the list of runs, JSON."""
        return self.path / "plan.json"

    @property
    def html(self) -> Path:
        """The report for a browser."""
        return self.path / "index.html"

    @property
    def changelog(self) -> Path:
        """The report for a mail or a commit message."""
        return self.path / "changelog.txt"

    @property
    def document(self) -> Path:
        """The report for programs."""
        return self.path / "report.json"

    @property
    def picture(self) -> Path:
        """The report's picture, for a README or slides."""
        return self.path / "picture.png"

    @property
    def runs_table(self) -> Path:
        """The catalogue of the runs, Parquet."""
        return self.path / ".catalogue" / "runs.parquet"

    @property
    def measures_table(self) -> Path:
        """The catalogue of all measures of all runs, Parquet."""
        return self.path / ".catalogue" / "measures.parquet"

    def cell(self, name: str) -> "Results":
        """Return the folder for the report of one of several cells."""
        return Results(self.path / "cells" / name)

    def run(self, run_id: str) -> RunDir:
        """Return the folder of a finished run."""
        return RunDir(self.path / "runs" / run_id)

    def running(self, run_id: str) -> RunDir:
        """Return the folder of a run that has not ended."""
        return RunDir(self.path / "runs" / f"{run_id}.running")

    def failed(self, run_id: str) -> RunDir:
        """Return the folder of what a run left that gave no result."""
        return RunDir(self.path / "runs" / f"{run_id}.failed")

    def finished(self) -> Mapping[str, RunDir]:
        """Return the runs that have a manifest, by id, in order of their names."""
        found = sorted((self.path / "runs").glob("*/manifest.json"))
        whole = [path.parent for path in found if path.parent.suffix not in UNFINISHED]
        return {path.name: RunDir(path) for path in whole}
