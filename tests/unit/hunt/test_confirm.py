"""What tells a kernel from its reference kernel, and how often two that are alike differ."""

import random
from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import cast

import pytest

from numalab.hunt.boot_case import HuntBench
from numalab.hunt.case import Case
from numalab.hunt.compare.kernel_samples import KernelSamples, how_often_more
from numalab.hunt.confirm import Confirmed, FreshBoots
from numalab.hunt.finding import BootResult, Finding
from numalab.hunt.workers import CaseWorkers


def finding(value: float, most: float = 100.0, *, weak: bool = False) -> Finding:
    return Finding("lost-time", 0, value, most, "waited", weak, None if most <= 0 else 0.1)


def samples_of(mine: Sequence[Finding], theirs: Sequence[Finding] | None) -> KernelSamples:
    return KernelSamples(theirs is not None, list(mine), list(theirs or []))


def samples(mine: Sequence[float], theirs: Sequence[float]) -> KernelSamples:
    return samples_of([finding(value) for value in mine], [finding(value) for value in theirs])


def test_pairs_are_counted() -> None:
    assert how_often_more([1, 2, 3], [2, 2]) == pytest.approx((0 + 1 + 2) / 6)
    assert how_often_more([5, 6], [1, 2]) == 1.0


def test_what_depends_on_chance_is_shown_by_many_samples() -> None:
    # Idle times of one load in ms, with and without a lost kick.
    mine, theirs = [929, 363, 19, 400, 250, 30, 800, 120, 90], [7, 12, 9, 4, 21, 8, 6, 10, 11]
    assert how_often_more(mine, theirs) == pytest.approx(80 / 81)
    assert samples(mine, theirs).show()
    assert not samples(theirs, mine).may_show()
    assert not samples(mine, [*theirs[:6], 929, 363, 400]).show()


def test_kernels_are_apart_where_no_sample_of_the_reference_kernel_is_as_bad() -> None:
    assert samples([3, 4, 5], [1, 2, 2.9]).apart
    assert not samples([3, 4, 5], [1, 2, 3]).apart
    assert not samples_of([finding(3)], None).apart


def test_worse_by_little_is_not_shown() -> None:
    assert not samples([1.4] * 9, [1.0] * 9).show()
    assert samples([1.6] * 9, [1.0] * 9).show()
    assert not samples([0.09] * 9, [0.0] * 9).show(), "not suspected"


def test_two_kernels_that_are_alike_are_not_told_apart() -> None:
    rng = random.Random(1)
    shown = 0
    for _ in range(2000):
        values = [rng.lognormvariate(0, 1) for _ in range(18)]
        shown += samples(values[:9], values[9:]).show()
    assert shown <= 4, "one in a thousand, with a wide spread"


def test_a_promise_is_broken_once() -> None:
    kept, broken = finding(0, 0), finding(3, 0)
    assert samples_of([kept, kept, broken], [kept] * 3).show()
    assert not samples_of([kept, kept, broken], [kept, kept, broken]).show()
    assert samples_of([kept] * 3, [kept] * 3).may_show(), "the next boot may show it"
    assert not samples_of([kept] * 9, [kept] * 9).show()


def test_a_boot_that_was_lost_once_may_be_the_hosts() -> None:
    ended, lost = (Finding("guest-lost", None, value, 0.0, "") for value in (0.0, 1.0))
    assert not samples_of([lost, ended, ended], [ended] * 3).show()
    assert samples_of([lost, ended, lost], [ended] * 3).show()


def test_alone_most_samples_have_to_violate_it() -> None:
    bad, good = finding(2, 1), finding(0.5, 1)
    assert samples_of([bad, bad, good], None).show()
    assert not samples_of([bad, good, good], None).may_show()
    assert not samples_of([finding(2, 1, weak=True)] * 3, None).show()


def test_a_boot_that_was_not_judged_shows_nothing() -> None:
    samples = KernelSamples(with_reference=False)
    for value in (2.0, 3.0):
        samples.take(BootResult((finding(value, 1),), 1.0), "lost-time", [0], mine=True)
    assert samples.show()
    samples.take(BootResult((), 1.0, "no QEMU"), "lost-time", [0], mine=True)
    assert not samples.may_show()


@pytest.mark.parametrize(
    ("most", "mine", "theirs", "shows"),
    [
        (0.0, [5.0] * 8 + [None], [0.0] * 9, True),
        (0.0, [5.0] + [None] * 8, [0.0] * 9, True),
        (0.0, [5.0] * 9, [0.0] * 5 + [None] * 4, False),
        (1.0, [30.0] * 6 + [None] * 3, [1.0] * 9, True),
        (1.0, [30.0] * 5 + [None] * 4, [1.0] * 9, False),
        (1.0, [30.0] * 9, [1.0] * 6 + [None] * 3, True),
    ],
)
def test_a_few_samples_may_have_no_value(
    most: float, mine: list[float | None], theirs: list[float | None], shows: bool
) -> None:
    samples = KernelSamples(with_reference=True)
    for values, are_mine in ((mine, True), (theirs, False)):
        for value in values:
            result = () if value is None else (replace(finding(value, 1), most=most, suspect=most),)
            samples.take(BootResult(result, 1.0), "lost-time", [0], mine=are_mine)
    assert samples.show() is shows


def test_a_weak_invariant_is_violated_in_most_samples() -> None:
    sound = [finding(0.0, 0)] * 9
    for violations, shows in ((1, False), (6, True)):
        mine = [finding(1.0, 0, weak=True)] * violations
        assert samples_of([*mine, *sound[violations:]], sound).show() is shows


def test_a_settled_difference_says_what_the_reference_kernel_shows() -> None:
    def shown(value: float) -> Finding:
        text = f"switches: {value:g} a second"
        return Finding("more-switches", 0, value, 1e12, text, True, 0.0, 1.5, differential=True)

    rates = {"patched": 900.0, "reference": 300.0}

    class Workers:
        def boot(self, boots: Sequence[tuple[object, SimpleNamespace, int]]) -> list[BootResult]:
            return [BootResult((shown(rates[b.name] + seed),), 0.0) for _, b, seed in boots]

    patched, reference = (
        cast(HuntBench, SimpleNamespace(name=name)) for name in ("patched", "reference")
    )
    boots = FreshBoots(cast(CaseWorkers, Workers()), patched, reference, 1)
    settled = boots.settle(shown(900.0), cast(Case, SimpleNamespace(loads=(None,))))
    assert settled is not None
    best, seeds = settled
    assert seeds == (4, 3, 2)
    assert best.text == "switches: 904 a second, with the reference kernel 304 a second"
    assert not best.differential and best.most > 300.0


def difference(value: float, load: int = 0) -> Finding:
    text = f"switches: {value:g} a second"
    return Finding("more-switches", load, value, 1e12, text, True, 0.0, 1.6, differential=True)


def test_means_of_a_difference_may_be_closer_than_single_values() -> None:
    mine = [difference(1.4 + 0.01 * n) for n in range(9)]
    assert samples_of(mine, [difference(1.0)] * 9).show()
    assert not samples_of([difference(1.2)] * 9, [difference(1.0)] * 9).show()


def test_one_sample_without_the_difference_does_not_end_its_confirmation() -> None:
    mine = [difference(value) for value in (3.0, 3.0, 1.0)]
    assert samples_of(mine, [difference(1.0)] * 3).may_show()
    assert not samples_of(mine * 3, [difference(1.0)] * 9).show()


@pytest.mark.parametrize("last", [1.0, 3.0])
def test_one_unlucky_sample_of_the_first_later_boot_decides_nothing(last: float) -> None:
    """The reference kernel's third sample of seed 5 is as bad as the kernel's, by chance."""
    mine = dict.fromkeys(range(2, 9), (3.0, 2.8, 2.5))
    theirs = dict.fromkeys(range(2, 9), (1.0, 1.0, 1.0))
    theirs |= {5: (1.0, 1.0, 2.9), 6: (1.0, last, last), 7: (1.0, last, last)}
    values = {"patched": mine, "reference": theirs}

    class Workers:
        def boot(self, boots: Sequence[tuple[object, SimpleNamespace, int]]) -> list[BootResult]:
            return [
                BootResult(tuple(difference(v, n) for n, v in enumerate(values[b.name][seed])), 0.0)
                for _, b, seed in boots
            ]

    patched, reference = (
        cast(
            HuntBench,
            SimpleNamespace(name=name, for_confirmation=lambda n=name: SimpleNamespace(name=n)),
        )
        for name in ("patched", "reference")
    )
    boots = FreshBoots(cast(CaseWorkers, Workers()), patched, reference, 1)
    load = SimpleNamespace(changes_machine=False)
    case = cast(Case, SimpleNamespace(loads=(load,), only=lambda *loads: loads))
    confirmed = boots.confirm([difference(3.0)], case)
    assert bool(confirmed.shown) is (last == 1.0)


def test_a_value_within_its_limit_gets_one_between_the_kernels() -> None:
    """The budget may end before a case is shrunk: its limit must still tell the kernels apart."""
    mine, theirs = finding(5.0), finding(1.0)
    confirmed = Confirmed((mine,), {mine: 9}, {mine: samples([5.0, 7.0], [1.0, 1.0])})
    limited = confirmed.limited(mine)
    assert limited.violated and not replace(theirs, most=limited.most).violated
    assert limited.text == "waited; mean of 2 samples 6, with the reference kernel 1"
    far = finding(500.0)
    confirmed = Confirmed((far,), {far: 9}, {far: samples([500.0], [1.0])})
    assert confirmed.limited(far) == far, "it violates the limit of its property"


def test_a_settled_value_says_what_the_reference_kernel_has() -> None:
    def boot(_: object) -> list[BootResult]:
        return results.pop(0)

    own, other = finding(5.0), replace(finding(1.0), unit="ms")
    results = [[BootResult((side,), 1.0)] * 3 for side in (other, own)]
    bench = cast(HuntBench, SimpleNamespace(properties=(), calls=None))
    workers = cast(CaseWorkers, SimpleNamespace(boot=boot))
    boots = FreshBoots(workers, bench, bench, 1)
    settled = boots.settle(own, cast(Case, SimpleNamespace(loads=(None,))))
    assert settled is not None
    assert settled[0].text == "waited; with the reference kernel 1 ms"
