"""Which functions are tried again: those called more or less often in many loads."""

import random
from collections import Counter
from dataclasses import replace

from numalab.hunt.calls.again import Retrial, finding_of
from numalab.hunt.calls.functions import CountedFunctions
from numalab.hunt.calls.trend import CallTrends
from numalab.hunt.case import Case
from numalab.hunt.finding import BootResult
from numalab.hunt.generate.families import draw_loads
from numalab.hunt.generate.machines import draw_machine
from numalab.reach.lines import LineCode

NAMES = tuple(f"function{n}" for n in range(40))
LOADS = 24


def cases(count: int, rng: random.Random) -> list[Case]:
    drawn = []
    for _ in range(count):
        machine = draw_machine(rng)
        drawn.append(Case(machine, draw_loads(rng, machine, LOADS)))
    return drawn


def boot(case: Case, rng: random.Random, factors: dict[str, float] | None = None) -> BootResult:
    """Return the calls of a boot, which vary by a tenth; `factors` change those of functions."""
    calls = {
        load: {
            name: int(1000 * rng.lognormvariate(0, 0.1) * (factors or {}).get(name, 1))
            for name in NAMES
        }
        for load in range(len(case.loads))
    }
    return BootResult((), 1.0, calls=calls)


def boots_with(case: Case, rng: random.Random, *counts: dict[str, int]) -> list[BootResult]:
    """Return a boot for each of these counts, which every load of it has, too."""
    return [
        replace(side, calls={load: {**calls, **more} for load, calls in side.calls.items()})
        for more in counts
        for side in [boot(case, rng)]
    ]


def trends(factors: dict[str, float] | None = None, count: int = 4, seed: int = 1) -> CallTrends:
    """Return the trends after some machines, on whose kernel these functions differ."""
    rng = random.Random(seed)
    functions = CountedFunctions(NAMES, tuple(range(40)), 99)
    trends_of = CallTrends(functions, replace(functions, addresses=tuple(range(100, 140))))
    for case in cases(count, rng):
        trends_of.add(case, boot(case, rng, factors), boot(case, rng))
    return trends_of


def test_functions_that_differ_in_all_loads_are_tried_where_they_differ_most() -> None:
    groups = trends({"function3": 1.8, "function7": 0.5}).suspects(Counter())
    assert len(groups) == 2
    changed = {"more-calls-of-function3", "less-calls-of-function7"}
    assert any({suspect.finding.prop for suspect in group} >= changed for group in groups)
    for group in groups:
        assert len({(suspect.case.text, suspect.finding.load) for suspect in group}) == 1
        first = group[0]
        assert first.finding.prop in changed
        assert first.score > 3.5 and first.theirs is not None
        assert first.finding.value > 1.25 * first.theirs.value


def test_a_load_is_tried_once_and_a_function_that_failed_falls_back() -> None:
    trends_of = trends({"function3": 1.8, "function7": 0.5})
    first = trends_of.suspects(Counter())
    again = trends_of.suspects(Counter())
    tried = {(group[0].case.text, group[0].finding.load) for group in (*first, *again)}
    assert len(tried) == 4
    failed = Counter({"more-calls-of-function3": 90, "less-calls-of-function7": 90})
    assert trends_of.suspects(failed) == []


def test_chance_is_not_tried() -> None:
    assert not any(trends(seed=seed).suspects(Counter()) for seed in range(4))


def test_too_few_loads_have_no_trend() -> None:
    rng = random.Random(5)
    trends_of = trends(count=0)
    machine = draw_machine(rng)
    case = Case(machine, draw_loads(rng, machine, 4))
    trends_of.add(case, boot(case, rng, {"function3": 3.0}), boot(case, rng))
    trends_of.add(case, BootResult((), 1.0), boot(case, rng))
    assert trends_of.suspects(Counter()) == []


def test_the_strongest_trend_names_the_machines_that_show_it_most() -> None:
    trend = trends({"function7": 0.6}, count=6).strongest()
    assert trend is not None
    assert (trend.function, trend.change) == ("function7", "less")
    assert trend.strength >= 4.0 and trend.larger > 0.9 * trend.count
    assert trend.clearest.finding.prop == "less-calls-of-function7"
    assert len(trend.cases) <= 5 and all(len(case.loads) <= 10 for case in trend.cases)
    assert len({case.text for case in trend.cases}) == len(trend.cases) > 0
    again = trends({"function7": 0.6}, count=6)
    assert again.strongest() == trend
    by_chance = again.strongest()
    assert by_chance is None or by_chance.function != "function7", "each is returned once"
    assert trends().strongest() is None
    assert trends(count=0).strongest() is None


def test_a_block_has_a_trend_and_its_place_but_no_trial_of_its_own() -> None:
    rng = random.Random(8)
    block = "pick+0x1f/0x60"
    functions = CountedFunctions((*NAMES, block), tuple(range(41)), 99)
    blocks = CallTrends(functions, functions, {block: "kernel/sched/fair.c:9480"})
    for case in cases(4, rng):
        blocks.add(case, *boots_with(case, rng, {block: 300}, {block: 900}))
    assert not blocks.suspects(Counter())
    trend = blocks.strongest()
    assert trend is not None and (trend.function, trend.change) == (block, "less")
    assert trend.clearest.finding.prop == f"less-runs-of-{block}"
    finding = finding_of(trend, Retrial(2, 5.0, 3.1, 9, 10))
    assert "with the reference kernel 900 (kernel/sched/fair.c:9480); less in" in finding.text


def test_blocks_of_a_function_that_was_tried_are_not_tried_again() -> None:
    rng = random.Random(8)
    names = ("pick+0x1f/0x60", "pick+0x2f/0x60", "push+0x8/0x40")
    functions = CountedFunctions(names, (1, 2, 3), 99)
    blocks = CallTrends(functions, functions)
    for case in cases(4, rng):
        both = (dict.fromkeys(names, runs) for runs in (300, 900))
        blocks.add(case, *boots_with(case, rng, *both))
    tried = [trend.function.partition("+")[0] for trend in iter(blocks.strongest, None) if trend]
    assert tried == ["pick", "push"]


def test_a_function_that_is_rarely_called_can_have_a_trend() -> None:
    rng = random.Random(3)
    rare = trends(count=0)
    for case in cases(3, rng):
        rare.add(case, *boots_with(case, rng, {"function1": 0}, {"function1": 3}))
    trend = rare.strongest()
    assert trend is not None and trend.function == "function1"
    tried = {suspect.finding.prop for group in rare.suspects(Counter()) for suspect in group}
    assert not any(name.endswith("-of-function1") for name in tried), "too few to judge one load"


def test_lines_of_the_change_wait_until_what_follows_from_it_was_sought() -> None:
    rng = random.Random(11)
    line = "pick:return-cpu"
    code = LineCode((((7,),),), (), ("pick",))
    functions = CountedFunctions(NAMES, tuple(range(40)), 99, lines={line: code})
    lines = CallTrends(functions, functions, {line: "kernel/sched/fair.c:9"}, frozenset({"pick"}))
    for case in cases(4, rng):
        lines.add(case, *boots_with(case, rng, {line: 300}, {line: 900}))
    assert lines.strongest() is None
    trend = lines.strongest(of_change=True)
    assert trend is not None and trend.clearest.finding.prop == f"less-runs-of-{line}"
    assert max(lines.hunches().values()) > 4
    assert not replace(lines, changed=frozenset({"push"})).hunches()
