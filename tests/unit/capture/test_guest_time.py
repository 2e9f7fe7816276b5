"""The line from the trace's clock to the model's: random clocks, and switches that leave doubt."""

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from numalab.capture.guest_time import NEAR_NS, find_guest_time

SLICE_NS = 10_000_000
START = 1_000_000_000

Times = npt.NDArray[np.int64]


def traced(chance: np.random.Generator, length_ns: int, dense_ns: int, share: float) -> Times:
    """Switches every 2 ms or so, and in a part of the time every `dense_ns`."""
    sparse = chance.integers(0, length_ns, 10 + length_ns // 2_000_000)
    steps = chance.normal(dense_ns, dense_ns / 20, int(share * length_ns / dense_ns))
    dense = chance.uniform(0, 1 - share) * length_ns + np.cumsum(steps)
    return np.unique(np.concatenate([sparse, dense.astype(np.int64)])) + START


def modelled(chance: np.random.Generator, times: Times) -> Times:
    """What the model keeps: the last switch to each of two tasks in a slice, and also those long
    before and after the recording."""
    kept = {(time // SLICE_NS, place % 2): time for place, time in enumerate(times.tolist())}
    around = chance.integers(SLICE_NS, 60 * SLICE_NS, (2, len(kept)))
    return np.unique([*kept.values(), *(times[0] - around[0]), *(times[-1] + around[1])])


@given(
    seed=st.integers(0, 1 << 32),
    offset=st.integers(-100_000_000, 3_000_000_000),
    drift=st.integers(-150, 150),
    length_ms=st.integers(80, 2000),
    dense_us=st.integers(5, 200),
    share=st.floats(0, 0.95),
    missing=st.floats(0, 0.2),
    jitter_ns=st.integers(1000, 8000),
)
@example(
    seed=1, offset=51_150_000, drift=0, length_ms=100, dense_us=50, share=0.6, missing=0.0,
    jitter_ns=5000,
)  # fmt: skip
@example(
    seed=2, offset=174_000_000, drift=20, length_ms=100, dense_us=5, share=0.5, missing=0.1,
    jitter_ns=6000,
)  # fmt: skip
def test_the_clock_is_found_where_tasks_change_densely(
    *, seed: int, offset: int, drift: int, length_ms: int, dense_us: int, share: float,
    missing: float, jitter_ns: int,
) -> None:  # fmt: skip
    chance, rate = np.random.default_rng(seed), 1 + drift * 1e-6
    in_trace, in_model = {}, {}
    for cpu in range(4):
        times = traced(chance, length_ms * 1_000_000, dense_us * 1000, share * (cpu < 2))
        late = np.rint(times * rate + offset + chance.integers(500, jitter_ns, len(times)))
        in_model[cpu] = modelled(chance, late.astype(np.int64))
        in_trace[cpu] = times[chance.random(len(times)) > missing]
    clock = find_guest_time(in_model, in_trace)
    assert not isinstance(clock, str), clock
    when = np.linspace(START, START + length_ms * 1_000_000, 20).astype(np.int64)
    assert np.abs(clock.of_trace(when) - np.rint(when * rate + offset)).max() < NEAR_NS


@pytest.mark.parametrize(
    ("end", "why"),
    [
        (START + 1, "it saw only 1 task switches during the recording"),
        (1 << 62, "task switches that it saw during the recording are in it"),
    ],
)
def test_switches_that_fit_nowhere_have_no_clock(end: int, why: str) -> None:
    times = np.array([START, end])
    far = np.linspace(START, 1 << 62, 20).astype(np.int64)
    reason = find_guest_time({0: far}, {0: times})
    assert isinstance(reason, str)
    assert why in reason


def test_too_few_switches_have_no_clock() -> None:
    times = np.arange(5) * SLICE_NS
    for traced_times in ({0: times}, {1: times}, {}):
        reason = find_guest_time({0: times}, traced_times)
        assert isinstance(reason, str) and reason.startswith("it saw only ")


def test_too_few_switches_during_the_recording_have_no_clock() -> None:
    times = START + np.cumsum(np.arange(8)) * SLICE_NS
    reason = find_guest_time({0: times + 300_000_000}, {0: times[:-1]})
    assert reason == "it saw only 7 task switches during the recording (sched_switch)"


@pytest.mark.parametrize("late_ns", [0, 1200, 5000])
def test_the_first_and_the_last_switch_are_during_the_recording(late_ns: int) -> None:
    times = START + np.cumsum(np.arange(8)) * SLICE_NS
    clock = find_guest_time({0: times + 300_000_000 + late_ns}, {0: times})
    assert not isinstance(clock, str), clock
    assert np.abs(clock.of_trace(times) - times - 300_000_000 - late_ns).max() <= 1
