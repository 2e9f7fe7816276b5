"""Which runs a budget leaves, and when repetitions are enough."""

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from shutil import rmtree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from numalab.campaign import schedule
from numalab.campaign.cost_model import Cost
from numalab.campaign.execute import Schedule, TaskEvent, execute
from numalab.campaign.schedule import makespan, within_budget, within_seconds
from numalab.campaign.stopping import StoppingRule
from numalab.errors import UserError
from numalab.files import write_json
from numalab.results.plan import (
    BudgetRemark,
    Decided,
    PlannedRun,
    RepetitionsRemark,
    StopReason,
    TimeOverRemark,
)
from numalab.results.reader import load_plan
from numalab.study.plan import Plan, plan_study, require_measure
from numalab.units import parse_seconds
from support.fake_executor import MATRIX, fake, ledger, order, ready


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMALAB_CACHE", str(tmp_path / "cache"))


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> Plan:
    path = tmp_path_factory.mktemp("study") / "tried.toml"
    path.write_text(MATRIX)
    return plan_study(path)


def cost(run: PlannedRun) -> float:
    return 4.0 if run.topology == "ring-4" else 2.0


def unwatched(_: Schedule) -> Callable[[TaskEvent], None]:
    return lambda event: None


def test_a_budget_for_all_leaves_the_plan_as_it_is(plan: Plan) -> None:
    assert within_budget(plan, 72.0, cost) is plan


def test_axes_come_first_then_cells_then_repetitions(plan: Plan) -> None:
    chosen = within_budget(plan, 12.0, cost)  # one cell of each topology: 4 + 8
    assert {run.seed for run in chosen.runs} == {1}
    assert {run.topology for run in chosen.runs} == {"ring-2", "ring-4"}
    assert {run.workload for run in chosen.runs} == {"few", "many"}
    assert (len(chosen.runs), len(chosen.cells)) == (4, 2)
    assert "4 of 24 runs were estimated to fit into a budget of 12.0 s" in str(chosen.remarks[0])
    assert len({run.cell for run in within_budget(plan, 24.0, cost).runs}) == 4
    more = within_budget(plan, 40.0, cost)
    assert {run.seed for run in more.runs} == {1, 2}
    assert {run.cell for run in more.runs if run.seed == 1} == set(plan.cells)


def test_two_places_hold_twice_as_much(plan: Plan) -> None:
    assert len(within_budget(plan, 36.0, cost, jobs=2).runs) == 24


def test_nothing_fits(plan: Plan) -> None:
    with pytest.raises(UserError, match=r"the shortest takes about 8\.0 s|4\.0 s"):
        within_budget(plan, 3.0, cost)
    builds = (
        r"no comparison of tried fits into 0\.00 s, its share of the time that the builds leave"
    )
    with pytest.raises(UserError, match=builds):
        within_budget(plan, -12.0, cost)


def test_what_is_finished_takes_no_time_of_a_budget(
    plan: Plan, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """So the same command gets further each time, and never says that what is done does not fit."""
    monkeypatch.setattr(schedule, "cost_of", lambda task, _: Cost(5.0, 0))
    study, done = ready(tmp_path), 0
    with pytest.raises(UserError, match="no comparison of tried fits into"):
        within_seconds(study, 9.0, 1)
    while done < 24:
        part = within_seconds(study, 45.0, 1)
        assert part.plan.runs == study.plan.runs
        assert execute([part], 2, unwatched, run=fake) == ()
        done = min(24, done + 8)
        assert len(ledger(study.results)) == done == 24 - len(part.left_out)
        said = [BudgetRemark(chosen=done, planned=24, seconds=45.0)] if done < 24 else []
        stored = load_plan(study.results)
        assert list(stored.remarks) == said
        assert (len(stored.runs), stored.out_of_time) == (24, 24 - done)
    assert not within_seconds(study, 9.0, 1).left_out
    assert not within_seconds(study, -1.0, 1).left_out


@pytest.mark.parametrize(("cost_of_more", "done"), [(0.1, 24), (1000.0, 2)])
def test_time_that_estimates_left_unused_is_used(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, cost_of_more: float, done: int
) -> None:
    """Finished runs show that a run takes less, or more, than was estimated at first."""
    seconds = {False: 20.0, True: cost_of_more}
    study = ready(tmp_path)
    monkeypatch.setattr(schedule, "cost_of", lambda *_: Cost(seconds[bool(ledger(study.results))]))
    part = within_seconds(study, 45.0, 1)
    assert len(part.left_out) == 22
    assert execute([part], 1, unwatched, run=fake, deadline=time.monotonic() + 45.0) == ()
    assert len(ledger(study.results)) == done
    said = () if done == 24 else (BudgetRemark(chosen=2, planned=24, seconds=45.0),)
    stored = load_plan(study.results)
    assert (stored.remarks, stored.out_of_time) == (said, 24 - done)


def test_a_budget_adds_nothing_after_a_failure(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    study = ready(tmp_path)
    monkeypatch.setattr(schedule, "cost_of", lambda *_: Cost(20.0))
    part = within_seconds(study, 45.0, 1)
    (name, _) = sorted({run.id for run in study.plan.runs} - part.left_out)
    order(study, name, "guest")
    failures = execute([part], 1, unwatched, run=fake, deadline=time.monotonic() + 45.0)
    assert [failure.ended.run for failure in failures] == [name]
    assert len(ledger(study.results)) == 1


def test_a_budget_does_not_leave_out_what_is_done(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Of the last seed, one variant has finished, as after a failure of the other."""
    monkeypatch.setattr(schedule, "cost_of", lambda task, _: Cost(5.0, 0))
    text = MATRIX.replace('["ring-4", "ring-2"]', '["ring-2"]').rpartition("[[workloads]]")[0]
    study = ready(tmp_path, text)
    rest = {run.id for run in study.plan.runs} - {"ring-2_few_before_3"}
    execute([replace(study, left_out=frozenset(rest))], 1, unwatched, run=fake)
    part = within_seconds(study, 10.0, 1)
    assert part.plan.remarks == (BudgetRemark(chosen=3, planned=6, seconds=10.0),)
    assert part.left_out == rest - {"ring-2_few_before_1", "ring-2_few_after_1"}


@pytest.mark.parametrize("seeds", ["[1, 2, 3]", "[1, 7, 42]", "[9, 8, 7]"])
def test_a_rule_first_adds_what_a_budget_left_out(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, seeds: str
) -> None:
    monkeypatch.setattr(schedule, "cost_of", lambda task, _: Cost(5.0, 0))
    study = ready(tmp_path, MATRIX.replace("[1, 2, 3]", seeds))
    rule = StoppingRule("task_migrations", 3)
    execute([within_seconds(study, 80.0, 1)], 2, unwatched, rule=rule, run=fake)
    stored = load_plan(study.results)
    assert (stored.runs, len(ledger(study.results))) == (study.plan.runs, 24)
    (remark,) = stored.remarks
    assert rule.made(remark)


@given(st.floats(4, 90), st.integers(1, 4))
def test_a_budget_is_kept_and_variants_stay_together(plan: Plan, seconds: float, jobs: int) -> None:
    chosen = within_budget(plan, seconds, cost, jobs)
    assert chosen.digest == plan.digest
    assert makespan(map(cost, sorted(chosen.runs, key=cost)), jobs) <= 1.5 * seconds
    variants = [(run.cell, run.seed) for run in chosen.runs]
    assert all(variants.count(variant) == 2 for variant in variants)
    for cell in chosen.cells:
        seeds = sorted(run.seed for run in chosen.runs if run.cell == cell)
        assert seeds == sorted([1, 1, 2, 2, 3, 3][: len(seeds)])


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 90), ("90s", 90), ("20m", 1200), ("1h30m", 5400), ("2 h 5 min 1 s", 7501)],
)
def test_times(text: str, seconds: int) -> None:
    assert parse_seconds(text) == seconds
    assert parse_seconds("3", plain="m") == 180 and parse_seconds("3s", plain="m") == 3


@pytest.mark.parametrize("text", ["", "m", "20 apples", "-5", "1.5h", "9" * 30, "0", "0m"])
def test_what_is_no_time(text: str) -> None:
    with pytest.raises(ValueError, match=r"not a time|no time above 0"):
        parse_seconds(text)


RULE = StoppingRule("m", 10)


@pytest.mark.parametrize(
    ("before", "after", "reason"),
    [
        ([1.0, 1.1], [9.0, 9.1], None),
        ([1.0, 1.1, 0.9, 1.0], [9.0, 9.1, 9.2, 9.0], StopReason.DIFFERENCE_SHOWN),
        ([100.0, 100.5, 99.5, 100.2], [100.1, 99.9, 100.3, 99.8], StopReason.INTERVAL_NARROW),
        ([100.0, 102.0, 99.0], [106.0, 108.5, 105.0], None),  # +2.3 to +10 %: more runs show it
        ([5.0, 1.0, 9.0], [2.0, 8.0, 4.0], None),
        ([3.0, 3.0, 3.0], [3.0, 3.0, 3.0], StopReason.ALL_THE_SAME),
        ([None, None, None], [1.0, 2.0, 3.0], StopReason.NOT_MEASURED),
        ([None, 1.0, 2.0], [1.0, 2.0, 3.0], None),
    ],
)
def test_when_a_measure_is_decided(
    before: list[float | None], after: list[float | None], reason: StopReason | None
) -> None:
    assert RULE.decided(before, after) is reason


def test_looking_more_often_asks_for_more() -> None:
    samples = ([1.0, 1.2, 1.1], [1.5, 1.62, 1.42])
    assert StoppingRule("m", 3).decided(*samples)
    assert StoppingRule("m", 40).decided(*samples) is None


def test_repetitions_are_added_until_the_rule_is_content(tmp_path: Path) -> None:
    """The fake's values grow with the seed, +10 from before to after."""
    study = ready(tmp_path, MATRIX.replace("seeds = [1, 2, 3]", "seeds = [1, 2]"))
    rule = StoppingRule("task_migrations", 6)
    assert execute([study], 2, unwatched, rule=rule, run=fake) == ()
    stored = load_plan(study.results)
    seeds = sorted({run.seed for run in stored.runs})
    assert seeds == [1, 2, 3]
    assert len(ledger(study.results)) == 24
    (remark,) = stored.remarks
    assert "4 looks at most" in str(remark)
    assert "ring-4, few: a difference was shown" in str(remark)
    execute([study], 2, unwatched, run=fake)  # resumed without a rule: what was added stays
    assert len(ledger(study.results)) == 24
    assert len(load_plan(study.results).runs) == 24
    assert load_plan(study.results).remarks == (remark,)


@pytest.mark.parametrize("met", [True, False])
def test_what_results_record_where_a_budget_ends(tmp_path: Path, *, met: bool) -> None:
    """Every planned run has started before the time is over."""
    text = MATRIX.replace('["ring-4", "ring-2"]', '["ring-2"]').rpartition("[[workloads]]")[0]
    study = ready(tmp_path, text if met else text.replace("[1, 2, 3]", "[1, 2]"))
    rule, now = StoppingRule("task_migrations", 6), time.monotonic()
    assert execute([study], 6, unwatched, rule=rule, run=fake, deadline=now) == ()
    *over, remark = load_plan(study.results).remarks
    assert over == ([] if met else [TimeOverRemark(left=0)])
    assert ("ring-2, few: a difference was shown" in str(remark)) is met
    assert execute([study], 2, unwatched, rule=rule, run=fake) == ()  # the same command goes on
    assert {run.seed for run in load_plan(study.results).runs} == {1, 2, 3}
    (remark,) = load_plan(study.results).remarks
    assert "ring-2, few: a difference was shown" in str(remark)


def test_a_rule_adds_unused_seeds_where_the_largest_is_planned(tmp_path: Path) -> None:
    text = MATRIX.replace('["ring-4", "ring-2"]', '["ring-2"]').rpartition("[[workloads]]")[0]
    largest = (1 << 32) - 1
    study = ready(tmp_path, text.replace("[1, 2, 3]", f"[0, {largest}]"))
    execute([study], 2, unwatched, rule=StoppingRule("no_such_measure", 4), run=fake)
    assert {run.seed for run in load_plan(study.results).runs} == {0, 1, largest}


def test_a_rule_adds_to_results_that_lack_no_run(tmp_path: Path) -> None:
    study = ready(tmp_path, MATRIX.replace("seeds = [1, 2, 3]", "seeds = [1, 2]"))
    execute([study], 1, unwatched, run=fake)
    assert len(ledger(study.results)) == 16
    execute([study], 1, unwatched, rule=StoppingRule("task_migrations", 6), run=fake)
    stored = load_plan(study.results)
    assert {run.seed for run in stored.runs} == {1, 2, 3}
    assert len(ledger(study.results)) == 24
    (remark,) = stored.remarks
    assert "ring-4, few: a difference was shown" in str(remark)


@pytest.mark.parametrize("ruled", [True, False])
@pytest.mark.parametrize("left", ["all", "ended"])
def test_an_interrupted_repetition_is_completed(tmp_path: Path, left: str, *, ruled: bool) -> None:
    """When the time is over, the stored plan keeps those of its runs that ended."""
    study = ready(tmp_path, MATRIX.replace("seeds = [1, 2, 3]", "seeds = [1, 2]"))
    rule = StoppingRule("task_migrations", 6)
    execute([study], 1, unwatched, rule=rule, run=fake)
    stored = load_plan(study.results)
    kept, *cut = (run.id for run in stored.runs if run.seed == 3)
    for name in cut:
        rmtree(study.results.run(name).path)
    if left == "ended":
        ended = tuple(run for run in stored.runs if run.id not in cut)
        cut_off = stored.model_copy(update={"runs": ended})
        write_json(study.results.plan, cut_off.model_dump(mode="json"))
    execute([study], 1, unwatched, rule=rule if ruled else None, run=fake)
    runs = load_plan(study.results).runs
    third = [run for run in runs if run.seed == 3]
    assert {run.seed for run in runs} == {1, 2, 3}
    assert len(third) == (2 if left == "ended" and not ruled else 8)
    assert {run.id for run in third} <= study.results.finished().keys()
    assert (kept, len(ledger(study.results))) == (third[0].id, 24 + len(third) - 1)
    assert len(load_plan(study.results).remarks) == 1


def test_a_lost_run_of_a_repetition_is_tried_again_and_the_rule_goes_on(tmp_path: Path) -> None:
    study = ready(tmp_path, MATRIX.replace("seeds = [1, 2, 3]", "seeds = [1]"))
    rule = StoppingRule("task_migrations", 6)
    order(study, "ring-2_few_after_2", "guest")
    failures = execute([study], 1, unwatched, rule=rule, run=fake)
    assert [failure.ended.run for failure in failures] == ["ring-2_few_after_2"]
    assert execute([study], 1, unwatched, rule=rule, run=fake) == ()
    assert {run.seed for run in load_plan(study.results).runs} == {1, 2, 3}
    assert len(ledger(study.results)) == 24


def test_a_rule_pools_no_values_of_a_measure_that_changed(tmp_path: Path) -> None:
    """As where numalab was upgraded between two calls."""
    study = ready(tmp_path, MATRIX.replace("seeds = [1, 2, 3]", "seeds = [1, 2]"))
    execute([study], 2, unwatched, run=fake)
    path = study.results.run("ring-2_few_after_2").measures
    path.write_text(path.read_text().replace('"definition": "d"', '"definition": "other"'))
    other = StoppingRule("no_such_measure", 3)
    assert execute([study], 2, unwatched, rule=other, run=fake) == ()
    rule = StoppingRule("task_migrations", 6)
    assert execute([study], 2, unwatched, rule=rule, run=fake) == ()
    remarks = load_plan(study.results).remarks
    (mine,) = [r for r in remarks if isinstance(r, RepetitionsRemark) and r.measure == rule.measure]
    assert Decided(cell="ring-2, few", why=(StopReason.REDEFINED,), runs=3) in mine.decided
    assert [cell.why for cell in mine.decided].count((StopReason.REDEFINED,)) == 1


def test_repetitions_end_at_the_most(tmp_path: Path) -> None:
    study = ready(tmp_path, MATRIX.replace('["ring-4", "ring-2"]', '["ring-2"]'))
    rule = StoppingRule("no_such_measure", 4)
    execute([study], 2, unwatched, rule=rule, run=fake)
    (remark,) = load_plan(study.results).remarks
    assert "ring-2, few: it could not be measured" in str(remark)


def test_the_measure_of_a_rule_must_be_there(plan: Plan) -> None:
    require_measure(plan, "task_migrations", "--until-significant")
    with pytest.raises(UserError, match="--until-significant: no measure is called 'x'"):
        require_measure(plan, "x", "--until-significant")
