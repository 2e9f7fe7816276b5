"""Finds the line from the trace's clock to the memory model's.

The model's time is QEMU's virtual time, which begins with the machine; the trace's clock begins
with the kernel, and runs by how fast the kernel found its TSC to be. Both have the moments at which
CPUs changed tasks: the model by the instruction that loads the next task's stack pointer, the trace
by `sched_switch`, a microsecond or so before. The line through these pairs turns one into the
other.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

Times = npt.NDArray[np.int64]
_Floats = npt.NDArray[np.float64]
_MOST_DRIFT = 200e-6  # a kernel that measures its TSC by the PIT is off by less
# The first guess: steps of the rate, the width of bins of time, and the bins around each one that
# tell how rare a switch is there.
_STEP, _NARROWEST_NS, _WIDEST_NS, _AROUND, _MOST_BINS = 20e-6, 20_000, 100_000, 32, 1 << 17
# The closer look: steps of the rate, the width of bins of the difference, and how many bins in a
# row one peak may fill.
_CLOSE_STEP, _CLOSE_BINS, _MOST_NEAR = 2e-6, (10_000, 2), 256
_BENDS_NS = 200_000  # 50 ppm, as the first of two measurements of the TSC may be off, in 4 s
_BEND_BINS = (5_000, 4)
_MOST_BENDS, _FEWEST_IN_BEND, _LONG_NS = 64, 48, 5e8
NEAR_NS = 25_000  # a switch and what the trace says of it: tracing lies between them
_FEWEST = 8
_SHARE = 0.5  # of the model's switches within the recording that must have their pair
_NO_LINE = (
    "no difference between the two clocks fits: only {} of {} task switches that it saw during the "
    "recording are in it (sched_switch)"
)


@dataclass(frozen=True)
class GuestTime:
    """Virtual time is `trace_ns * rate + offset_ns` and a correction. `bends` are trace times and
    their corrections: a kernel measures its TSC again a few seconds after boot.
    """

    rate: float
    offset_ns: float
    bends: tuple[tuple[float, float], ...] = ((0.0, 0.0),)

    def of_trace(self, trace_ns: Times) -> Times:
        """Convert times of the trace to virtual times."""
        more = np.interp(trace_ns, *self._bends())
        virtual: Times = np.rint(trace_ns * self.rate + self.offset_ns + more).astype(np.int64)
        return virtual

    def _bends(self) -> tuple[list[float], list[float]]:
        return [time for time, _ in self.bends], [more for _, more in self.bends]

    def of_model(self, virtual_ns: Times) -> Times:
        """Convert virtual times to times of the trace."""
        about = (virtual_ns - self.offset_ns) / self.rate
        more = np.interp(about, *self._bends())
        traced: Times = np.rint(about - more).astype(np.int64)
        return traced


def find_guest_time(since: dict[int, Times], traced: dict[int, Times]) -> GuestTime | str:
    """Find the line from one clock to the other, or return why there is none: fewer than half of
    the model's switches during the recording have a switch in the trace.

    `since` and `traced` are the times of each CPU's switches, ascending. Of all lines through a
    pair of switches, the one with most pairs on it is fitted to these (Hough 1962).
    """
    cpus = [cpu for cpu in since if len(since[cpu]) and len(traced.get(cpu, ()))]
    switches = sum(len(since[cpu]) for cpu in cpus)
    if switches < _FEWEST:
        return f"it saw only {switches} task switches on CPUs of the recording (sched_switch)"
    since, traced = ({cpu: table[cpu] for cpu in cpus} for table in (since, traced))
    clock, step, width = _guessed(since, traced)
    x, y = _pairs(since, traced, clock, 2 * width)
    if not len(x):
        return _NO_LINE.format(0, switches)
    rates = np.arange(-step, step, _CLOSE_STEP) + clock.rate - 1.0
    rate, offset = _peak(x, y - x, [*rates.tolist(), clock.rate - 1.0], *_CLOSE_BINS)
    clock = _fitted(x, y, GuestTime(1.0 + rate, offset))
    clock = _bent(*_pairs(since, traced, clock, _BENDS_NS), clock)
    # A task without counts is in no row of the model: not every switch of the trace has its pair.
    ends = [min(int(times[0]) for times in traced.values())]
    ends.append(max(int(times[-1]) for times in traced.values()))
    begin, end = clock.of_trace(np.array(ends)) + np.array([-NEAR_NS, NEAR_NS])
    inside = {cpu: times[(times > begin) & (times < end)] for cpu, times in since.items()}
    met = sum(_met(inside[cpu], traced[cpu], clock) for cpu in cpus)
    switches = sum(map(len, inside.values()))
    if switches < _FEWEST:
        return f"it saw only {switches} task switches during the recording (sched_switch)"
    if met < _SHARE * switches:
        return _NO_LINE.format(met, switches)
    return clock


def _guessed(since: dict[int, Times], traced: dict[int, Times]) -> tuple[GuestTime, float, float]:
    """Return the line with most of the model's switches near one of the trace, the step between
    the rates that were tried, and the width of a bin in ns.

    A switch in a bin counts by as much as such bins are rare around it: where tasks change densely,
    a switch is near some other one at any offset.
    """
    x0, y0 = (min(int(times[0]) for times in table.values()) for table in (traced, since))
    x1, y1 = (max(int(times[-1]) for times in table.values()) for table in (traced, since))
    span = x1 - x0
    width = max(min(_STEP * span, _WIDEST_NS), _NARROWEST_NS, max(span, y1 - y0) / _MOST_BINS)
    longest = span * (1.0 + _MOST_DRIFT) + y1 - y0
    bins = 1 << int(longest / width + 3 * _AROUND).bit_length()
    step = min(max(_STEP, width / max(span, 1)), _MOST_DRIFT)
    many = int(_MOST_DRIFT / step)
    spectra = {
        cpu: np.fft.rfft(np.bincount(((times - y0) / width).astype(np.int64), minlength=bins))
        for cpu, times in since.items()
    }
    best = (-1.0, 0.0, 0.0, 0)
    for rate in (place * step for place in range(-many, many + 1)):
        product = np.zeros(bins // 2 + 1, np.complex128)
        for cpu, times in traced.items():
            rare = _rare(((times - x0) * ((1.0 + rate) / width)).astype(np.int64), bins)
            product += spectra[cpu] * np.conj(np.fft.rfft(rare))
        scores = np.fft.irfft(product, bins)
        most = int(np.argmax(scores))
        best = max(best, (round(float(scores[most]), 3), -abs(rate), rate, most))
    _, _, rate, most = best
    late = (most if most < (y1 - y0) / width + _AROUND else most - bins) + 0.5
    return GuestTime(1.0 + rate, late * width + y0 - x0 * (1.0 + rate)), step, width


def _rare(places: Times, bins: int) -> _Floats:
    """Return for each bin whether it or the one before has a switch (1 or 0), less the share of
    such bins around it."""
    has = np.zeros(bins)
    has[places] = has[places + 1] = 1.0
    sums = np.cumsum(np.concatenate([has[-_AROUND:], has, has[:_AROUND]]))
    share: _Floats = (sums[2 * _AROUND :] - sums[: -2 * _AROUND]) / (2 * _AROUND)
    return has - share


def _pairs(
    since: dict[int, Times], traced: dict[int, Times], clock: GuestTime, near_ns: float
) -> tuple[_Floats, _Floats]:
    """Return the pairs of switches of one CPU near a clock: the trace's and the model's time."""
    xs, ys = [np.empty(0)], [np.empty(0)]
    for cpu, times in traced.items():
        late = clock.of_trace(times)
        first, end = (np.searchsorted(late, since[cpu] + side) for side in (-near_ns, near_ns))
        for place in range(min(int((end - first).max()), _MOST_NEAR)):
            has = first + place < end
            xs.append(times[(first + place)[has]].astype(np.float64))
            ys.append(since[cpu][has].astype(np.float64))
    return np.concatenate(xs), np.concatenate(ys)


def _peak(
    x: _Floats, late: _Floats, rates: Sequence[float], width: int, bins: int
) -> tuple[float, float]:
    """Return the rate and offset of the line with most pairs, within `bins` bins of `width` ns.

    In a short recording many rates have as many: the clocks then run alike, as far as one can tell.
    """
    best = (-1, 0.0, 0.0, 0.0)
    for rate in rates:
        places, counts = np.unique(np.floor((late - rate * x) / width), return_counts=True)
        in_row = counts.copy()
        for further in range(1, bins):
            follows = np.searchsorted(places, places + further)
            nearest = np.minimum(follows, len(places) - 1)
            in_row += np.where(places[nearest] == places + further, counts[nearest], 0)
        most = int(np.argmax(in_row))
        offset = float((places[most] + bins / 2) * width)
        best = max(best, (int(in_row[most]), -abs(rate), rate, offset))
    return best[2], best[3]


def _met(since: Times, traced: Times, clock: GuestTime) -> int:
    """Count the model's switches that have a switch of the trace near."""
    times = clock.of_trace(traced)
    first, end = (np.searchsorted(times, since + side) for side in (-NEAR_NS, NEAR_NS))
    return int((first < end).sum())


def _fitted(x: _Floats, y: _Floats, clock: GuestTime) -> GuestTime:
    """Fit a line by least squares to the pairs near a clock; where they span too little time to
    tell its rate, the offset alone."""
    late = y - x * clock.rate - clock.offset_ns
    near = np.abs(late) <= NEAR_NS
    x, late = x[near], late[near]
    if len(x) < _FEWEST or np.ptp(x) < _LONG_NS:
        return GuestTime(clock.rate, clock.offset_ns + float(np.median(late)))
    middle = float(x.mean())
    slope, rest = (float(term) for term in np.polyfit(x - middle, late, 1))
    return GuestTime(clock.rate + slope, clock.offset_ns + rest - slope * middle)


def _bent(x: _Floats, y: _Floats, clock: GuestTime) -> GuestTime:
    """Bend a line to most pairs in each part of the time; a part is half a second or longer."""
    late = y - x * clock.rate - clock.offset_ns
    near = np.abs(late) <= _BENDS_NS
    x, late = x[near], late[near]
    parts = min(_MOST_BENDS, len(x) // _FEWEST_IN_BEND, int(np.ptp(x) / _LONG_NS)) if len(x) else 0
    if parts < 2:
        return clock
    ends = np.linspace(x.min(), x.max(), parts + 1)
    bends = []
    for begin, end in pairwise(ends.tolist()):
        here = (x >= begin) & (x <= end)
        if here.sum() >= _FEWEST_IN_BEND:
            _, middle = _peak(x[here], late[here], [0.0], *_BEND_BINS)
            close = np.abs(late[here] - middle) <= NEAR_NS
            bends.append((float(np.median(x[here])), float(np.median(late[here][close]))))
    return GuestTime(clock.rate, clock.offset_ns, tuple(bends)) if bends else clock
