"""What a guest left of one run, each file read once, on its first use; and the analysis of it."""

from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import polars as pl

from numalab.analysis.analyse import analyse
from numalab.capture.counters import (
    BufferStats,
    difference,
    parse_numastat,
    parse_schedstat,
    parse_times,
    parse_trace_stats,
    parse_vmstat,
    perf_counts,
)
from numalab.capture.memory_parquet import read_memory_tables
from numalab.capture.samples import Samples, parse_added, parse_samples
from numalab.capture.spec import ON_SAMPLE_CLOCK, CaptureSpec
from numalab.errors import WorkloadFailed
from numalab.files import left_by_guest, utf8_path
from numalab.measure import modelled
from numalab.recording.recording import CommandData, Recording
from numalab.results.stored_analysis import save_analysis, save_domains
from numalab.run_dir import RunDir
from numalab.topology.guest_view import GuestView, parse_guest_view
from numalab.topology.topology import Topology
from numalab.workload.metric_parsers import PARSERS
from numalab.workload.workload import BoundWorkload


@dataclass(frozen=True)
class RunFiles:
    """The files of a run that has ended."""

    directory: RunDir

    @cached_property
    def dmesg(self) -> str:
        """The kernel log; empty where a guest left none."""
        return _text_if_there(self.directory.dmesg)

    @cached_property
    def guest_view(self) -> GuestView:
        """The machine as its guest reports it. Raises WorkloadFailed where it left no report."""
        nodes = self.directory.sysfs
        return parse_guest_view(
            {str(path.relative_to(nodes)): _text(path) for path in sorted(nodes.glob("node*/*"))},
            _text(self.directory.sched_domains),
            self.dmesg,
        )

    @property
    def printed(self) -> str:
        """What the command had to say: its errors, else its output."""
        return _text_if_there(self.directory.stderr) or _text_if_there(self.directory.stdout)

    @property
    def buffer_stats(self) -> tuple[BufferStats, ...]:
        """The ring buffer's own statistics; a rescued guest may have left none."""
        return parse_trace_stats(_text_if_there(self.directory.trace_stats))

    def measure(self, topology: Topology, workload: BoundWorkload, capture: CaptureSpec) -> None:
        """Compute all that reports need from the decoded events, the counters and what was printed,
        and write it beside them.

        Raises WorkloadFailed when the command did not print a metric that its workload file
        requires, and for a guest that left no output or counters.
        """
        directory = self.directory
        for path in (directory.vmstat_before, directory.vmstat_after):
            left_by_guest(path)
        run = Recording(
            scan_events(directory),
            topology,
            tasks=workload.tasks,
            allowed_cpus=workload.allowed_cpus or None,
        )
        run = self.add_counters(run, capture, workload.name)
        assert run.command is not None
        command = replace(
            run.command,
            metrics=PARSERS.find(workload.parser)(workload.metrics, _text(directory.stdout)),
            memory_mib=workload.memory_mib,
        )
        analysis = analyse(replace(run, command=command))
        if directory.memory_parameters.exists():  # of mode timed
            measures = tuple(map(modelled, analysis.measures))
            analysis = replace(analysis, measures=measures)
        save_domains(directory, self.guest_view.sched_log)
        save_analysis(directory, analysis)

    def add_counters(self, run: Recording, capture: CaptureSpec, workload: str) -> Recording:
        """Return a recording with all that the guest left beside its events, None what it did not.

        `command` lacks the metrics that the command printed.
        """
        directory = self.directory
        vmstat = [
            parse_vmstat(_text_if_there(path))
            for path in (directory.vmstat_before, directory.vmstat_after)
        ]
        return replace(
            run,
            recorded=self._recorded(capture),
            vmstat=difference(*vmstat) if all(vmstat) else None,
            samples=self._samples(capture),
            command=self._command(workload, capture),
            directory=directory,
            memory=read_memory_tables(directory),
        )

    def _command(self, workload: str, capture: CaptureSpec) -> CommandData:
        """Read the times of the command, and what was counted before and after it."""
        directory = self.directory
        before, after = (
            parse_schedstat(_text_if_there(path))
            for path in (directory.schedstat_before, directory.schedstat_after)
        )
        numastat = None
        if capture.numastat and directory.numastat_before.exists():
            numastat = (
                parse_numastat(_text_if_there(directory.numastat_before)),
                parse_numastat(_text_if_there(directory.numastat_after)),
            )
        return CommandData(
            workload,
            times=parse_times(_text_if_there(directory.times)),
            perf=perf_counts(capture.perf_stat, _text_if_there(directory.perf_stat)),
            schedstat=(before, after),
            numastat=numastat,
        )

    def _recorded(self, capture: CaptureSpec) -> tuple[str, ...]:
        """Return the `system:event` names that were recorded: those asked for that the kernel
        has."""
        absent = _text_if_there(self.directory.absent_events).split()
        return tuple(
            event.name for event in capture.events if not (event.optional and event.name in absent)
        )

    def _samples(self, capture: CaptureSpec) -> Samples | None:
        """Return what was sampled, if its times are those of the trace."""
        if not capture.sample or capture.clock not in ON_SAMPLE_CLOCK:
            return None
        if not self.directory.samples.exists():
            return None
        samples = parse_samples(_text_if_there(self.directory.samples))
        if not capture.added:
            return samples
        added = parse_added(_text_if_there(self.directory.sampled), capture.added)
        return replace(samples, added=added)


def scan_events(directory: RunDir) -> pl.LazyFrame:
    """Scan the events of a run with every column, without loading them."""
    return pl.scan_parquet(utf8_path(directory.events), glob=False)


def _text(path: Path) -> str:
    return left_by_guest(path).decode("utf-8", "replace")


def _text_if_there(path: Path) -> str:
    with suppress(WorkloadFailed):
        return _text(path)
    return ""
