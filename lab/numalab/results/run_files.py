"""The files that a guest left of one run, each read once on first use, and their analysis.

A report needs only the files of the analysis, and the events for the timeline of a recording that
is longer than the analysis holds at once.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import cached_property

import polars as pl
from pydantic import TypeAdapter

from numalab.analysis.analyse import Analysis, analyse
from numalab.analysis.findings import read_findings
from numalab.capture.counters import (
    BufferStats,
    describe_schedstat,
    difference,
    parse_numastat,
    parse_schedstat,
    parse_times,
    parse_trace_stats,
    parse_vmstat,
    perf_counts,
)
from numalab.capture.joined_tables import read_memory_tables
from numalab.capture.samples import Samples, parse_added, parse_samples
from numalab.capture.spec import ON_SAMPLE_CLOCK, CaptureSpec
from numalab.errors import WorkloadFailed, shown
from numalab.files import left_by_guest, replacing, utf8_path, write_json, write_text
from numalab.measure import LARGEST_NUMBER, Measure, modelled
from numalab.recording.events import filtered_events
from numalab.recording.marks import Mark
from numalab.recording.recording import CommandData, Recording
from numalab.results.guest_output import (
    guest_text,
    guest_text_if_any,
    read_guest_view,
    read_kernel_log,
)
from numalab.results.stored import StoredMeasure
from numalab.run_dir import RunDir
from numalab.scheduler.printed_statistics import printed_statistics
from numalab.topology.guest_view import GuestView
from numalab.topology.predict.firmware import cache_of_cpus, guest_machine
from numalab.topology.predict.prediction import DEFAULT_KERNEL
from numalab.topology.predict.rules import rules_for
from numalab.topology.sched_domains import render_domains
from numalab.topology.topology import Topology
from numalab.workload.metric_parsers import read_metrics
from numalab.workload.workload import BoundWorkload

_MARKS = TypeAdapter(tuple[Mark, ...])


@dataclass(frozen=True)
class RunFiles:
    """The files of a run that has ended."""

    directory: RunDir

    @cached_property
    def dmesg(self) -> str:
        """The kernel log (`read_kernel_log`); empty if the guest left none."""
        return read_kernel_log(self.directory)

    @cached_property
    def guest_view(self) -> GuestView:
        """The machine as its guest reports it. Raises WorkloadFailed where it left no report."""
        return read_guest_view(self.directory)

    @property
    def scheduler(self) -> str:
        """How the scheduler began and ended; empty if the guest left no record."""
        return guest_text_if_any(self.directory.scheduler)

    @property
    def scheduler_log(self) -> str:
        """The end of what the scheduler printed; empty for none."""
        return guest_text_if_any(self.directory.scheduler_log)

    @property
    def printed(self) -> str:
        """The errors that the command printed, else its output."""
        return guest_text_if_any(self.directory.stderr) or guest_text_if_any(self.directory.stdout)

    @property
    def absent_events(self) -> tuple[str, ...]:
        """The optional events that the guest's kernel lacks; text of the guest."""
        return tuple(guest_text_if_any(self.directory.absent_events).split())

    @property
    def buffer_stats(self) -> tuple[BufferStats, ...]:
        """The ring buffer's own statistics; a rescued guest may have left none."""
        return parse_trace_stats(guest_text_if_any(self.directory.trace_stats))

    def measure(
        self, topology: Topology, workload: BoundWorkload, capture: CaptureSpec
    ) -> Analysis:
        """Measure the run and write the results beside its events; return them.

        Raises WorkloadFailed when the command did not print a metric that its workload file
        requires, or printed one twice, and for a guest that left no output or counters.
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
        output, errors = guest_text(directory.stdout), guest_text_if_any(directory.stderr)
        command = replace(
            run.command,
            metrics=read_metrics(workload.parser, workload.metrics, output, errors),
            memory_mib=workload.memory_mib,
        )
        analysis = analyse(replace(run, command=command))
        if directory.memory_parameters.exists():  # of mode timed
            measures = tuple(map(modelled, analysis.measures))
            analysis = replace(analysis, measures=measures)
        write_text(directory.domains, render_domains(self.guest_view.sched_domains))
        save_analysis(directory, analysis)
        return analysis

    def add_counters(self, run: Recording, capture: CaptureSpec, workload: str) -> Recording:
        """Return a recording with all that the guest left beside its events, None what it did not.

        `command` lacks the metrics that the command printed.
        """
        directory = self.directory
        vmstat = [
            parse_vmstat(guest_text_if_any(path))
            for path in (directory.vmstat_before, directory.vmstat_after)
        ]
        return replace(
            run,
            recorded=self._recorded(capture),
            filtered=filtered_events(capture),
            vmstat=difference(*vmstat) if all(vmstat) else None,
            samples=self._samples(capture),
            command=self._command(workload, capture),
            directory=directory,
            cache_of=self._caches(run.topology),
            memory=read_memory_tables(directory),
        )

    def _caches(self, topology: Topology | None) -> Mapping[int, int] | None:
        """Return the last-level cache of each CPU, as predicted for the guest; None: not known."""
        if topology is None:
            return None
        try:
            view = self.guest_view
        except WorkloadFailed:
            return None
        rules = rules_for(view.kernel or DEFAULT_KERNEL)
        return cache_of_cpus(guest_machine(topology, view.vendor or "amd", rules))

    def _command(self, workload: str, capture: CaptureSpec) -> CommandData:
        """Read the times of the command, and what was counted before and after it."""
        directory = self.directory
        before, after = (
            guest_text_if_any(path)
            for path in (directory.schedstat_before, directory.schedstat_after)
        )
        numastat = None
        if capture.numastat and directory.numastat_before.exists():
            numastat = (
                parse_numastat(guest_text_if_any(directory.numastat_before)),
                parse_numastat(guest_text_if_any(directory.numastat_after)),
            )
        return CommandData(
            workload,
            times=parse_times(
                guest_text_if_any(directory.scheduler_times) or guest_text_if_any(directory.times)
            ),
            perf=perf_counts(capture.perf_stat, guest_text_if_any(directory.perf_stat)),
            schedstat=(parse_schedstat(before), parse_schedstat(after)),
            notes=describe_schedstat(after),
            numastat=numastat,
            scheduler=printed_statistics(self.scheduler_log),
        )

    def _recorded(self, capture: CaptureSpec) -> tuple[str, ...]:
        """Return the recorded events as `system:event`: those of the study that the kernel has."""
        absent = self.absent_events
        return tuple(
            event.name for event in capture.events if not (event.optional and event.name in absent)
        )

    def _samples(self, capture: CaptureSpec) -> Samples | None:
        """Return the samples, if their times are those of the trace."""
        if not capture.sample or capture.clock not in ON_SAMPLE_CLOCK:
            return None
        # The guest writes a file for its own sources and another one for those of plug-ins.
        if not (self.directory.samples.exists() or self.directory.sampled.exists()):
            return None
        samples = parse_samples(guest_text_if_any(self.directory.samples))
        if not capture.added:
            return samples
        added = parse_added(guest_text_if_any(self.directory.sampled), capture.added)
        return replace(samples, added=added)


def save_analysis(directory: RunDir, analysis: Analysis) -> None:
    """Write measures.json, analysis.json and, with sched_switch recorded, timeline.parquet.

    Raises WorkloadFailed for numbers and names that no reader takes: a guest may leave any, and one
    run must not spoil the report of the study.
    """
    stored = [StoredMeasure.of(measure).model_dump() for measure in analysis.measures]
    named: dict[str, Measure] = {}
    for measure in analysis.measures:
        if (first := named.setdefault(measure.name, measure)) is not measure:
            sources = f"from {first.info.source}, and from {measure.info.source}"
            raise WorkloadFailed(f"two measures are called {shown(measure.name[:80])}: {sources}")
        if measure.value is not None and not abs(measure.value) < LARGEST_NUMBER:
            raise WorkloadFailed(
                f"{measure.name} is {str(measure.value)[:20]}..., out of all bounds"
            )
    # Blanks would double the size.
    findings = json.dumps(asdict(analysis.findings), separators=(",", ":"))
    try:
        read_findings(findings.encode())
    except ValueError as error:
        raise WorkloadFailed(f"the findings of the run are invalid: {error}") from None
    write_text(directory.analysis, findings + "\n")
    if (timeline := analysis.timeline) is not None:
        about = {
            "length_ns": str(timeline.length_ns),
            "marks": _MARKS.dump_json(timeline.marks).decode(),
        }
        with replacing(directory.timeline) as temporary:
            timeline.spans.write_parquet(utf8_path(temporary), metadata=about)
    write_json(directory.measures, stored)


def scan_events(directory: RunDir) -> pl.LazyFrame:
    """Scan the events of a run with every column, without loading them."""
    return pl.scan_parquet(utf8_path(directory.events), glob=False)
