"""Finding the step that changed a measure: the search, the driver, and steps that run."""

import json
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from numalab.bisect import measure_steps as bench_module
from numalab.bisect.bisect import Bisection, StepValues, TriedStep, bisect, like
from numalab.bisect.history import History, Step, git_history, series_history
from numalab.bisect.measure_steps import Bench, bench_folder, run_bisection
from numalab.bisect.search import Search, places, start_search
from numalab.campaign.build import Builds, BuiltStudy
from numalab.campaign.execute import Schedule, TaskEvent, execute
from numalab.campaign.executors.processes import Finished, News
from numalab.campaign.stopping import StoppingRule
from numalab.campaign.task import Task
from numalab.cli import main
from numalab.cli.study import bisect as cli
from numalab.errors import BuildError, HostError, UserError
from numalab.files import read_json
from numalab.guest.kvm import Choice
from numalab.image.image_artifact import BuiltImage
from numalab.kernel.kernel_specs import KernelSpec, series_path
from numalab.kernel.patch_series import find_series
from numalab.kernel.patched_kernel import find_kernel
from numalab.results.layout import Results
from numalab.study.plan import plan_study
from support.fake_executor import MATRIX, fake, kernel, ledger, order

SPEC = KernelSpec("k", "", "/nowhere")
RULE = StoppingRule("task_migrations", 8)
SERIES = "undo-numa-fixes-2018"
MEASURED = (0.1, 0.0, 0.2, 0.15, 0.05, 0.12, 0.17, 0.02)


@st.composite
def histories(draw: st.DrawFn) -> tuple[list[list[int]], int, set[int]]:
    """Draw a history with branches and merges, which step made the change, and broken steps."""
    size = draw(st.integers(1, 40))
    parents: list[list[int]] = []
    for place in range(size):
        above = st.sets(st.integers(0, place - 1), max_size=3) if place else st.just(set())
        parents.append(sorted(draw(above)))
    ancestry = start_search(parents).ancestry
    planted = draw(st.sampled_from(list(places(ancestry[-1]))))
    skips = draw(st.sets(st.integers(0, size - 1))) - {size - 1}
    return parents, planted, skips


def searched(parents: Sequence[Sequence[int]], planted: int, skips: set[int]) -> tuple[Search, int]:
    search, tried = start_search(parents), 0
    while (place := search.next()) is not None:
        tried += 1
        if place in skips:
            search = search.skip(place)
        elif search.ancestry[place] >> planted & 1:
            search = search.is_bad(place)
        else:
            search = search.is_good(place)
    return search, tried


@given(histories())
def test_the_planted_change_is_found(drawn: tuple[list[list[int]], int, set[int]]) -> None:
    parents, planted, skips = drawn
    search, tried = searched(parents, planted, skips)
    suspects = set(places(search.suspects))
    assert planted in suspects
    assert suspects - {search.bad} <= skips
    assert tried <= len(parents)


@given(st.integers(1, 600).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n - 1))))
def test_a_line_is_halved(drawn: tuple[int, int]) -> None:
    size, planted = drawn
    search, tried = searched([[n - 1] * (n > 0) for n in range(size)], planted, set())
    assert list(places(search.suspects)) == [planted]
    assert tried <= (size - 1).bit_length()


def test_a_cluster_of_broken_steps_is_left_behind() -> None:
    search, tried = searched([[n - 1] * (n > 0) for n in range(500)], 40, set(range(200, 300)))
    assert list(places(search.suspects)) == [40]
    assert tried < 25


def line(size: int) -> History:
    steps = (Step(f"s{n}", f"change {n}", SPEC, (n - 1,) * (n > 0)) for n in range(size))
    return History("line", Step("good", "", SPEC), tuple(steps))


def taking(
    values: Callable[[str, int], StepValues],
) -> Callable[[Sequence[Step], int], list[StepValues]]:
    return lambda steps, count: [values(step.name, count) for step in steps]


def driven(
    size: int, values: Callable[[str, int], StepValues], rule: StoppingRule = RULE
) -> tuple[Bisection, list[TriedStep]]:
    rows: list[TriedStep] = []
    return bisect(line(size), rule, 3, taking(values), rows.append), rows


@given(st.integers(1, 30), st.data())
def test_the_driver_finds_the_step(size: int, data: st.DataObject) -> None:
    planted = data.draw(st.integers(0, size - 1))
    skips = data.draw(st.sets(st.integers(0, size - 2))) if size > 1 else set()

    def values(name: str, count: int) -> StepValues:
        place = -1 if name == "good" else int(name[1:])
        if place in skips:
            return StepValues(skipped="does not build\nfair.c:1: error", exit_code=5)
        return StepValues(tuple(10 * (place >= planted) + sample for sample in MEASURED[:count]))

    bisection, rows = driven(size, values)
    names = [step.name for step in bisection.first]
    assert f"s{planted}" in names
    assert {int(name[1:]) for name in names[:-1]} <= skips
    assert bisection.rows == tuple(rows)
    assert all(row.reason == "does not build" for row in rows if row.side == "skipped")
    assert (bisection.exit_code, bisection.ended) == (0, "")


def test_runs_are_added_until_a_step_is_like_one_end() -> None:
    asked: list[int] = []
    noisy = (-5.0, 15.0) * 4

    def values(name: str, count: int, middle: Sequence[float]) -> StepValues:
        if name == "s0":
            asked.append(count)
            return StepValues(tuple(middle[:count]))
        return StepValues(tuple(10.0 * (name == "s1") + sample for sample in MEASURED[:count]))

    bisection, _ = driven(2, lambda name, count: values(name, count, MEASURED))
    assert [step.name for step in bisection.first] == ["s1"]
    assert asked == [3]
    undecided, rows = driven(2, lambda name, count: values(name, count, noisy))
    assert [step.name for step in undecided.first] == ["s0", "s1"]
    assert asked[1:] == [3, 4, 5, 6, 7, 8]
    assert rows[-1].reason == "8 runs show no difference from either end"


@pytest.mark.parametrize(
    ("disturbed", "reason"),
    [
        ("s0", "its times are not valid because other work ran"),
        ("s1", "the times of an end with more seeds are not valid because other work ran"),
    ],
)
def test_a_step_without_valid_times_is_not_judged(disturbed: str, reason: str) -> None:
    """An end is disturbed with its fourth seed, which the middle needs."""

    def values(name: str, count: int) -> StepValues:
        ran = tuple(10.0 * (name != "good") + sample for sample in MEASURED[:count])
        if name == disturbed == "s0" or (name == disturbed and count > 3):
            return StepValues(ran, untimed="other work ran")
        return StepValues((-5.0, 15.0, -5.0, 15.0)[:count] if name == "s0" else ran)

    bisection, rows = driven(2, values)
    assert [step.name for step in bisection.first] == ["s0", "s1"]
    assert (rows[-1].step, rows[-1].side, rows[-1].reason) == ("s0", "skipped", reason)


@pytest.mark.parametrize(
    ("taken", "code", "words"),
    [
        (StepValues(MEASURED), 1, "the two ends do not differ in task_migrations"),
        (StepValues((None,) * 8), 1, "not measured and not measured; no run of good could"),
        (
            StepValues(skipped="it does not build\nfair.c:1: error", exit_code=5),
            5,
            "one of the two ends, gave no result: it does not build\nfair.c:1: error",
        ),
        (StepValues(MEASURED, untimed="tcg emulates"), 1, "because tcg emulates"),
    ],
)
def test_ends_that_do_not_differ_end_it(taken: StepValues, code: int, words: str) -> None:
    bisection, rows = driven(5, lambda _name, count: replace(taken, values=taken.values[:count]))
    assert (bisection.exit_code, bisection.first, rows) == (code, (), [])
    assert words in bisection.ended


def test_what_a_step_is_like() -> None:
    good, bad = (1.0, 1.1, 1.2), (5.0, 5.1, 5.2)
    assert like(good, bad, (5.1, 5.0, 5.2), 1)[0] == "bad"
    assert like(good, bad, (1.1, 1.0, 1.2), 1)[0] == "good"
    assert like(good, bad, (4.0, 4.1, 4.2), 1) == (
        "bad", "differs from both ends, but its mean is nearer to bad",
    )  # fmt: skip
    assert like(good, bad, (1.0, 5.0, 3.0), 1)[0] == "skipped"


def test_the_patches_of_a_series_one_by_one() -> None:
    base = find_kernel("debian-6.12")
    history = series_history(base, SERIES)
    whole = find_series(SERIES)
    assert [step.title for step in history.steps] == [patch.subject for patch in whole.patches]
    assert history.good.spec.series == ()
    counts = [len(find_series(step.spec.series[0]).patches) for step in history.steps]
    assert counts == list(range(1, len(whole.patches) + 1))
    assert history.steps[-1].spec.series == (SERIES,)
    # A kernel that has the series already is taken without it.
    name = "debian-6.12-undo-group-construction"
    copied = replace(find_kernel("debian-6.12"), series=(str(series_path(SERIES)),))
    assert series_history(copied, SERIES).good.spec.series == (), "the same patches"
    undone = series_history(find_kernel(name), "undo-group-construction")
    assert [step.spec.groups for step in undone.steps] == ["now", "now", "before-4.13"]
    assert undone.good.spec.series == ()
    with pytest.raises(UserError, match="has patches 1 to 3, not 4"):
        find_series("undo-group-construction#4")


def git(folder: Path, *words: str) -> str:
    argv = ["git", "-c", "user.name=x", "-c", "user.email=x@example.org", *words]
    done = subprocess.run(argv, cwd=folder, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def test_the_commits_of_a_repository(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q", "-b", "main")
    for name in ("zero", "one"):
        git(tmp_path, "commit", "-q", "--allow-empty", "-m", name)
    git(tmp_path, "checkout", "-q", "-b", "side", "HEAD~1")
    git(tmp_path, "commit", "-q", "--allow-empty", "-m", "on the side")
    git(tmp_path, "checkout", "-q", "main")
    git(tmp_path, "merge", "-q", "--no-ff", "-m", "both", "side")
    base = find_kernel("debian-6.12")
    history = git_history(base, f"git:{tmp_path}@HEAD~2", "main")
    titles = [step.title for step in history.steps]
    assert sorted(titles) == ["both", "on the side", "one"]
    assert titles[-1] == "both"
    assert [set(step.parents) for step in history.steps] == [set(), set(), {0, 1}]
    assert history.steps[-1].spec.source == f"git:{tmp_path}@{git(tmp_path, 'rev-parse', 'main')}"
    assert history.steps[-1].spec.fragments == base.fragments
    with pytest.raises(UserError, match="--good is the older one"):
        git_history(base, f"git:{tmp_path}@main", "main~1")
    with pytest.raises(UserError, match="is not built from git"):
        git_history(base, "v1", "v2")


class Here:
    """An executor in this process, as starting workers for every step takes long."""

    def __init__(self) -> None:
        self._news: list[News] = []

    def fits(self, _task: Task) -> bool:
        return not self._news

    def start(self, task: Task) -> None:
        self._news.append(Finished(task.key, fake(task, lambda _: None)))

    def news(self, _seconds: float) -> list[News]:
        news, self._news = self._news, []
        return news

    def close(self) -> None:
        self._news = []


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    """A study whose kernels need not be built; the change is in patch 5, and patch 4 is broken."""
    monkeypatch.setenv("NUMALAB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("FAKE_EXECUTOR", str(tmp_path))
    path = tmp_path / "tried.toml"
    path.write_text(MATRIX)
    (tmp_path / "rootfs").write_bytes(b"root")
    (tmp_path / "bzImage").write_bytes(b"kernel")
    image = BuiltImage("base", tmp_path / "rootfs", "0" * 64, 1 << 21, ())

    def build(specs: Sequence[KernelSpec], *_: object) -> Builds:
        (spec,) = specs
        if spec.name.endswith("patch-4"):
            raise BuildError("patch 4 does not build", tail="error: what")
        return Builds(
            {spec.name: kernel(spec.name, tmp_path / "bzImage")}, image, {"bound-hogs": {}}
        )

    monkeypatch.setattr(bench_module, "build", build)
    monkeypatch.setattr(
        bench_module, "choose_plan_mode", lambda *_, **__: Choice("icount", "host", "asked for")
    )
    monkeypatch.setattr(
        bench_module, "execute", lambda *args, **more: execute(*args, **more, executor=Here())
    )
    plan = plan_study(path)
    names = [step.spec.name for step in history().steps[4:]]
    (tmp_path / "planted").write_text(" ".join(names))
    return Bench(plan, plan.cells[0], "after", tmp_path / "results", "icount", jobs=2)


def history() -> History:
    return series_history(find_kernel("debian-6.12"), SERIES)


def unwatched(_: Schedule) -> Callable[[TaskEvent], None]:
    return lambda event: None


def again(bench: Bench) -> Bisection:
    return run_bisection(
        bench, history(), RULE, on_tried=lambda row: None, on_progress=None, watch=unwatched
    )  # fmt: skip


def test_a_series_is_bisected_and_its_runs_are_kept(bench: Bench) -> None:
    bisection = again(bench)
    assert [step.name for step in bisection.first] == ["patch-4", "patch-5"]
    (broken,) = [row for row in bisection.rows if row.side == "skipped"]
    assert (broken.step, broken.reason) == ("patch-4", "patch 4 does not build")
    done = ledger(Results(bench.folder))
    assert len(done) == len(set(done)) == 3 * (len(bisection.rows) - 1)
    assert read_json(bench.folder / "bisect.json")["first"] == ["patch-4", "patch-5"]
    assert again(bench) == bisection
    assert ledger(Results(bench.folder)) == done


def test_steps_of_two_meanings_of_the_measure_are_not_compared(bench: Bench) -> None:
    again(bench)
    path = next(bench.folder.rglob("measures.json"))
    path.write_text(path.read_text().replace('"definition": "d"', '"definition": "other"'))
    with pytest.raises(UserError, match=f"{RULE.measure} cannot be tested: its definition"):
        again(bench)


def unprepared(bench: Bench) -> BuiltStudy:
    """A study of the bench's folder, enough to order how its runs end."""
    return BuiltStudy(bench.plan, None, Results(bench.folder), None)  # type: ignore[arg-type]


def test_a_step_that_does_not_boot_is_skipped(bench: Bench) -> None:
    middle = len(history().steps) // 2
    order(unprepared(bench), f"ring-4_few_patch-{middle}_1", "guest", "guest")
    bisection = again(bench)
    skipped = {row.step: row.reason for row in bisection.rows if row.side == "skipped"}
    assert "it panicked" in skipped[f"patch-{middle}"]


def test_a_host_that_fails_ends_it_and_it_can_go_on(bench: Bench) -> None:
    order(unprepared(bench), "ring-4_few_patch-0_2", "host", "host")
    with pytest.raises(HostError, match="no memory"):
        again(bench)
    before = ledger(Results(bench.folder))
    bisection = again(bench)
    assert [step.name for step in bisection.first] == ["patch-4", "patch-5"]
    done = ledger(Results(bench.folder))
    assert done[: len(before)] == before
    assert len(done) == len(set(done))


def test_the_folder_is_that_of_the_same_bisection(bench: Bench) -> None:
    def name(mode: str, history: History) -> str:
        return bench_folder(bench.plan, bench.cell, "after", mode, history)

    assert name("icount", history()) == name("icount", history())
    assert name("icount", history()) != name("kvm", history())
    assert name("icount", history()).startswith(f"bisect-{SERIES}-")


def test_the_command(bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli, "connect", lambda _: None)

    def run(*words: str) -> tuple[int, str]:
        argv = ["bisect", "--study", str(tmp_path / "tried.toml"), "--measure", "task_migrations"]
        done = CliRunner().invoke(main.application("bisect"), [*argv, *words])
        error = done.exception
        return done.exit_code, str(error) if isinstance(error, UserError) else done.stdout

    where = ["--variant", "after", "--cell", "ring-4_few", "--output", str(tmp_path / "out")]
    code, text = run(*where, "--series", SERIES)
    assert code == 0
    assert "all but the last were skipped" in text
    assert "patch-5" in text.splitlines()[-1]
    code, text = run(*where, "--series", SERIES, "--json")
    assert [step["name"] for step in json.loads(text)["first"]] == ["patch-4", "patch-5"]
    (tmp_path / "planted").unlink()
    code, text = run("--cell", "ring-2_few", "--series", SERIES, "--output", str(tmp_path / "b"))
    assert code == 1
    assert "the two ends do not differ" in text
    assert "several cells (valid: ring-4_few" in run("--series", SERIES)[1]
    assert "give either --good and --bad, or --series" in run(*where)[1]
    assert "no variant 'x' (valid: before, after)" in run(*where[2:], "--variant", "x")[1]
