"""Which violations a hunt confirms, with and without a reference kernel."""

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from numalab.cli.hunt.hunt_output import hunt_text, hunt_value
from numalab.errors import HostError
from numalab.guest.kvm import Choice
from numalab.hunt.boot_case import HuntBench
from numalab.hunt.calls.findings import quantity_of
from numalab.hunt.calls.trend import CallTrend, CallTrends
from numalab.hunt.case import Case
from numalab.hunt.compare.leftovers import Leftovers
from numalab.hunt.compare.run_queues import RunQueues, Word
from numalab.hunt.confirm import SEEDS, FreshBoots
from numalab.hunt.finding import BootResult, Finding, limit_between
from numalab.hunt.hunting import ROUND, Aim, Hunter
from numalab.hunt.loads.kinds import classes
from numalab.hunt.loads.load_text import parse_loads, render_loads
from numalab.hunt.property import CALLS, DOMAINS, LEFT, LOST, SPLAT
from numalab.hunt.result.page import HuntFacts
from numalab.hunt.result.page import outcome as page_outcome
from numalab.hunt.simplify.simplify import fewest_loads
from numalab.hunt.suspects.suspect import Suspect
from numalab.hunt.workers import Boot, BudgetOverError, CaseWorkers, Watch
from numalab.patch.hunting import PatchHunt

PROP = "reachability"
ICOUNT = Choice("icount", "host", "asked for")


@dataclass(frozen=True)
class FakeBench:
    """A bench of which only the name counts."""

    name: str
    scheduler: None = None
    title: str = "mine"
    choice: Choice = ICOUNT
    saves: bool = field(default=True, compare=False)

    @property
    def kernel(self) -> "FakeBench":
        """What has the name of the kernel: this."""
        return self

    def for_confirmation(self) -> "FakeBench":
        return self

    def for_new_machines(self) -> "FakeBench":
        return replace(self, saves=False)


MINE, THEIRS = (cast(HuntBench, FakeBench(name)) for name in ("mine", "theirs"))
Shown = Callable[[HuntBench, int], tuple[float, bool]]


@dataclass
class FakeWorkers:
    """Answers from a rule, and keeps which boots were asked for."""

    shown: Shown
    count: int = 1
    requested: int = 0
    booted: list[tuple[HuntBench, int]] = field(default_factory=list)
    deadline: float | None = None

    def boot(self, boots: Sequence[Boot]) -> list[BootResult]:
        self.requested += len(boots)
        self.booted += [(bench, seed) for _, bench, seed in boots]
        results = []
        for case, bench, seed in boots:
            value, weak = self.shown(bench, seed)
            findings = [
                Finding(PROP, n, value, 0.5, "idle", weak, 0.1) for n in range(len(case.loads))
            ]
            results.append(BootResult(tuple(findings), 1.0))
        return results


class Failing(FakeWorkers):
    """All of their boots fail."""

    def boot(self, boots: Sequence[Boot]) -> list[BootResult]:
        super().boot(boots)
        return [BootResult((), 1.0, "no load can be judged: why")] * len(boots)


def test_a_hunt_whose_first_boots_all_fail_ends_with_the_reason() -> None:
    workers = Failing(lambda _bench, _seed: (0.0, False))
    crew = cast(CaseWorkers, workers)
    aim = Aim(1, frozenset({PROP}), 60.0)
    with pytest.raises(HostError, match="mine: no load can be judged: why"):
        Hunter(aim, MINE, crew, lambda _: None).run()
    assert workers.requested == ROUND
    hunt = PatchHunt(MINE, THEIRS, (MINE, THEIRS), crew, Path("/nowhere"), lambda _: None)
    outcome = hunt.run(time.monotonic() + 60)
    assert (outcome.case, outcome.failed) == (None, "mine: no load can be judged: why")


class Unrecorded(FakeWorkers):
    """The recordings of all of their boots are damaged; the kernel log is not."""

    def boot(self, boots: Sequence[Boot]) -> list[BootResult]:
        return [
            BootResult((Finding(SPLAT, None, self.shown(bench, seed)[0], 0.0, "a warning"),), 1.0,
                       "no load can be judged: why", unjudged=len(case.loads))
            for case, bench, seed in boots
        ]  # fmt: skip


def test_a_warning_is_confirmed_without_a_recording() -> None:
    crew = cast(CaseWorkers, Unrecorded(lambda bench, _seed: (float(bench == MINE), False)))
    aim = Aim(1, frozenset({SPLAT}), 60.0, machines=ROUND, first_only=True)
    hunt = Hunter(aim, MINE, crew, lambda _: None, THEIRS).run()
    (violation,) = hunt.violations
    assert violation.finding.prop == SPLAT


@dataclass
class Ends(FakeWorkers):
    """Their budget is over after some boots."""

    after: int = 0

    def boot(self, boots: Sequence[Boot]) -> list[BootResult]:
        if len(self.booted) >= self.after:
            raise BudgetOverError
        return super().boot(boots)


def hunted(case: Case, shown: Shown, reference: HuntBench | None, count: int = 1) -> Hunter:
    """Return a hunt over one case that is over."""
    crew = cast(CaseWorkers, FakeWorkers(shown, count))
    aim = Aim(seed=1, properties=frozenset({PROP}), seconds=60)
    hunter = Hunter(aim, MINE, crew, lambda _: None, reference)
    hunter.round([case])
    return hunter


def violations(case: Case, shown: Shown, *, reference: HuntBench | None = None) -> int:
    """Return how many violations a hunt over one case found, with one worker and with two."""
    count, count_of_two = (
        len(hunted(case, shown, reference, count).hunt.violations) for count in (1, 2)
    )
    assert count == count_of_two
    return count


@pytest.fixture
def case(drawn_case: Case) -> Case:
    return drawn_case.only(drawn_case.loads[0])


def test_a_violation_is_found_where_every_boot_shows_it(case: Case) -> None:
    assert violations(case, lambda bench, seed: (1.0, False)) == 1
    assert violations(case, lambda bench, seed: (1.0 if seed < 3 else 0.0, False)) == 0


def test_what_a_reference_kernel_shows_in_any_boot_does_not_count(case: Case) -> None:
    assert (
        violations(case, lambda bench, seed: (float(bench == MINE), False), reference=THEIRS) == 1
    )
    assert (
        violations(
            case, lambda bench, seed: (float(bench == MINE or seed == 3), False), reference=THEIRS
        )
        == 0
    )


def test_a_weak_one_counts_only_beside_a_reference_kernel(case: Case) -> None:
    assert violations(case, lambda bench, seed: (1.0, True)) == 0
    assert violations(case, lambda bench, seed: (float(bench == MINE), True), reference=THEIRS) == 1


def test_what_can_never_count_draws_no_further_case(case: Case) -> None:
    def near(weak: bool) -> int:
        crew = cast(CaseWorkers, FakeWorkers(lambda bench, seed: (0.45, weak)))
        aim = Aim(seed=1, properties=frozenset({PROP}), seconds=60)
        hunter = Hunter(aim, MINE, crew, lambda _: None)
        return len(hunter.round([case]))

    assert (near(weak=False), near(weak=True)) == (1, 0)


def test_a_machine_near_a_limit_is_looked_at_a_few_times_only() -> None:
    crew = cast(CaseWorkers, FakeWorkers(lambda *_: (0.45, False)))
    aim = Aim(seed=1, properties=frozenset({PROP}), seconds=600, machines=48, loads=3)
    machines = Hunter(aim, MINE, crew, lambda _: None).run().different
    assert machines.total() == 48
    assert 1 < max(machines.values()) <= 6, "three, and those of the round in which it gets there"
    assert len(machines) >= 32


def test_a_hunt_says_what_it_went_over(case: Case) -> None:
    hunt = hunted(case, lambda bench, seed: (0.0, False), None).hunt
    assert hunt.different == {case.only().text: 1}
    assert hunt.covered == Counter(classes(case))


LOST_GUEST = BootResult((Finding(LOST, None, 1.0, 0.0, "it panicked"),), 1.0)


@pytest.mark.parametrize(
    ("replaced", "reason"),
    [
        ({THEIRS: BootResult((), 1.0, "no memory\nat all")}, "the reference kernel: no memory"),
        ({THEIRS: LOST_GUEST}, "the reference kernel: it panicked"),
        ({MINE: LOST_GUEST, THEIRS: LOST_GUEST}, "it panicked"),
        ({MINE: BootResult((), 1.0, unjudged=1)}, "events were lost, or tasks did not start"),
        ({MINE: BootResult((), 1.0)}, "no selected property has a value"),
        ({}, ""),
    ],
)
def test_a_machine_without_values_of_both_kernels_is_not_compared(
    case: Case, replaced: Mapping[HuntBench, BootResult], reason: str
) -> None:
    class Partly(FakeWorkers):
        def boot(self, boots: Sequence[Boot]) -> list[BootResult]:
            results = zip(boots, super().boot(boots), strict=True)
            return [replaced.get(bench, result) for (_, bench, _), result in results]

    crew = cast(CaseWorkers, Partly(lambda *_: (0.0, False)))
    aim = Aim(seed=1, properties=frozenset({PROP, LOST, "quota"}), seconds=60, machines=1, loads=1)
    hunt = Hunter(aim, MINE, crew, lambda _: None, THEIRS).run()
    lone = int(bool(reason))
    assert (hunt.lone_machines, hunt.lone_loads, hunt.reason) == (lone, lone, reason)
    assert hunt.compares_nothing == bool(lone) == (not hunt.covered)
    said = "1 machine, 1 load (0 machines and 0 loads compared)" if lone else "1 machine, 1 load"
    assert hunt_text(hunt, [], 2, None).startswith(f"{said}, 2 boots")
    assert said in page_outcome(hunt, None)
    assert "No boot had a value of " in page_outcome(hunt, None)
    assert hunt.never == (["guest-lost", "quota"] if not lone else hunt.never)


def test_a_value_within_the_limit_counts_only_if_the_reference_kernel_is_far_from_it(
    case: Case,
) -> None:
    def shown(theirs: float) -> Shown:
        return lambda bench, seed: (0.3 if bench == MINE else theirs, False)

    assert violations(case, shown(0.0)) == 0
    assert violations(case, shown(0.1), reference=THEIRS) == 1
    assert violations(case, shown(0.25), reference=THEIRS) == 0
    (violation,) = hunted(case, shown(0.1), THEIRS).hunt.violations
    assert violation.finding.value == 0.3
    assert violation.finding.most == 0.2, "half way between the two kernels"
    assert violation.seeds == (2, 3, 4)
    assert violation.boots == 10, "five seeds on each kernel"


def test_more_boots_decide_if_one_boot_is_no_different(case: Case) -> None:
    def hunted_with(*same: int) -> int:
        """Confirm where the kernels do not differ with these seeds."""

        def shown(bench: HuntBench, seed: int) -> tuple[float, bool]:
            return 0.3 if bench == MINE or seed in same else 0.0, False

        return violations(case, shown, reference=THEIRS)

    assert hunted_with(4) == 1
    assert hunted_with(4, 25) == 1, "one boot of the twelve"
    assert hunted_with(4, 25, 26, 27) == 0, "three of the twelve"
    assert hunted_with(3, 4) == 0, "too many of the first three"


def test_both_kernels_boot_each_case_once(case: Case) -> None:
    hunter = hunted(case, lambda bench, seed: (0.05, False), THEIRS)
    assert cast(FakeWorkers, hunter.workers).booted == [(MINE, 1), (THEIRS, 1)]
    hunter = hunted(case, lambda bench, seed: (0.05, False), None)
    assert cast(FakeWorkers, hunter.workers).booted == [(MINE, 1)]


def test_only_machines_that_boot_again_are_saved(case: Case) -> None:
    hunter = hunted(case, lambda bench, seed: (0.3 if bench == MINE else 0.0, False), THEIRS)
    boots = cast("list[tuple[FakeBench, int]]", cast(FakeWorkers, hunter.workers).booted)
    saving = [bench.saves for bench, _ in boots]
    assert saving[:2] == [False, False], "a new machine on both kernels"
    assert saving[2:]
    assert all(saving[2:])


def test_what_a_reference_kernel_was_not_judged_for_does_not_count(case: Case) -> None:
    class NotJudged(FakeWorkers):
        def boot(self, boots: Sequence[Boot]) -> list[BootResult]:
            judged = super().boot(boots)
            return [
                BootResult((), 1.0, "no QEMU") if bench == THEIRS else result
                for result, (_, bench, _) in zip(judged, boots, strict=True)
            ]

    crew = NotJudged(lambda bench, seed: (1.0, False))
    fresh_boots = FreshBoots(cast(CaseWorkers, crew), MINE, THEIRS, 1)
    assert fresh_boots.shows(Finding(PROP, 0, 1.0, 0.5, "idle"), [case]) == [[False]]
    assert crew.booted[-1] == (THEIRS, 2)


def test_all_that_is_suspected_of_a_machine_is_tried_in_the_same_boots(case: Case) -> None:
    two = case.only(*case.loads * 2)
    crew = FakeWorkers(lambda bench, seed: (float(bench == MINE), False))
    fresh_boots = FreshBoots(cast(CaseWorkers, crew), MINE, THEIRS, 1)
    findings = [Finding(PROP, place, 1.0, 0.5, "idle") for place in (0, 1)]
    confirmed = fresh_boots.confirm(findings, two)
    assert confirmed.shown == tuple(findings)
    assert confirmed.passed == dict.fromkeys(findings, 3)
    assert crew.booted == [(bench, seed) for seed in (2, 3, 4) for bench in (MINE, THEIRS)]


def test_what_might_be_chance_has_to_show_in_the_last_boots_alone(case: Case) -> None:
    def confirmed(last: int) -> int:
        def shown(bench: HuntBench, seed: int) -> tuple[float, bool]:
            # Seed 4 of the one kernel is as bad as seed 2 of the other.
            mine = 0.1 if seed > last else 0.25 if seed == 4 else 0.45
            return mine if bench == MINE else 0.25 if seed == 2 else 0.1, False

        fresh_boots = FreshBoots(cast(CaseWorkers, FakeWorkers(shown)), MINE, THEIRS, 1)
        return len(
            fresh_boots.confirm([Finding(PROP, 0, 0.45, 0.5, "idle", suspect=0.1)], case).shown
        )

    assert confirmed(4) == 0
    assert confirmed(8) == 1


def test_where_one_is_sure_the_rest_is_left_to_the_next_machine(case: Case) -> None:
    class OneIsSure(FakeWorkers):
        def boot(self, boots: Sequence[Boot]) -> list[BootResult]:
            results = []
            for (_, bench, seed), result in zip(boots, super().boot(boots), strict=True):
                # Of six samples, the last three are worse with the first two seeds only.
                more = 0.45 if bench == THEIRS and seed == 4 else 0.0
                findings = [
                    replace(sample, value=max(sample.value, more) if n % 2 else sample.value)
                    for n, sample in enumerate(result.findings)
                ]
                results.append(BootResult(tuple(findings), 1.0))
            return results

    crew = OneIsSure(lambda bench, seed: (0.48 if bench == MINE else 0.0, False))
    fresh_boots = FreshBoots(cast(CaseWorkers, crew), MINE, THEIRS, 1)
    two = case.only(*case.loads * 2)
    sure, unsure = (Finding(PROP, place, 0.45, 0.5, "idle") for place in (0, 1))
    assert fresh_boots.confirm([unsure, sure], two).shown == (unsure, sure), "both are apart"
    crew = OneIsSure(lambda bench, seed: (0.4 if bench == MINE else 0.0, False))
    fresh_boots = FreshBoots(cast(CaseWorkers, crew), MINE, THEIRS, 1)
    assert fresh_boots.confirm([unsure, sure], two).shown == (sure,)
    assert {seed for _, seed in crew.booted} == {2, 3, 4}


def test_a_broken_promise_needs_no_more_boots(case: Case) -> None:
    class Promise(FakeWorkers):
        def boot(self, boots: Sequence[Boot]) -> list[BootResult]:
            return [
                BootResult(tuple(replace(finding, most=0.0) for finding in result.findings), 1.0)
                for result in super().boot(boots)
            ]

    crew = Promise(lambda bench, seed: (float(bench == MINE), False))
    fresh_boots = FreshBoots(cast(CaseWorkers, crew), MINE, THEIRS, 1)
    broken = Finding(PROP, 0, 1.0, 0.0, "ran elsewhere")
    assert fresh_boots.confirm([broken], case).shown == (broken,)
    assert {seed for _, seed in crew.booted} == {2, 3, 4}


DIFFERS = Finding("more-switches", 0, 3.0, 1e12, "", weak=True, suspect=0.0, apart=2.0,
                  differential=True)  # fmt: skip


def differing(case: Case, value: Callable[[HuntBench, int, int], float]) -> Hunter:
    """Return a hunt over one case with differential values by kernel, seed and place."""

    class Differing(FakeWorkers):
        def boot(self, boots: Sequence[Boot]) -> list[BootResult]:
            self.requested += len(boots)
            self.booted += [(bench, seed) for _, bench, seed in boots]
            return [
                BootResult(
                    tuple(
                        replace(DIFFERS, load=place, value=value(bench, seed, place))
                        for place in range(len(case.loads))
                    ),
                    1.0,
                )
                for case, bench, seed in boots
            ]

    crew = cast(CaseWorkers, Differing(lambda *_: (0.0, False)))
    aim = Aim(seed=1, properties=frozenset({DIFFERS.prop}), seconds=60)
    hunter = Hunter(aim, MINE, crew, lambda _: None, THEIRS)
    hunter.round([case])
    return hunter


def test_a_difference_counts_if_all_samples_are_apart_and_again_in_later_boots(case: Case) -> None:
    hunter = differing(case, lambda bench, *_: 3.0 if bench == MINE else 1.0)
    (violation,) = hunter.hunt.violations
    assert violation.finding.most == 2.0, "half way between the two kernels"
    assert not violation.finding.differential
    assert {seed for _, seed in cast(FakeWorkers, hunter.workers).booted} >= {2, 3, 4, 5, 6}
    assert hunter.hunt.suspicions[0].confirmed


def test_samples_that_are_not_apart_or_a_ratio_below_2_drop_a_difference(case: Case) -> None:
    def alike(*which: tuple[int, int]) -> Callable[[HuntBench, int, int], float]:
        return lambda bench, seed, place: (
            3.0 if bench == MINE and (seed, place) not in which else 1.0
        )

    def not_again(bench: HuntBench, seed: int, place: int) -> float:
        return 3.0 if bench == MINE and seed < 6 else 1.0

    assert differing(case, alike((4, 2))).hunt.violations, "94 % of the pairs are apart"
    assert differing(case, alike((4, 1), (4, 2))).hunt.violations, "89 %: more boots decide"
    later = [(seed, place) for seed in (22, 24, 26) for place in range(3)]
    assert not differing(case, alike((4, 1), (4, 2), *later)).hunt.violations
    assert not differing(case, not_again).hunt.violations
    hunter = differing(case, lambda bench, *_: 1.9 if bench == MINE else 1.0)
    assert not hunter.hunt.suspicions, "no suspicion: not twice the value"


def test_a_small_difference_counts_if_most_loads_and_all_samples_show_it(case: Case) -> None:
    many = case.only(*case.loads * 20)

    def trend(ratio: float) -> Hunter:
        return differing(many, lambda bench, *_: ratio if bench == MINE else 1.0)

    (violation,) = trend(1.25).hunt.violations
    assert violation.finding.most == 1.125
    assert not violation.finding.differential
    assert "mean of 9 samples 1.25, with the reference kernel 1" in violation.finding.text
    assert len(violation.case.loads) == 1
    assert not trend(1.09).hunt.violations, "the ratio is too small"
    few = case.only(*case.loads * 10)
    hunter = differing(few, lambda bench, *_: 1.25 if bench == MINE else 1.0)
    assert not hunter.hunt.suspicions, "ten loads are no trend"


def test_a_confirmed_violation_is_kept_when_the_budget_is_over(case: Case) -> None:
    crew = cast(CaseWorkers, Ends(lambda bench, seed: (float(bench == MINE), False), after=10))
    aim = Aim(seed=1, properties=frozenset({PROP}), seconds=60)
    hunter = Hunter(aim, MINE, crew, lambda _: None, THEIRS)
    hunter.round([case])
    (violation,) = hunter.hunt.violations
    assert violation.case == violation.first == case
    assert violation.seeds == (2, 3, 4)


def test_a_suspicion_without_time_for_its_boots_is_noted(case: Case) -> None:
    crew = cast(CaseWorkers, Ends(lambda bench, seed: (float(bench == MINE), False), after=6))
    aim = Aim(seed=1, properties=frozenset({PROP}), seconds=60)
    hunter = Hunter(aim, MINE, crew, lambda _: None, THEIRS)
    with pytest.raises(BudgetOverError):
        hunter.round([case])
    (outcome,) = hunter.hunt.suspicions
    assert str(outcome) == f"{PROP} in load 0 not tried to the end: the budget is over"


@pytest.mark.parametrize("reference", [THEIRS, None], ids=["screened", "confirmed"])
def test_boots_without_a_value_are_no_budget_that_is_over(
    case: Case, reference: HuntBench | None
) -> None:
    class Unjudged(FakeWorkers):
        def boot(self, boots: Sequence[Boot]) -> list[BootResult]:
            empty = BootResult((), 1.0, unjudged=1)
            results = zip(boots, super().boot(boots), strict=True)
            return [result if seed == 1 else empty for (_, _, seed), result in results]

    crew = Unjudged(lambda bench, _: (1.0 if bench == MINE else 0.01, False))
    aim = Aim(seed=1, properties=frozenset({PROP}), seconds=60)
    hunter = Hunter(aim, MINE, cast(CaseWorkers, crew), lambda _: None, reference)
    hunter.round([case])
    (outcome,) = hunter.hunt.suspicions
    expected = f"{PROP} in load 0 not confirmed: no value in fresh boots"
    assert str(outcome).startswith(expected)
    assert hunter.hunt.untried == ""


def test_a_trend_of_calls_without_time_for_its_boots_is_noted(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is told as suspected, so it must have an outcome."""

    def over(*_: object) -> None:
        raise BudgetOverError

    mine, theirs = (quantity_of("move").finding(0, count, "less") for count in (1, 9))
    clear = (Suspect(case, mine, theirs, 4.5),)
    trend = CallTrend("move", "memory", "less", 4.5, 30, 40, (case,), clear)
    monkeypatch.setattr("numalab.hunt.hunting.look_again", over)
    calls = SimpleNamespace(
        counted_on=lambda *benches: benches,
        add=lambda *_: None,
        strongest=lambda of_change: None if of_change else trend,
        suspects=lambda _: [],
    )
    aim = Aim(seed=1, properties=frozenset({PROP, CALLS}), seconds=60)
    crew = cast(CaseWorkers, FakeWorkers(lambda *_: (0.0, False), 1))
    hunter = Hunter(aim, MINE, crew, lambda _: None, THEIRS, calls=cast(CallTrends, calls))
    with pytest.raises(BudgetOverError):
        hunter.round([case])
    assert [str(item) for item in hunter.hunt.suspicions] == [
        f"{mine.prop} in load 0 not tried to the end: the budget is over"
    ]


def test_what_was_suspected_in_the_last_round_is_noted_when_the_budget_is_over() -> None:
    """Two machines are judged, and the time is over before the rest of their round."""

    crew = cast(CaseWorkers, Ends(lambda bench, seed: (float(bench == MINE), False), after=4))
    aim = Aim(seed=1, properties=frozenset({PROP}), seconds=600, loads=2)
    hunt = Hunter(aim, MINE, crew, lambda _: None, THEIRS).run()
    assert hunt.machines == 2
    (outcome,) = hunt.suspicions
    assert str(outcome).endswith("not tried to the end: the budget is over")
    assert "before 1 suspicion could be tried" in hunt_text(hunt, [], 4, None)


@dataclass
class Panics(Ends):
    """The guests of one kernel are lost, and the budget is over after some boots."""

    def boot(self, boots: Sequence[Boot]) -> list[BootResult]:
        super().boot(boots)
        return [
            BootResult((Finding(LOST, None, float(bench == MINE), 0.0, "it panicked"),), 1.0)
            for _, bench, _ in boots
        ]


@pytest.mark.parametrize("reference", [THEIRS, None])
def test_a_panic_in_the_first_boot_is_noted_when_the_budget_is_over(
    reference: HuntBench | None,
) -> None:
    """The budget ends while fewer loads are looked for that show it."""
    said: list[str] = []
    crew = cast(CaseWorkers, Panics(lambda *_: (0.0, False), after=2 if reference else 1))
    aim = Aim(seed=1, properties=frozenset({LOST}), seconds=600)
    hunt = Hunter(aim, MINE, crew, said.append, reference).run()
    (outcome,) = hunt.suspicions
    assert str(outcome) == f"{LOST} not tried to the end: the budget is over"
    assert said[0].startswith(f"suspected: {LOST}: it panicked")
    over = "the budget was over before 1 suspicion could be tried"
    assert hunt_text(hunt, [], 1, None).endswith(f"nothing found; {over}")
    assert page_outcome(hunt, None).endswith(f"{over}.")
    facts = HuntFacts("k", None, 1, "icount", "now", 2.0, 1)
    (row,) = hunt_value(facts, hunt, [], None)["suspicions"]
    assert row["outcome"] == "not tried to the end: the budget is over"


@pytest.mark.parametrize(
    ("kernels", "names"), [((MINE,), [LOST]), ((MINE, THEIRS), [])], ids=["mine", "both"]
)
def test_a_panic_in_fresh_boots_is_no_lost_value_only(
    case: Case, kernels: Sequence[HuntBench], names: Sequence[str]
) -> None:
    @dataclass
    class Later(FakeWorkers):
        """Only the boots of the search go well."""

        watch: Watch | None = None

        def boot(self, boots: Sequence[Boot]) -> list[BootResult]:
            results = super().boot(boots)
            for place, (_, bench, seed) in enumerate(boots):
                lost = seed != 1 and bench in kernels
                finding = Finding(LOST, None, float(lost), 0.0, "it panicked")
                findings = () if lost else results[place].findings
                results[place] = replace(results[place], findings=(*findings, finding))
                assert self.watch is not None
                self.watch(boots[place], results[place])
            return results

    crew = cast(CaseWorkers, Later(lambda bench, _: (1.0 if bench == MINE else 0.0, False)))
    aim = Aim(seed=1, properties=frozenset({PROP, LOST}), seconds=60)
    hunter = Hunter(aim, MINE, crew, lambda _: None, THEIRS)
    hunter.round([case])
    assert [item.finding.prop for item in hunter.hunt.violations] == names
    assert hunter.hunt.suspicions[0].finding.prop == PROP


def test_what_the_other_boots_of_a_batch_show_is_noted_when_the_budget_is_over(
    drawn_case: Case,
) -> None:
    """Two workers boot two machines, and the budget ends while the first is looked at."""
    first, second = (drawn_case.only(load) for load in drawn_case.loads[:2])

    class Batch(FakeWorkers):
        def boot(self, boots: Sequence[Boot]) -> list[BootResult]:
            if self.booted:
                aim.seconds = 0
                raise BudgetOverError
            super().boot(boots)
            findings = [Finding(prop, None, 1.0, 0.0, "it is") for prop in (LOST, SPLAT)]
            return [BootResult((finding,), 1.0) for finding in findings]

    aim = SimpleNamespace(**vars(Aim(1, frozenset({LOST, SPLAT}), 600.0)))
    crew = cast(CaseWorkers, Batch(lambda *_: (0.0, False), 2))
    hunter = Hunter(cast(Aim, aim), MINE, crew, lambda _: None)
    with pytest.raises(BudgetOverError):
        hunter.round([first, second])
    assert [item.finding.prop for item in hunter.waiting] == [LOST, SPLAT]


@pytest.mark.parametrize("group", ["", " group=a"])
def test_an_idle_machine_is_tried_first(case: Case, group: str) -> None:
    class Reads(FakeWorkers):
        def boot(self, boots: Sequence[Boot]) -> list[BootResult]:
            for booted, *_ in boots:
                parse_loads(render_loads(booted.loads))
            finding = (
                Finding(DOMAINS, None, float(bench == MINE), 0.0, "") for _, bench, _ in boots
            )
            return [BootResult((item,), 1.0) for item in finding]

    text = f"time ms=1000;hog n=2 cpus=0{group}" + (";group name=a" if group else "")
    two = case.only(*parse_loads(text) * 2)
    boots = FreshBoots(cast(CaseWorkers, Reads(lambda *_: (0.0, False))), MINE, THEIRS, 1)
    small = fewest_loads(boots, two, Finding(DOMAINS, None, 1.0, 0.0, "they differ"))
    assert render_loads(small.loads) == "time ms=100;hog n=2 cpus=0"


def test_limits_lie_between() -> None:
    def at(value: float) -> Finding:
        return Finding(PROP, 0, value, 1.0, "", suspect=0.1)

    assert limit_between([at(2.0), at(3.0)], [at(0.5)]) == 1.0
    assert limit_between([at(2.0)], [at(1.1)]) is None, "the reference kernel violates it, too"
    assert limit_between([at(0.9)], [at(0.1), at(0.5)]) == 0.7
    assert limit_between([at(0.9), at(0.6)], [at(0.5)]) is None, "no more than two seeds differ"
    assert limit_between([at(0.05)], [at(0.0)]) is None, "not suspected"


def test_the_first_seed_of_a_case_shows_it_best(case: Case) -> None:
    values = {2: 1.5, 3: 4.0, 4: 2.0}
    (violation,) = hunted(
        case, lambda bench, seed: (values.get(seed, 1.0) if bench == MINE else 0.1, False), THEIRS
    ).hunt.violations
    assert violation.seeds == (3, 4, 2)
    assert violation.finding.value == 4.0


@dataclass
class CalledFunctions:
    """Suspects the calls of two functions in one load, and then their trends."""

    case: Case
    asked: int = 0

    def counted_on(self, *benches: HuntBench) -> tuple[HuntBench, ...]:
        return benches

    def add(self, *_: object) -> None:
        pass

    def suspects(self, _: Counter[str]) -> list[list[Suspect]]:
        self.asked += 1
        findings = (quantity_of(name).finding(0, 90, "more") for name in ("pull", "push"))
        return [[Suspect(self.case, finding, None, 4.0) for finding in findings]]

    def strongest(self, *, of_change: bool) -> None:
        self.asked += 1


def test_one_function_is_named_since_the_calls_of_others_follow(
    drawn_case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("numalab.hunt.confirm.for_properties", lambda bench, _: bench)

    @dataclass
    class Counting(FakeWorkers):
        def boot(self, boots: Sequence[Boot]) -> list[BootResult]:
            results = []
            for case, bench, seed in boots:
                count = 90 if cast(FakeBench, bench).name == "mine" else 10
                findings = [
                    quantity_of(name).finding(load, count, "more")
                    for load in range(len(case.loads) if seed > 1 else 0)
                    for name in ("pull", "push")
                ]
                results.append(BootResult(tuple(findings), 1.0))
            return results

    crew = cast(CaseWorkers, Counting(lambda *_: (0.0, False)))
    names = frozenset({"more-calls-of-pull", "more-calls-of-push", "calls"})
    calls = CalledFunctions(drawn_case)
    hunter = Hunter(
        Aim(seed=1, properties=names, seconds=60), MINE, crew, lambda _: None, THEIRS,
        calls=cast(CallTrends, calls),
    )  # fmt: skip
    hunter.round([drawn_case])
    assert [item.finding.prop for item in hunter.hunt.violations] == ["more-calls-of-pull"]
    assert sum(item.confirmed for item in hunter.hunt.suspicions) == 2
    hunter.round([drawn_case])
    assert calls.asked == 1, "not asked again"


WORD, HELD, SIZE = Word(0xC, 32), ({4: 1, 12: 3}, {4: 1}), 32


@dataclass
class Leaving(FakeWorkers):
    """Boots whose kernel leaves something in run queues; `theirs` is the reference kernel's."""

    held: Mapping[int, int] | None = None
    theirs: Mapping[int, int] | None = None
    most: int = 1 << 20  # boots, with which the budget is over

    def boot(self, boots: Sequence[Boot]) -> list[BootResult]:
        self.requested += len(boots)
        if self.requested > self.most:
            raise BudgetOverError
        return [
            BootResult(
                (), 1.0,
                run_queues=RunQueues(
                    SIZE,
                    (self.held if cast(FakeBench, bench).name == "mine" else self.theirs) or {},
                ),
            )
            for _, bench, _ in boots
        ]  # fmt: skip


@pytest.mark.parametrize(
    ("theirs", "names"), [({}, ["left-in-runqueues+0xc/0x20-nr_numa+0x4"]), ({12: 1}, [])]
)
def test_a_hunt_confirms_a_word(
    drawn_case: Case,
    monkeypatch: pytest.MonkeyPatch,
    theirs: Mapping[int, int],
    names: Sequence[str],
) -> None:
    monkeypatch.setattr("numalab.hunt.confirm.for_properties", lambda bench, _: bench)
    crew = cast(CaseWorkers, Leaving(lambda *_: (0.0, False), held=HELD[0], theirs=theirs))
    calls = CalledFunctions(drawn_case)
    left = Leftovers({0: "lock", 8: "nr_numa"})
    hunter = Hunter(
        Aim(seed=1, properties=frozenset({LEFT}), seconds=60), MINE, crew, lambda _: None, THEIRS,
        calls=cast(CallTrends, calls), left=left,
    )  # fmt: skip
    for _ in range(7):
        for held in HELD:
            result = BootResult((), 0.0, run_queues=RunQueues(SIZE, held))
            left.add(drawn_case, result, mine=held is HELD[0])
    hunter.round([drawn_case])
    assert [item.finding.prop for item in hunter.hunt.violations] == names
    assert calls.asked == 0, "calls of functions were not asked for"


def leaving_hunter(case: Case, **options: Any) -> Hunter:
    """Return a hunter that has booted a case seven times on each kernel, of which one leaves."""
    left = Leftovers({0: "lock", 8: "nr_numa"})
    for _ in range(7):
        for held in HELD:
            result = BootResult((), 0.0, run_queues=RunQueues(SIZE, held))
            left.add(case, result, mine=held is HELD[0])
    crew = cast(CaseWorkers, Leaving(lambda *_: (0.0, False), held=HELD[0], **options))
    aim = Aim(seed=1, properties=frozenset({LEFT}), seconds=60)
    return Hunter(aim, MINE, crew, lambda _: None, THEIRS, left=left)


def test_a_word_is_confirmed_before_loads_are_taken_away(
    drawn_case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("numalab.hunt.confirm.for_properties", lambda bench, _: bench)
    hunter = leaving_hunter(drawn_case, most=2 + 2 * SEEDS)
    hunter.round([drawn_case])
    (violation,) = hunter.hunt.violations
    assert violation.case == drawn_case and len(drawn_case.loads) > 1
    hunter = leaving_hunter(drawn_case, most=1 + 2 * SEEDS)
    with pytest.raises(BudgetOverError):
        hunter.round([drawn_case])
    assert hunter.hunt.violations == []


def test_a_word_that_the_budget_left_untried_is_told(drawn_case: Case) -> None:
    left = Leftovers({0: "lock", 8: "nr_numa"})
    aim = Aim(seed=1, properties=frozenset({LEFT}), seconds=0)
    crew = cast(CaseWorkers, Leaving(lambda *_: (0.0, False)))
    hunter = Hunter(aim, MINE, crew, lambda _: None, THEIRS, left=left)
    for _ in range(7):
        for held in HELD:
            result = BootResult((), 0.0, run_queues=RunQueues(SIZE, held))
            left.add(drawn_case, result, mine=held is HELD[0])
    (outcome,) = hunter.run().suspicions
    assert outcome.over and outcome.finding.prop == "left-in-runqueues+0xc/0x20-nr_numa+0x4"
