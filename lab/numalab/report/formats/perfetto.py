"""One run as a trace for the Perfetto UI: CPUs by node, tasks, decisions, and counters.

The format is protos/perfetto/trace/trace.proto: packets of track descriptors and track events, on
one sequence. Times are nanoseconds since the window's begin.
"""

from collections.abc import Iterator
from typing import Any

from numalab.analysis.findings import Decision, Findings, TimeSeries
from numalab.errors import UserError
from numalab.files import replacing
from numalab.report.document import StudyResults
from numalab.report.formats.format import register_format
from numalab.report.formatting import COMPACT_NOTE, printable
from numalab.report.page.charts import decision_mark
from numalab.report.timeline import Timeline
from numalab.results.layout import Results
from numalab.topology.topology import Topology

SEQUENCE = 1  # all packets come from one writer
PACKETS_IN_PART = 2000  # serialised at once; a trace is its parts one after the other


def render_perfetto(
    topology: Topology, timeline: Timeline, findings: Findings | None = None
) -> Iterator[bytes]:
    """Render a run as a Perfetto trace, in parts to be written one after the other.

    Each CPU has a track below its node, and each task of interest a track with its CPU and node. A
    decision of NUMA balancing is an instant on the task's track; a flow leads from a move or swap
    to the task's next slice on the target node. Decisions about other tasks have tracks of their
    own. Time series of the findings are counters; slices tell where one was not measured.
    """
    from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as pb  # noqa: PLC0415 - 0.2 s

    writer = _Writer(pb)
    decisions = findings.decisions if findings else ()
    machine = writer.track("machine", f"{topology.name}: CPUs by node")
    for node in topology.nodes:
        parent = writer.track(("node", node.id), f"node {node.id}", machine)
        for cpu in node.cpus:
            writer.track(("cpu", cpu), f"CPU {cpu}", parent)
    yield from _spans(writer, timeline, decisions)
    marks = writer.track("marks", "marks")
    for mark in timeline.marks:
        writer.event(_ns(mark.at_ms), marks, pb.TrackEvent.TYPE_INSTANT, mark.text)
    yield from writer.full()
    if findings is not None:
        yield from _counters(writer, findings)
    yield writer.rest()


class _Writer:
    """Collects packets; the description of a track precedes its first event."""

    def __init__(self, pb: Any) -> None:
        self.pb = pb
        self._tracks: dict[object, int] = {}
        self._trace = pb.Trace()

    def track(self, key: object, name: str, parent: int = 0, *, unit: str | None = None) -> int:
        """Return the number of a track; with `unit` it is a counter."""
        if key in self._tracks:
            return self._tracks[key]
        number = self._tracks[key] = len(self._tracks) + 1
        packet = self._packet()
        if number == 1:
            packet.sequence_flags = self.pb.TracePacket.SEQ_INCREMENTAL_STATE_CLEARED
        about = packet.track_descriptor
        about.uuid, about.name = number, printable(name)
        about.child_ordering = self.pb.TrackDescriptor.EXPLICIT
        about.sibling_order_rank = number
        if parent:
            about.parent_uuid = parent
        if unit is not None:
            about.counter.unit_name = unit
        return number

    def event(self, at_ns: int, track: int, kind: int, name: str = "") -> Any:
        """Add an event to a track and return it."""
        packet = self._packet()
        packet.timestamp = at_ns
        event = packet.track_event
        event.track_uuid, event.type = track, kind
        if name:
            event.name = printable(name)
        return event

    def slice(self, span: tuple[float, float], track: int, name: str) -> Any:
        """Add a slice, its begin and end in ms, to a track and return its begin event."""
        begin = self.event(_ns(span[0]), track, self.pb.TrackEvent.TYPE_SLICE_BEGIN, name)
        self.event(_ns(span[1]), track, self.pb.TrackEvent.TYPE_SLICE_END)
        return begin

    def full(self) -> Iterator[bytes]:
        """Yield the collected packets once there are `PACKETS_IN_PART`."""
        if len(self._trace.packet) >= PACKETS_IN_PART:
            yield self.rest()

    def rest(self) -> bytes:
        """Return the collected packets, serialised, and forget them."""
        part: bytes = self._trace.SerializeToString()
        self._trace = self.pb.Trace()
        return part

    def _packet(self) -> Any:
        return self._trace.packet.add(trusted_packet_sequence_id=SEQUENCE)


def _spans(writer: _Writer, timeline: Timeline, decisions: tuple[Decision, ...]) -> Iterator[bytes]:
    """Write the slices of CPUs and of tasks of interest in the order of time."""
    waiting = sorted(enumerate(decisions, 1), key=lambda pair: pair[1].at_ms)
    # By task of interest: the flow, and the node it leads to.
    flows: dict[str, list[tuple[int, int]]] = {
        span.task: [] for span in timeline.spans if span.of_interest
    }
    if flows:
        writer.track("tasks", "tasks of interest")  # above the other tasks
    for span in sorted(timeline.spans, key=lambda span: span.start_ms):
        while waiting and waiting[0][1].at_ms <= span.start_ms:
            _decide(writer, *waiting.pop(0), flows)
        ends = (span.start_ms, span.end_ms)
        writer.slice(ends, writer.track(("cpu", span.cpu), f"CPU {span.cpu}"), span.task)
        if span.of_interest:
            place = f"CPU {span.cpu}" if span.node is None else f"node {span.node}"
            slice_of = writer.slice(ends, _task(writer, span.task), place)
            _annotate(slice_of, "CPU", span.cpu)
            if span.node is not None:
                _annotate(slice_of, "node", span.node)
            reached = [flow for flow, node in flows[span.task] if node == span.node]
            slice_of.terminating_flow_ids.extend(reached)
            if reached:
                flows[span.task].clear()
        yield from writer.full()
    for number, decision in waiting:
        _decide(writer, number, decision, flows)


def _task(writer: _Writer, name: str) -> int:
    return writer.track(("task", name), name, writer.track("tasks", "tasks of interest"))


def _decide(
    writer: _Writer, number: int, decision: Decision, flows: dict[str, list[tuple[int, int]]]
) -> None:
    """Write a decision as an instant on its task's track, and begin its flow.

    A task that is not of interest has no slices, so no flow leads to one.
    """
    task = f"{decision.task}/{decision.pid}"
    kind = writer.pb.TrackEvent.TYPE_INSTANT
    if task in flows:
        track = _task(writer, task)
    else:
        track = writer.track(("other", task), task, writer.track("others", "other tasks"))
    event = writer.event(_ns(decision.at_ms), track, kind, f"numa {decision.kind}")
    text = event.debug_annotations.add(name="decision")
    text.string_value = decision_mark(decision)["what"]
    moves = decision.kind != "stick" and not decision.undone
    if moves and decision.to_node is not None and task in flows:
        event.flow_ids.append(number)
        flows[task].append((number, decision.to_node))


def _annotate(event: Any, name: str, value: int) -> None:
    event.debug_annotations.add(name=name).int_value = value


def _counters(writer: _Writer, findings: Findings) -> Iterator[bytes]:
    for place, series in enumerate(findings.series):
        group = writer.track(("series", series.name), series.title)
        name = series.label or series.title
        track = writer.track(("curve", place), name, group, unit=series.unit)
        since = 0.0
        # A value belongs to the step that ends at its time; in Perfetto it holds until the next.
        for at, value in zip(series.at_ms, series.values, strict=True):
            if value is not None:
                event = writer.event(_ns(since), track, writer.pb.TrackEvent.TYPE_COUNTER)
                event.double_counter_value = value
            since = at
        for gap in _gaps(series, findings.length_ms):
            unmeasured = writer.track(("gap", place), f"{name}: not measured", group)
            writer.slice(gap, unmeasured, "not measured")
        yield from writer.full()


def _gaps(series: TimeSeries, length_ms: float) -> list[tuple[float, float]]:
    """Return begin and end, in ms, of each time in which a series has no value.

    A counter cannot say so: it keeps its last value.
    """
    steps = [*zip(series.at_ms, series.values, strict=True), (length_ms, None)]
    gaps: list[tuple[float, float]] = []
    since = 0.0
    for at, value in steps:
        if value is None and _ns(at) > _ns(since):
            begin = gaps.pop()[0] if gaps and gaps[-1][1] == since else since
            gaps.append((begin, at))
        since = at
    return gaps


def _ns(ms: float) -> int:
    return max(0, round(ms * 1e6))


@register_format("perfetto")
class PerfettoFormat:
    """A trace of one run of each variant, beside its measures."""

    def write(self, study: StudyResults, results: Results) -> str:
        """Write the runs that the pages draw, and return the files, a line each.

        They are in the order of the cells and variants. Raises UserError where there are none,
        because no run has a timeline.
        """
        if not study.reports:
            raise UserError("no run has finished", file=results.path)
        written = []
        for report in study.reports:
            findings = {run.run: run.findings for run in report.findings}
            for timeline in report.timelines:
                path = results.run(timeline.run).perfetto
                with replacing(path) as temporary, temporary.open("wb") as file:
                    parts = render_perfetto(report.topology, timeline, findings.get(timeline.run))
                    file.writelines(parts)
                written.append(path)
        if not written:
            reason = "no run recorded sched:sched_switch: add it to [capture] of the study"
            if again := study.reports[0].recreate:
                reason = f"{COMPACT_NOTE} {again}, if [capture] has sched:sched_switch"
            raise UserError(reason, file=results.path)
        return "".join(f"{path}\n" for path in written)
