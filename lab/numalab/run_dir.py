"""The files of one run: the only module that knows their names."""

from dataclasses import dataclass
from pathlib import Path


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
    def memory_parameters(self) -> Path:
        """What the memory model of mode timed was told of the machine."""
        return self.path / "memory.parameters"

    @property
    def memory_counts(self) -> Path:
        """What the memory model counted: accesses by CPU, task, node and time slice."""
        return self.path / "memory.counts"

    @property
    def memory_traffic(self) -> Path:
        """What the memory model counted: lines by memory and link, and time slice."""
        return self.path / "memory.traffic"

    @property
    def memory_counts_table(self) -> Path:
        """The memory model's counts with the tasks' names, on the trace's clock, Parquet."""
        return self.path / "memory-counts.parquet"

    @property
    def memory_traffic_table(self) -> Path:
        """The memory model's traffic on the trace's clock, Parquet."""
        return self.path / "memory-traffic.parquet"

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

    @property
    def timeline(self) -> Path:
        """Who ran where in this run's window, Parquet."""
        return self.path / "timeline.parquet"

    @property
    def domains(self) -> Path:
        """The sched domains that the guest's kernel printed, JSON."""
        return self.path / "domains.json"
