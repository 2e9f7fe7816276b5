"""Traces for Perfetto, read back with the descriptors that its own package publishes."""

from collections import defaultdict
from dataclasses import replace
from typing import Any

from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as pb

from numalab.analysis.findings import Decision, TimeSeries
from numalab.report.document import CellReport
from numalab.report.formats.perfetto import PACKETS_IN_PART, render_perfetto
from support.report_sample import HOSTILE, hostile_report, sample_report

BEGIN, END = pb.TrackEvent.TYPE_SLICE_BEGIN, pb.TrackEvent.TYPE_SLICE_END


def rendered(report: CellReport, place: int = 1) -> pb.Trace:
    timeline = report.timelines[place]
    findings = next(run.findings for run in report.findings if run.run == timeline.run)
    parts = list(render_perfetto(report.topology, timeline, findings))
    assert len(parts) > len(timeline.spans) // PACKETS_IN_PART
    trace = pb.Trace.FromString(b"".join(parts))
    assert trace.IsInitialized()
    return trace


def with_findings(report: CellReport, **changed: Any) -> CellReport:
    """Return the report with other findings of all runs."""
    runs = (replace(run, findings=replace(run.findings, **changed)) for run in report.findings)
    return replace(report, findings=tuple(runs))


def tracks(trace: pb.Trace) -> dict[int, Any]:
    descriptors = [p.track_descriptor for p in trace.packet if p.HasField("track_descriptor")]
    return {p.uuid: p for p in descriptors}


def test_every_event_is_on_a_track_that_was_described_before() -> None:
    described = set()
    packets = rendered(sample_report()).packet
    assert packets[0].sequence_flags == pb.TracePacket.SEQ_INCREMENTAL_STATE_CLEARED
    for packet in packets:
        assert packet.trusted_packet_sequence_id == 1
        if packet.HasField("track_descriptor"):
            about = packet.track_descriptor
            assert about.uuid not in described
            assert not about.HasField("parent_uuid") or about.parent_uuid in described
            described.add(about.uuid)
        else:
            assert packet.track_event.track_uuid in described


def test_slices_of_a_track_follow_each_other() -> None:
    """Perfetto drops an end without a begin, and warns of a slice that another cuts."""
    by_track = defaultdict(list)
    report = sample_report()
    line = report.timelines[1]
    # Other tasks of the sample overlap, which no CPU does.
    line = replace(line, spans=tuple(span for span in line.spans if span.of_interest))
    for packet in rendered(replace(report, timelines=(line, line))).packet:
        if packet.track_event.type in (BEGIN, END):
            event = packet.track_event
            by_track[event.track_uuid].append((packet.timestamp, event.type == BEGIN))
    assert len(by_track) == 4 + 8  # CPUs on which hogs ran, and hogs
    for events in by_track.values():
        assert [begins for _, begins in events] == [True, False] * (len(events) // 2)
        assert [at for at, _ in events] == sorted(at for at, _ in events)


def test_cpus_lie_below_their_nodes_and_tasks_below_each_other() -> None:
    by_uuid = tracks(rendered(sample_report()))
    below = {
        (by_uuid[track.parent_uuid].name, track.name)
        for track in by_uuid.values()
        if track.parent_uuid
    }
    assert ("node 2", "CPU 5") in below
    assert ("ring-4: CPUs by node", "node 2") in below
    assert ("tasks of interest", "hog/3") in below
    assert ("Runnable tasks by node", "node 2") in below


def test_a_move_flows_to_the_tasks_next_slice_on_its_new_node() -> None:
    report = sample_report()
    trace = rendered(report)
    events = [(item.timestamp, item.track_event) for item in trace.packet if item.timestamp]
    starts = {flow: (at, event) for at, event in events for flow in event.flow_ids}
    ends = {flow: (at, event) for at, event in events for flow in event.terminating_flow_ids}
    assert set(ends) <= set(starts)
    decisions = report.findings[3].findings.decisions
    assert len(starts) == sum(item.kind != "stick" for item in decisions)
    names = tracks(trace)
    for flow, (at, event) in ends.items():
        assert at >= starts[flow][0]
        assert event.name == "node 3"
        assert names[event.track_uuid].name == names[starts[flow][1].track_uuid].name
    instants = [event for _, event in events if event.name.startswith("numa ")]
    assert len(instants) == len(decisions)
    assert instants[0].debug_annotations[0].string_value.startswith("move: CPU 2 (node 1) to CPU 6")


def test_curves_are_counters_that_change_when_their_step_begins() -> None:
    trace = rendered(sample_report())
    by_uuid = tracks(trace)
    (local,) = (track for track in by_uuid.values() if track.counter.unit_name == "%")
    values = [
        (packet.timestamp, packet.track_event.double_counter_value)
        for packet in trace.packet
        if packet.track_event.track_uuid == local.uuid
    ]
    assert values[:2] == [(0, 21.0), (250_000_000, 29.0)]
    assert len(values) == 20


def test_slices_tell_where_a_counter_only_keeps_its_last_value() -> None:
    report = sample_report()
    at, values = (100.0, 200.0, 300.0, 400.0), (80.0, None, None, 20.0)
    series = TimeSeries("local_faults", "Local", "%", None, at, values)
    trace = rendered(with_findings(report, series=(series,)))
    (gaps,) = (uuid for uuid, track in tracks(trace).items() if "not measured" in track.name)
    events = [packet for packet in trace.packet if packet.track_event.track_uuid == gaps]
    assert {packet.track_event.name for packet in events} == {"not measured", ""}
    times = [packet.timestamp // 1_000_000 for packet in events]
    assert times == [100, 300, 400, 5000]


def test_a_decision_about_a_task_that_is_not_of_interest_has_no_flow() -> None:
    move = Decision(0.0, "move", 999, "sshd", 2, 1, 6, 3)
    trace = rendered(with_findings(sample_report(), decisions=(move,)))
    by_uuid = tracks(trace)
    (event,) = (p.track_event for p in trace.packet if p.track_event.name == "numa move")
    track = by_uuid[event.track_uuid]
    assert (track.name, by_uuid[track.parent_uuid].name) == ("sshd/999", "other tasks")
    assert not event.flow_ids
    ranks = {track.name: track.sibling_order_rank for track in by_uuid.values()}
    assert ranks["tasks of interest"] < ranks["other tasks"]


def test_hostile_names_are_shown_as_what_they_are() -> None:
    names = {track.name for track in tracks(rendered(hostile_report(), 0)).values()}
    assert HOSTILE[0] in names
    assert "\\u202egnp.exe\\u2066" in names


def test_a_run_without_spans_or_findings_is_still_a_trace() -> None:
    report = sample_report()
    empty = replace(report.timelines[0], spans=())
    trace = pb.Trace.FromString(b"".join(render_perfetto(report.topology, empty)))
    assert len(tracks(trace)) == 1 + 4 + 8 + 1


def test_a_cpu_that_the_machine_lacks_has_no_node() -> None:
    report = sample_report()
    timeline = report.timelines[1]
    spans = tuple(replace(span, node=None) for span in timeline.spans)
    parts = render_perfetto(report.topology, replace(timeline, spans=spans))
    trace = pb.Trace.FromString(b"".join(parts))
    names = {packet.track_event.name for packet in trace.packet if packet.track_event.name}
    assert any(name.startswith("CPU ") for name in names)
    assert not any(name.startswith("node ") for name in names)
