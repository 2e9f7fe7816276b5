from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from numalab.report.page.timeline import Drawn, of_tasks, on_cpus, packed, stays
from numalab.report.timeline import Span, Timeline
from support.report_sample import timeline


def line(*spans: Span, length: float = 1000.0) -> Timeline:
    return Timeline("before", "r1", length, spans)


def test_few_spans_are_drawn_as_they_are() -> None:
    sample = timeline("after")
    drawn = on_cpus(sample)
    assert drawn.spans == sample.spans
    assert drawn.resolution_ms is None


def test_many_spans_are_merged_and_the_resolution_is_told() -> None:
    sample = timeline("after")
    drawn = on_cpus(sample, most=1000)
    assert drawn.resolution_ms == pytest.approx(sample.length_ms / (1000 // 6))
    assert len(drawn.spans) < len(sample.spans) / 4
    busy = {cpu: sum(s.end_ms - s.start_ms for s in drawn.spans if s.cpu == cpu) for cpu in (2, 6)}
    assert busy[2] == pytest.approx(sample.length_ms)
    assert sample.length_ms - 150 < busy[6] < sample.length_ms - 90


def shown(drawn: Drawn) -> list[tuple[str, float, float]]:
    return [(span.task, span.start_ms, span.end_ms) for span in drawn.spans]


def test_a_bin_shows_the_sort_that_took_most_of_it_and_its_longest_task() -> None:
    # 60 bins of 10 ms.
    busy = [Span(0, 0, n * 2.0, n * 2.0 + 1.9, f"own{n % 2}", True) for n in range(4)]
    other = Span(0, 0, 8.0, 9.9, "other", False)
    mostly_idle = Span(0, 0, 10.0, 14.0, "short", True)
    rest = Span(0, 0, 25.0, 40.0, "long", False)
    drawn = on_cpus(line(*busy, other, mostly_idle, rest, length=600.0), most=1)
    assert shown(drawn) == [("own0", 0.0, 10.0), ("long", 20.0, 40.0)]


def test_stays_are_thinned_by_the_node_that_took_most_of_a_bin() -> None:
    hops = [Span(2 * (n % 2), n % 2, n, n + 0.5, "hog", True) for n in range(20)]
    settled = Span(6, 3, 20.0, 30.0, "hog", True)
    drawn = of_tasks(line(*hops, settled, length=600.0), most=1)
    assert [span.node for span in drawn.spans][-1] == 3
    assert shown(drawn)[-1] == ("hog", 20.0, 30.0)
    assert len(drawn.spans) <= 3


spans = st.builds(
    lambda cpu, start, size, task: Span(cpu, cpu // 2, start, min(100.0, start + size), task, True),
    st.integers(0, 3),
    st.floats(0, 100),
    st.floats(0, 30),
    st.sampled_from(["a", "b"]),
)


@given(st.lists(spans, min_size=1, max_size=30))
def test_merged_spans_stay_in_the_window_and_apart(drawn_spans: list[Span]) -> None:
    drawn = on_cpus(line(*drawn_spans, length=100.0), most=0).spans
    for cpu in range(4):
        mine = [span for span in drawn if span.cpu == cpu]
        assert all(0 <= s.start_ms < s.end_ms <= 100.001 for s in mine)
        assert all(a.end_ms <= b.start_ms + 1e-6 for a, b in pairwise(mine))


def test_a_stay_lasts_until_the_first_run_on_another_node() -> None:
    result = stays(
        line(
            Span(2, 1, 0, 10, "hog", True),
            Span(3, 1, 40, 50, "hog", True),
            Span(6, 3, 70, 80, "hog", True),
            Span(6, 3, 90, 95, "hog", True),
            Span(0, 0, 0, 5, "other", False),
        )
    )
    assert [(s.task, s.node, s.start_ms, s.end_ms) for s in result] == [
        ("hog", 1, 0, 70),
        ("hog", 3, 70, 95),
    ]


def test_a_timeline_without_tasks_of_interest_has_no_stays() -> None:
    assert stays(line(Span(0, 0, 0, 5, "other", False))) == ()
    assert stays(line()) == ()


def test_packing_keeps_microseconds_and_names() -> None:
    columns = packed([Span(2, 1, 0.0014, 2.5, "b", True), Span(0, 0, 3, 4, "a\n", False)])
    assert columns == {
        "tasks": ["a\\x0a", "b"],
        "task": [1, 0],
        "cpu": [2, 0],
        "node": [1, 0],
        "start": [1, 3000],
        "end": [2500, 4000],
        "own": [1, 0],
    }
