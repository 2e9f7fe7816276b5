"""The files of one run: the only module that knows their names."""

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from numalab.errors import UserError

# What a document of XML cannot hold: control characters (XML 1.0, 2.2), bytes that are no UTF-8.
_NOT_IN_XML = re.compile("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_LONGEST_NAME = 255  # bytes: NAME_MAX in include/uapi/linux/limits.h


def is_returned_name(name: str) -> bool:
    """Return whether a file or folder that a command leaves below $OUT may have this name here.

    It is UTF-8 that this host's locale has, without `/` and without what is not printed, such as
    control characters and those that change the direction of text, and does not begin with `-` or
    `.`.
    """
    try:
        data = name.encode()
        is_of_host = os.fsencode(name) == data
    except UnicodeError:
        return False
    short = 0 < len(data) <= _LONGEST_NAME
    return is_of_host and short and name.isprintable() and name[0] not in "-." and "/" not in name


def check_option_path(path: Path) -> None:
    """Raise UserError for a path that an option of QEMU cannot name."""
    if "," in str(path.absolute()):
        raise UserError("QEMU cannot open a file with a comma in its name", file=path)


def check_guest_path(path: Path) -> None:
    """Raise UserError for a path that libvirt's XML or QEMU's options cannot name."""
    check_option_path(path)
    if _NOT_IN_XML.search(str(path.absolute())):
        reason = "a guest cannot use it: the name has control characters, or is not UTF-8"
        raise UserError(reason, file=path)


class _Folder(Protocol):
    @property
    def path(self) -> Path: ...


class FileIn:
    """A file of a class that has a folder as its `path`, by its place in there."""

    def __init__(self, place: str) -> None:
        self.place = place

    def __get__(self, folder: _Folder, owner: type) -> Path:
        return folder.path / self.place


def places_in(owner: type) -> frozenset[str]:
    """Return the places of all files of such a class."""
    return frozenset(file.place for file in vars(owner).values() if isinstance(file, FileIn))


@dataclass(frozen=True)
class RunDir:
    """The files of one run."""

    path: Path

    manifest = FileIn("manifest.json")
    """What ran and how it ended, JSON."""
    console = FileIn("console.log")
    """The kernel log from ttyS0."""
    heartbeat = FileIn("heartbeat.jsonl")
    """The heartbeats from ttyS1, one JSON object a line."""
    domain_xml = FileIn("domain.xml")
    """The libvirt domain that was started."""
    job_disk = FileIn("job.img")
    """The ext4 image that carries the job in and the results out."""
    saved_state = FileIn("state")
    """The state of a saved guest, as QEMU's `migrate` writes it."""
    out = FileIn("out")
    """The files of /job/out in the guest."""
    trace = FileIn("out/trace.dat")
    """The recording, as trace-cmd wrote it in the guest."""
    exit_status = FileIn("out/status")
    """The exit status of the command, decimal."""
    stdout = FileIn("out/stdout")
    """The output of the command."""
    stderr = FileIn("out/stderr")
    """The errors of the command."""
    returned = FileIn("out/files")
    """The files that the command left below $OUT."""
    dmesg = FileIn("out/dmesg.txt")
    """The guest's kernel log, or its end."""
    sysfs = FileIn("out/sysfs")
    """The guest's nodes: node<N>/cpulist, distance and meminfo."""
    sched_domains = FileIn("out/sched_domains.txt")
    """/sys/kernel/debug/sched/domains, one `path:value` a line."""
    vmstat_before = FileIn("out/vmstat.before")
    """/proc/vmstat before the command."""
    vmstat_after = FileIn("out/vmstat.after")
    """/proc/vmstat after the command."""
    schedstat_before = FileIn("out/schedstat.before")
    """/proc/schedstat before the command, where the kernel has it."""
    schedstat_after = FileIn("out/schedstat.after")
    """/proc/schedstat after the command."""
    numastat_before = FileIn("out/numastat.before")
    """The counters of every node before the command: `path:counter value` lines."""
    numastat_after = FileIn("out/numastat.after")
    """The counters of every node after the command."""
    times = FileIn("out/times")
    """Elapsed, user and system time of the command."""
    marked_times = FileIn("out/marked.times")
    """The same of the command between the markers, without what starts it."""
    perf_stat = FileIn("out/perf-stat.csv")
    """The output of `perf stat -x ,`."""
    samples = FileIn("out/samples")
    """Counters that were read while the command ran."""
    sampled = FileIn("out/sampled")
    """The samples of sources of plug-ins."""
    maps = FileIn("out/maps")
    """The mappings of the command's processes at some moments, from /proc/PID/maps."""
    absent_events = FileIn("out/absent-events")
    """The optional events that the kernel lacks."""
    scheduler = FileIn("out/scheduler.txt")
    """How the scheduler (sched_ext) of the run began and ended: `key value` lines."""
    scheduler_log = FileIn("out/scheduler.log")
    """The end of the scheduler's output."""
    scheduler_times = FileIn("out/scheduler.times")
    """Times of the command without those of its scheduler."""
    trace_stats = FileIn("out/trace-stats.txt")
    """Entries, overruns and drops of each CPU's ring buffer."""
    trace_memory = FileIn("trace-memory.bin")
    """The guest's trace memory, saved when the guest did not end by itself."""
    memory_parameters = FileIn("memory.parameters")
    """The parameters of the memory model of mode timed."""
    memory_counts = FileIn("memory.counts")
    """Accesses that the memory model counted, by CPU, task, node and time slice."""
    memory_traffic = FileIn("memory.traffic")
    """Lines that the memory model counted, by memory, link and time slice."""
    memory_places = FileIn("memory.places")
    """Pages and lines of programs that the memory model counted."""
    memory_counts_table = FileIn("memory-counts.parquet")
    """The memory model's counts with the tasks' names, on the trace's clock, Parquet."""
    memory_traffic_table = FileIn("memory-traffic.parquet")
    """The memory model's traffic on the trace's clock, Parquet."""
    memory_places_table = FileIn("memory-places.parquet")
    """The pages and lines of programs with the threads' ids, on the trace's clock, Parquet."""
    reach_counts = FileIn("reach.counts")
    """Counts of the reach plugin."""
    reach = FileIn("reach.json")
    """Executions of changed lines, JSON."""
    qemu_log = FileIn("qemu.log")
    """Messages of QEMU and libvirt about a lost guest."""
    events = FileIn("events.parquet")
    """The decoded events, Parquet."""
    measures = FileIn("measures.json")
    """The measures of this run, JSON."""
    added_measures = FileIn("added-measures.json")
    """The measures that `numalab measure` added later, JSON."""
    perfetto = FileIn("run.perfetto-trace")
    """The run for the Perfetto UI, written when it is asked for."""
    analysis = FileIn("analysis.json")
    """The matrices, series and lists of this run, JSON."""
    timeline = FileIn("timeline.parquet")
    """The tasks on each CPU in the window of this run, Parquet."""
    domains = FileIn("domains.json")
    """The sched domains that the guest's kernel printed, JSON."""

    @property
    def rescue(self) -> "RunDir":
        """The guest that reads a lost guest's trace memory; removed when it is done."""
        return RunDir(self.path / "rescue")
