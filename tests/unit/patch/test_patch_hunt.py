"""What the hunt for a regression keeps for the verdict."""

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from numalab.errors import HostError
from numalab.hunt.compare.outcomes import Suspicion
from numalab.hunt.finding import Finding
from numalab.hunt.outcome import Hunt
from numalab.patch import hunting
from numalab.patch.hunting import PatchHunt
from numalab.statistics.sequential import LOOKS


def suspected(prop: str) -> Suspicion:
    """Return a suspicion for which the time was over."""
    return Suspicion(Finding(prop, None, 1.0, 0.0, "why"), False, None, None, 0, 0)


@pytest.mark.parametrize(("failed", "machines"), [("", 3), ("a worker process hangs", 1)])
def test_lost_guests_are_kept_when_the_time_is_over(
    monkeypatch: pytest.MonkeyPatch, failed: str, machines: int
) -> None:
    loss, other = suspected("guest-lost"), suspected("fairness")
    hunts = iter([Hunt(machines=1, suspicions=[other, loss]), Hunt(machines=2), Hunt()])

    def run() -> None:
        if failed:
            raise HostError(failed)

    monkeypatch.setattr(hunting, "Hunter", lambda *_: SimpleNamespace(hunt=next(hunts), run=run))
    nothing = cast(Any, None)
    crew = cast(Any, SimpleNamespace(requested=3))
    hunt = PatchHunt(nothing, nothing, nothing, crew, Path("/nowhere"), lambda _: None)
    outcome = hunt.run(time.monotonic() + 60)
    assert (outcome.losses, outcome.may_fail) == ((loss,), True)
    assert (outcome.machines, outcome.failed) == (machines, failed)


@pytest.mark.parametrize(
    ("missing", "violated", "confirmed"),
    [(0, 2, True), (1, 2, True), (0, 1, False), (2, 2, False), (LOOKS[0], 2, False)],
)
def test_an_invariant_is_not_confirmed_without_values_of_the_baseline(
    missing: int, violated: int, confirmed: bool
) -> None:
    before, after = [0.0] * (LOOKS[0] - missing), [1.0] * violated
    strict = Finding("affinity", 0, 1.0, 0.0, "why")
    assert hunting._is_worse(before, after, strict) is confirmed


@pytest.mark.parametrize(("factor", "confirmed"), [(1.1, True), (1.5, False)])
def test_the_factor_of_a_property_confirms_it(factor: float, confirmed: bool) -> None:
    before, after = ([low + n / 1000 for n in range(LOOKS[0])] for low in (1.0, 1.4))
    quota = Finding("quota", 0, 1.4, 2.0, "why", apart=factor)
    assert hunting._is_worse(before, after, quota) is confirmed
