"""Why nothing will judge a claim, as far as the mode and the capture of a study tell it."""

from collections.abc import Iterator

from numalab.analysis.measures.command import perf_info
from numalab.analysis.measures.family import family_of
from numalab.capture.counters import perf_measure_name
from numalab.capture.spec import CaptureSpec
from numalab.measure import Measure, MeasureInfo, MeasureKind, SourceKind, valid_in
from numalab.recording.events import filtered_events
from numalab.recording.recording import recorded_events
from numalab.study.claim_rules import info_of
from numalab.study.claims import Claim
from numalab.workload.workload import BoundWorkload


def why_unseen(claim: Claim, workload: BoundWorkload, capture: CaptureSpec, mode: str) -> str:
    """Return why no run in this mode can give the claim's measure or mechanism; empty if one may.

    Raises UserError for an undefined measure.
    """
    if claim.direction and (why := not_of_hardware(claim, workload, capture, mode)):
        return why
    if why := _not_given(_measured(claim, workload, capture), capture, mode):
        return why
    if claim.mechanism is None:
        return ""
    why = _not_given(info_of(claim.mechanism, workload), capture, mode)
    return why and f"where nothing changes, as {why}"


def not_of_hardware(claim: Claim, workload: BoundWorkload, capture: CaptureSpec, mode: str) -> str:
    """Return why the values of a claim are not those of hardware; empty if they may be.

    Bounds are judged all the same. Raises UserError for an undefined measure.
    """
    is_time = _measured(claim, workload, capture).kind is MeasureKind.TIMING
    emulated = is_time and mode in ("icount", "tcg")
    return f"times of mode {mode} are not those of hardware" if emulated else ""


def _measured(claim: Claim, workload: BoundWorkload, capture: CaptureSpec) -> MeasureInfo:
    counted = (perf_info(event) for event in capture.perf_stat)
    info = next((info for info in counted if info.name == claim.measure), None)
    return info or info_of(claim.measure, workload)


def _not_given(info: MeasureInfo, capture: CaptureSpec, mode: str) -> str:
    if valid_in({info.name: Measure(info, 0)}, mode)[info.name].value is None:
        return f"mode {mode} does not give {info.name}"
    if info.comes_from(SourceKind.MODEL) and mode != "timed":
        return f"only mode timed gives {info.name}"
    return ", ".join(_lacking(info, capture))


def _lacking(info: MeasureInfo, capture: CaptureSpec) -> Iterator[str]:
    """Yield what `[capture]` lacks for a measure."""
    for source in info.sources:
        match source.kind:
            case SourceKind.TRACE:
                yield from _events(info.name, source.what, capture)
            case SourceKind.PERF if info.name not in map(perf_measure_name, capture.perf_stat):
                yield "capture.perf_stat does not count it"
            case SourceKind.GUEST if source.what.startswith("numastat") and not capture.numastat:
                yield "it needs capture.numastat = true"
            case SourceKind.GUEST if "PID" in source.what and "tasks" not in capture.sample:
                yield 'it needs capture.sample = ["tasks"]'


def _events(name: str, what: str, capture: CaptureSpec) -> Iterator[str]:
    recorded = recorded_events([event.name for event in capture.events])
    filtered = filtered_events(capture)
    needed = [event for event in what.split(", ") if event.isidentifier()]
    absent = [event for event in needed if event not in recorded]
    partial = [event for event in needed if event in recorded and event in filtered]
    family = family_of(name)
    if family is not None and family.any_event and len(absent) + len(partial) < len(needed):
        return
    if absent:
        yield f"capture does not record {' and '.join(absent)}"
    if partial:
        yield f"capture filters {' and '.join(partial)}"
