"""A second program for the verdicts on claims. It shares no code with numalab.

It reads the study's file and the stored runs by itself, and follows the same rule in another way:
p values by scipy's permutation test, verdicts by p values alone, intervals by bisection.
"""

import json
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import exp, inf, log
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from scipy import stats

Claim = Mapping[str, Any]
LEVEL, TINY, FAR = 0.05, 1e-9, 1e5  # no shift is larger
TIMES = ("s", "ms", "us", "ns")
HALF = {"count": 0.0, "ratio": 0.5, "linear": 0.5}  # a unit of the last digit; counts are exact
NUMBER = r"(\d[\d,]*(?:\.\d+)?)"


def distance(first: Any, second: Any, axis: int) -> Any:
    return np.round(np.abs(np.mean(first, axis=axis) - np.mean(second, axis=axis)), 9)


@dataclass(frozen=True)
class Opinion:
    """A verdict with its p value, its level and its interval, in percent or points."""

    verdict: str
    p_value: float | None = None
    level: float | None = None
    interval: tuple[float, float] | None = None


@dataclass(frozen=True)
class Question:
    """A claim with its samples on their scale."""

    claim: Claim
    scale: str
    before: Sequence[float]
    after: Sequence[float]
    fires: bool | None

    def p_of(self, shift: float) -> float:
        """The two-sided p value of a shift; scipy draws every split, up to 10 and 10 runs."""
        moved = [value - shift for value in self.after]
        if min(len(moved), len(self.before)) < 2:  # scipy refuses one run a side
            return 1.0
        many = {"n_resamples": 200_000, "batch": 20_000, "alternative": "greater"}
        return float(stats.permutation_test((self.before, moved), distance, **many).pvalue)

    @cached_property
    def shift(self) -> float:
        return float(np.mean(self.after) - np.mean(self.before))

    @cached_property
    def margin(self) -> tuple[float, float]:
        margin = self.claim.get("margin", 5.0)
        return as_shift(-margin, self.scale), as_shift(margin, self.scale)

    @cached_property
    def p_value(self) -> float:
        if self.claim["direction"] != "same":
            return self.p_of(0.0)
        low, high = self.margin
        return max(map(self.p_of, self.margin)) if low < self.shift < high else 1.0

    def holds(self, shift: float, level: float) -> bool:
        """Whether the interval at this level holds a shift: the test does not reject it."""
        return self.p_of(shift) > level + TINY

    def interval(self, level: float) -> tuple[float, float]:
        """The interval in percent or points, by bisection of the p value."""
        low, high = self.end(level, -FAR), self.end(level, FAR)
        if self.scale == "linear":
            return low, high
        return 100 * (exp(low) - 1), inf if high == inf else 100 * (exp(high) - 1)

    def end(self, level: float, far: float) -> float:
        inner, outer = self.shift, self.shift + far
        if self.holds(outer, level):
            return inf if far > 0 else -inf
        while abs(outer - inner) > 1e-5:
            middle = (inner + outer) / 2
            inner, outer = (middle, outer) if self.holds(middle, level) else (inner, middle)
        return inner

    def verdict(self, level: float) -> str:
        inside = self.margin[0] < self.shift < self.margin[1]
        at_margin = [self.holds(end, level) for end in self.margin]
        within = inside and not any(at_margin)
        idle = "cannot be seen" if self.fires is None else ""
        if self.claim["direction"] == "same":
            if not (inside or any(at_margin)):
                return "refuted"
            return ("reproduced" if within else "inconclusive") if self.fires else idle or "vacuous"
        sign = -1 if self.claim["direction"] == "lower" else 1
        beyond = sign * self.margin[(sign + 1) // 2], inf  # any change in that direction
        published = self.published(sign) or beyond
        between = published[0] <= sign * self.shift <= published[1]
        hit = between or any(self.holds(sign * end, level) for end in published if end < inf)
        if not self.holds(0.0, level):
            right = "reproduced" if hit else "direction only"
            return right if sign * self.shift > 0 else "refuted"
        return ("inconclusive" if hit else "refuted") if self.fires else idle or "not reached"

    def published(self, sign: int) -> tuple[float, float] | None:
        """The shifts that round to the published ones, positive in the claimed direction."""
        text, shifts = self.claim.get("published", ""), []
        for pair in re.findall(rf"(?<![\w.+-]){NUMBER} ?%? to {NUMBER}", text):
            first, second = (scaled(about(part, HALF[self.scale]), self.scale) for part in pair)
            shifts += [second[1] - first[0], second[0] - first[1]]
        signed = re.findall(r"(?<![\w.])([+-]\d+(?:\.\d+)?) ?%", text)
        percents = [end for percent in signed for end in about(percent, 0.5)]
        shifts = shifts or [as_shift(percent, self.scale) for percent in percents]
        falls = self.scale == "count" and sign < 0  # no count falls below 0
        most = float(np.mean(self.before)) - log(0.5) if falls else inf
        ends = sorted(min(sign * shift, most) for shift in shifts) or [0.0]
        only_direction = ends[0] <= 0 and ends[-1] <= abs(self.margin[(sign + 1) // 2])
        return None if only_direction else (ends[0], ends[-1])


def about(text: str, half: float) -> tuple[float, float]:
    """The numbers that round to a printed one; `half` is that of its last digit."""
    value, unit = float(text.replace(",", "")), 10.0 ** -len(text.partition(".")[2])
    return value - half * unit, value + half * unit


def as_shift(percent: float, scale: str) -> float:
    return percent if scale == "linear" else log(1 + percent / 100)


def scaled(values: Sequence[float], scale: str) -> list[float]:
    added = {"count": 0.5, "ratio": 0.0}.get(scale)
    return list(values) if added is None else [log(value + added) for value in values]


def level_of(primary: bool, p_values: Sequence[float], size: int) -> float:
    p_values = [*p_values, *[1.0] * (size - len(p_values))]
    if not primary:
        shown = int(sum(stats.false_discovery_control(p_values) <= LEVEL + TINY))
        return LEVEL * max(shown, 1) / size
    steps = (p_value > LEVEL / (size - n) + TINY for n, p_value in enumerate(sorted(p_values)))
    return LEVEL / (size - max([*steps, True].index(True), 1) + 1)


def opinions(study: Path, results: Path) -> dict[tuple[str, str, str], Opinion]:
    """Return the verdicts by topology, label and text of the claim."""
    file = tomllib.loads(study.read_text(encoding="utf-8"))
    table = pl.read_parquet(results)
    plan = json.loads(table["plan"].drop_nulls()[0])
    modes = {json.loads(text)["mode"] for text in table["manifest"].drop_nulls()}
    first, questions = next(iter(file["variants"])), {}
    cells = {(run["topology"], run["workload"]) for run in plan["runs"]}
    for claim in (claim for claim in file.get("claims", []) if claim.get("direction")):
        for topology, label in cells:
            if claim.get("topology", topology) != topology or claim.get("workload", label) != label:
                continue
            here = table.filter(topology=topology, workload=label)
            questions[topology, label, claim["text"]] = ask(claim, here, first, modes)
    judged = {key: question for key, question in questions.items() if question}
    texts = {claim["text"] for claim in file.get("claims", []) if claim.get("primary")}
    primary = [key for key in questions if key[2] in texts]
    levels = {}
    for of, least in ((True, max(len(primary), file.get("primary_claims", 0))), (False, 1)):
        p_values = [q.p_value for key, q in judged.items() if (key in primary) == of]
        levels[of] = level_of(of, p_values, max(least, len(p_values), 1))
    return {key: opinion(question, levels[key in primary]) for key, question in questions.items()}


def opinion(question: Question | None, level: float) -> Opinion:
    if question is None:
        return Opinion("cannot be seen")
    interval = question.interval(level) if len(question.before) <= 5 else None  # takes its time
    return Opinion(question.verdict(level), question.p_value, level, interval)


def ask(claim: Claim, here: pl.DataFrame, first: str, modes: set[str]) -> Question | None:
    """Return a claim with its samples; None if it cannot be seen."""
    measured = here.filter(measure=claim["measure"])
    rows = [measured.filter(variant=claim[side]) for side in ("from", "to")]
    before, after = (row["value"].drop_nulls().to_list() for row in rows)
    if not (before and after) or (rows[0]["kind"][0] == "timing" and modes != {"timed"}):
        return None
    unit = rows[0]["unit"][0]
    usual = "linear" if unit == "%" else "ratio" if unit in TIMES or "/" in unit else "count"
    scale = claim.get("scale", usual)
    fires: bool | None = bool(claim["direction"] != "lower" or np.median(np.sign(before)) > 0.5)
    if fires and "mechanism" in claim:
        acts = here.filter(variant=first, measure=claim["mechanism"])["value"].drop_nulls()
        fires = 2 * int((acts > 0).sum()) > len(acts) if len(acts) else None
    return Question(claim, scale, scaled(before, scale), scaled(after, scale), fires)
