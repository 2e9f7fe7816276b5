"""The noise of properties: how far two boots of equal kernels are apart, by chance."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from numalab.hunt.finding import APART, Finding

# Excess that counts as no more than this, so that a value of 0 on one side does not decide alone.
_MOST = 10.0


@dataclass(frozen=True)
class Noise:
    """The ratio that 98 % of the pairs of loads of two equal kernels stay below.

    `floor` is added to both values before they are compared, so that small numbers are alike.
    """

    floor: float
    ratio: float


# Measured with three boots of debian-6.12 with different seeds, of each of eight cases of 24 loads;
# qemu-10.0, mode icount. Differential properties have a floor and a ratio of their own.
NOISE: Mapping[str, Noise] = {
    "reachability": Noise(0.05, 2.0),
    "work-conservation": Noise(50.0, 2.4),
    "idle-neighbours": Noise(4.0, 2.0),
    "lost-time": Noise(0.05, 2.0),
    "spread": Noise(0.7, 1.6),
    "fairness": Noise(0.0, 1.25),
    "lag": Noise(4.0, 1.3),
    "proportion": Noise(0.4, 1.2),
    "ping-pong": Noise(2.0, 2.0),
    "wandering": Noise(2.0, 2.4),
    "wake-up-latency": Noise(1.0, 1.4),
    "response": Noise(4.0, 1.6),
    "priority": Noise(50.0, 1.9),
    "starvation": Noise(10.0, 1.5),
    "deadline": Noise(0.0, 1.1),
    "tardiness": Noise(0.1, 1.25),
    "lock-wait": Noise(35.0, 1.3),
    "numa-convergence": Noise(0.5, 2.2),
    "numa-moves": Noise(1.6, 1.9),
    "numa-sticks": Noise(2.0, 1.6),
    "page-moves": Noise(150.0, 2.2),
    "storms": Noise(500.0, 1.7),
    "quota": Noise(0.0, 1.2),
    "quota-turns": Noise(0.05, 2.0),  # the most of 16 pairs of five loads
    "group-shares": Noise(0.0, 1.1),
    "utilization": Noise(60.0, 1.5),
    "account": Noise(8.0, 1.4),
    "group-account": Noise(8.0, 1.4),  # of 125 pairs of loads
}
_USUAL_RATIO = 3.0
_LEAST_RATIO, _OF_MEANS = 1.1, 0.6


def noise_of(finding: Finding) -> Noise:
    """Return the noise of a finding's property; that of a plug-in is taken to be large."""
    if finding.differential:
        return Noise(0.0, finding.apart)
    usual = finding.most if finding.suspect is None else finding.suspect
    return NOISE.get(finding.prop, Noise(usual / 2, _USUAL_RATIO))


def least_ratio(prop: str) -> float:
    """Return the smallest ratio of means to the reference kernel's that counts.

    It is below APART for a property with a limit and with little noise: the means are of nine
    samples each.
    """
    noise = NOISE.get(prop, Noise(0.0, _USUAL_RATIO))
    if noise.floor:
        return APART
    return min(APART, max(_LEAST_RATIO, math.pow(noise.ratio, _OF_MEANS)))


def ratio_of_means(finding: Finding) -> float:
    """Return the smallest ratio to the reference kernel's mean that counts.

    Means of nine samples vary less than the single values that `apart` of a differential property
    is measured with.
    """
    if not finding.differential:
        return finding.apart
    return max(_LEAST_RATIO, math.pow(finding.apart, _OF_MEANS))


def excess(mine: Finding, theirs: Finding) -> float:
    """Return how far a kernel's value is above the reference kernel's, in units of the noise.

    1 is what 2 % of the pairs of equal kernels exceed; negative if the value is smaller.
    """
    noise = noise_of(mine)
    high, low = mine.value + noise.floor, theirs.value + noise.floor
    if high == low:
        return 0.0
    if high <= 0 or low <= 0:
        return math.copysign(_MOST, high - low)
    return max(-_MOST, min(_MOST, math.log(high / low) / math.log(noise.ratio)))
