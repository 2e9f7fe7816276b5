"""`numalab hunt` and `numalab bisect --case`, with boots that a rule answers for."""

import json
import re
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, cast

import pytest
from typer.testing import Result

from numalab.campaign.build import Builds
from numalab.cli.hunt import bisect_case as bisect_command
from numalab.cli.hunt import hunt as hunt_command
from numalab.cli.hunt import replay_cases as replay_command
from numalab.cli.kernel_choice import chosen_kernel
from numalab.cli.study.bisect import command as bisect
from numalab.emulator.emulator_specs import EmulatorSpec
from numalab.errors import BuildError, HostError, UserError
from numalab.guest.kvm import Choice
from numalab.hunt import store_case
from numalab.hunt.boot_case import HuntBench
from numalab.hunt.case import Case
from numalab.hunt.case_file import read_case
from numalab.hunt.direction.hints import Bias
from numalab.hunt.direction.plan import CountedCode
from numalab.hunt.finding import BootResult, Finding
from numalab.hunt.outcome import ConfirmedViolation
from numalab.hunt.property import OF_SCHEDULER
from numalab.hunt.replay import verdict
from numalab.hunt.workers import CaseWorkers
from numalab.kernel.kernel_specs import KernelSpec, list_kernels
from numalab.places import shipped_dir
from numalab.reach.line_table import LineTable
from numalab.reach.model import CodeChange, RunReach
from numalab.scheduler.in_guest import SchedulerInGuest
from numalab.scheduler.scheduler_artifact import BuiltScheduler
from numalab.scheduler.scheduler_spec import SchedulerSpec
from numalab.study.model import load_study
from support.one_command import invoke
from unit.hunt.direction.counted import boot, line

BAD = "debian-6.12-mutation-pinned-fallback"
GOOD = "debian-6.12"
CASE = shipped_dir() / "hunts" / "beside-the-mask.toml"
Rule = Callable[[str, int], float]  # kernel, seed: how many ms a task ran beside its mask


@dataclass
class FakeCrew:
    """Answers for boots by a rule."""

    rule: Rule
    boots: list[tuple[str, int]]
    count: int = 1
    requested: int = 0
    reach: RunReach | None = None
    deadline: float | None = None

    def boot(self, boots: Sequence[tuple[Case, Any, int]]) -> list[BootResult]:
        self.requested += len(boots)
        self.boots += [(bench.kernel.name, seed) for _, bench, seed in boots]
        results = [self._boot_all(case, bench.kernel.name, seed) for case, bench, seed in boots]
        counts = [self.reach if bench.reach is not None else None for _, bench, _ in boots]
        return [replace(r, reach=reach) for r, reach in zip(results, counts, strict=True)]

    def _boot_all(self, case: Case, kernel: str, seed: int) -> BootResult:
        ms = self.rule(kernel, seed)
        if ms < 0:
            return BootResult((), 1.0, "no space on this host\nat all")
        loads = range(len(case.loads))
        findings = [Finding("affinity", n, ms, 0.0, f"ran beside it for {ms} ms") for n in loads]
        return BootResult(tuple(findings), 1.0)


class Bench:
    """Puts a crew in the place of guests; notes the modes asked for, the jobs and the boots."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.rule: Rule = lambda kernel, _: 5.0 if kernel == BAD else 0.0
        self.requested: list[tuple[list[str], str]] = []
        self.emulators: list[str | None] = []
        self.jobs: list[int] = []
        self.boots: list[tuple[str, int]] = []
        self.watchdog = 0.0
        self.written: list[str] = []
        self.holds: Sequence[str] = ()
        self.broken: set[str] = set()
        self.code: CountedCode | None = None
        self.reach: RunReach | None = None
        self.bytes_of: Callable[[KernelSpec], str] = lambda spec: spec.name
        for module in (hunt_command, replay_command, bisect_command):
            self._put(monkeypatch, module)
        monkeypatch.setattr(hunt_command, "plan_direction", lambda *_: self.code)
        monkeypatch.setattr(store_case, "write_folder", self._write)
        monkeypatch.setattr(bisect_command, "bench_like", self._like)

    def _put(self, monkeypatch: pytest.MonkeyPatch, module: ModuleType) -> None:
        monkeypatch.setattr(module, "connect", lambda _: None)
        monkeypatch.setattr(module, "ensure_emulator", lambda *_, **_more: None, raising=False)
        monkeypatch.setattr(module, "prepare_benches", self._benches)
        monkeypatch.setattr(module, "workers", self._workers)

    def _benches(
        self,
        specs: Sequence[KernelSpec],
        mode: str,
        *_: object,
        emulator: str | None,
        cold: bool = False,
        properties: frozenset[str] | None = None,
        scheduler: SchedulerSpec | None = None,
        watchdog: float = 0.0,
    ) -> list[Any]:
        self.watchdog = watchdog
        self.properties = properties
        self.requested.append(([spec.name for spec in specs], mode))
        self.emulators.append(emulator)
        choice = Choice("icount", "host", "asked for")
        kernels = {
            spec.name: SimpleNamespace(bzimage_sha256=self.bytes_of(spec), symbols=None)
            for spec in specs
        }
        files = cast(Builds, SimpleNamespace(files={}, kernels=kernels))
        first, *later = [HuntBench(spec, files, choice) for spec in specs]
        if scheduler is not None:
            built = BuiltScheduler(scheduler, Path("/nowhere"), "0")
            first = replace(
                first, scheduler=SchedulerInGuest(built, ("sh",), {}, round(watchdog * 1000))
            )
        return [first, *later]

    def _like(self, other: Any, spec: KernelSpec, _: object) -> Any:
        if spec.name in self.broken:
            raise BuildError(f"{spec.name} does not build", tail="error")
        return HuntBench(spec, other.builds, other.choice)

    @contextmanager
    def _workers(self, store: Any, jobs: int, on_result: object) -> Iterator[FakeCrew]:
        self.jobs.append(jobs)
        yield FakeCrew(self.rule, self.boots, reach=self.reach)

    def _write(self, place: Path, shown: Any, benches: Any, holds: Sequence[str]) -> None:
        self.written.append(place.name)
        self.holds = holds


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Bench:
    return Bench(monkeypatch)


def hunt(*words: object) -> Result:
    return invoke(hunt_command.command, *words)


def test_what_is_found_is_written_as_a_case_and_ends_with_1(bench: Bench, tmp_path: Path) -> None:
    done = hunt("--kernel", BAD, "--machines", 4, "--first", "--output", tmp_path, "--json")
    assert done.exit_code == 1
    document = json.loads(done.stdout)
    [violation] = document["found"]
    assert (violation["property"], document["kernel"]) == ("affinity", BAD)
    case, table, study = read_case(Path(violation["file"]))
    assert (table.violated_by, table.holds_on) == ((BAD,), (GOOD,))
    assert (len(case.machine.nodes), case.machine.cpu_count) == (
        violation["nodes"],
        violation["cpus"],
    )
    assert len(set(study.seeds)) == 3 and 1 not in study.seeds
    assert bench.boots[-3:] == [(GOOD, seed) for seed in study.seeds]
    assert bench.requested == [([BAD, GOOD], "icount")]
    assert bench.written == [Path(violation["file"]).stem]
    assert document["closeness"]["affinity"]["above"] == document["closeness"]["affinity"]["looks"]


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ((0.0, 0.0, 0.0), ((BAD,), (GOOD,))),
        ((5.0, 5.0, 5.0), ((BAD, GOOD), ())),
        ((0.0, 5.0, 0.0), ((BAD,), ())),
        ((0.0, -1.0, 0.0), ((BAD,), ())),
    ],
)
def test_a_case_names_the_kernels_that_a_replay_judges_so(
    values: Sequence[float],
    named: tuple[Sequence[str], Sequence[str]],
    bench: Bench,
    drawn_case: Case,
    tmp_path: Path,
) -> None:
    """One of which a boot fails (-1), or only some boots violate, is not named."""
    case, finding = drawn_case.only(drawn_case.loads[0]), Finding("affinity", 0, 5.0, 0.0, "it ran")
    violation = ConfirmedViolation(case, case, finding, (2, 3, 4), 1.0, 2.0, 1, 2, 3)
    builds = cast(Builds, SimpleNamespace(files={}, kernels={}))
    choice = Choice("icount", "host", "asked for")
    sides = [HuntBench(list_kernels()[name], builds, choice) for name in (BAD, GOOD)]
    crew = cast(
        CaseWorkers,
        FakeCrew(lambda kernel, seed: values[seed - 2] if kernel == GOOD else 5.0, []),
    )
    table = read_case(store_case.store_case(tmp_path, violation, sides, crew))[1]
    violated_by, holds_on = named
    assert (table.violated_by, table.holds_on) == named
    assert tuple(bench.holds) == holds_on, "what the mail calls weaker, or absent"
    for name, expected in [(name, True) for name in violated_by] + [(GOOD, False)] * len(holds_on):
        boots = crew.boot([(case, side, seed) for side in sides if side.kernel.name == name
                           for seed in violation.seeds])  # fmt: skip
        assert verdict(boots, "affinity", table.most, every=expected)[0] == expected


@pytest.mark.parametrize("builds", [True, False])
def test_a_hunt_builds_an_emulator_of_its_own(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, builds: bool
) -> None:
    def build(spec: EmulatorSpec, **_: object) -> None:
        if not builds:
            raise BuildError(f"no source of {spec.name}", tail="error")

    monkeypatch.setattr(hunt_command, "ensure_emulator", build)
    words = ("--kernel", GOOD, "--machines", 4, "--output", tmp_path)
    done = hunt(*words)
    assert bench.emulators == ["qemu-10.0" if builds else None]
    assert ("vary more by chance: no source of qemu-10.0" in done.stderr) is not builds
    hunt(*words, "--emulator", "qemu-7.2")
    hunt(*words, "--mode", "tcg")
    assert bench.emulators[1:] == ["qemu-7.2", None]


def test_a_case_says_on_which_emulator_it_was_seen(bench: Bench, tmp_path: Path) -> None:
    words = ("--kernel", BAD, "--machines", 4, "--first", "--emulator", "qemu-10.0")
    done = hunt(*words, "--output", tmp_path, "--json")
    [violation] = json.loads(done.stdout)["found"]
    assert read_case(Path(violation["file"]))[2].machine.emulator == "qemu-10.0"
    assert bench.emulators == ["qemu-10.0"]


def test_where_nothing_is_found_it_says_how_close_it_came(bench: Bench, tmp_path: Path) -> None:
    bench.rule = lambda kernel, seed: 0.0
    done = hunt("--machines", 4, "--against", "none", "--jobs", 7, "--output", tmp_path)
    assert done.exit_code == 0
    assert "4 machines, " in done.stdout
    assert "nothing found\npage: " in done.stdout
    assert "with seed 1 in mode icount" in done.stderr
    assert (bench.requested, bench.jobs) == ([([GOOD], "icount")], [7])
    assert [path.name for path in tmp_path.iterdir()] == ["index.html"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--properties", "affinity,no-such"), "--properties: no property is called 'no-such'"),
        (("--budget", "soon"), "--budget: not a time: 'soon'"),
        (("--budget", "0m"), "--budget: '0m' is no time above 0"),
        (("--junit", "x.xml"), "--junit: needs --replay"),
        (("--replay", "--budget", "3m"), "--budget: has no effect with --replay"),
        (("--replay", "--cold"), "--cold: has no effect with --replay"),
        (("--kernel", "no-such"), "no kernel is called 'no-such'"),
        (("--kernel", GOOD, "--kernel", BAD), "--kernel: a hunt is on one kernel, not 2"),
    ],
)
def test_a_wrong_word_is_named_before_anything_is_built(
    words: tuple[str, ...], said: str, bench: Bench
) -> None:
    with pytest.raises(UserError, match=said):
        hunt(*words)
    assert bench.requested == []


def test_a_hunt_boots_at_most_the_maximum_number_of_machines(bench: Bench, tmp_path: Path) -> None:
    bench.rule = lambda kernel, seed: 0.0
    for machines in (1, 4, 6):
        bench.boots.clear()
        words = ("--survey", "--machines", machines, "--loads", 1, "--seed", 5, "--jobs", 2)
        done = hunt(*words, "--output", tmp_path)
        assert len(bench.boots) == machines
        noun = "machine" if machines == 1 else "machines"
        assert f"{machines} {noun}, {machines} load" in done.stdout


def test_two_kernels_with_the_same_bytes_are_not_hunted(bench: Bench, tmp_path: Path) -> None:
    bench.bytes_of = lambda _: "same"
    refusal = f"--against: {BAD} and {GOOD} are the same kernel.*: debian-6.12-.*-distribution"
    with pytest.raises(UserError, match=refusal):
        hunt("--kernel", BAD, "--output", tmp_path)
    assert not bench.boots
    hunt("--kernel", BAD, "--against", "none", "--machines", 1, "--output", tmp_path)
    assert bench.boots, "without a reference kernel nothing is compared"


def test_a_kernel_is_not_compared_with_itself(bench: Bench, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=f"--against: {GOOD} is compared with itself") as error:
        hunt("--kernel", GOOD, "--against", GOOD, "--output", tmp_path)
    assert "patch" not in str(error.value)


def test_each_suspicion_has_an_outcome(bench: Bench, tmp_path: Path) -> None:
    bench.rule = lambda kernel, seed: 5.0 if kernel == BAD and seed == 1 else 0.0
    words = ("--machines", 1, "--loads", 1, "--kernel", BAD, "--output", tmp_path, "--json")
    done = hunt(*words)
    (row,) = json.loads(done.stdout)["suspicions"]
    assert (row["property"], row["confirmed"], row["value"], row["samples"]) == (
        "affinity", False, 0.0, 9,
    )  # fmt: skip
    assert "suspected: affinity: ran beside it for 5.0 ms (value 5, reference kernel 0)" in (
        done.stderr
    )
    means = "mean 0 in 9 samples; reference kernel: mean 0 in 9 samples"
    assert f"affinity in load 0 not confirmed: {means}" in done.stderr
    assert json.loads(done.stdout)["closest"]["affinity"] == {
        "value": 5.0, "limit": 0.0, "reference": 0.0, "unit": "",
        "closeness": pytest.approx(11 / 6),
    }  # fmt: skip


def test_a_hunt_that_compares_nothing_says_so_and_fails(bench: Bench, tmp_path: Path) -> None:
    bench.rule = lambda kernel, _: -1.0 if kernel == GOOD else 0.0
    words = ("--kernel", BAD, "--machines", 4, "--output", tmp_path)
    with pytest.raises(
        HostError, match="nothing was compared: the reference kernel: no space on this host"
    ):
        hunt(*words)
    page = (tmp_path / "index.html").read_text(encoding="utf-8")
    assert "(0 machines and 0 loads compared): the reference kernel: no space on this host." in page
    with pytest.raises(HostError, match="nothing was compared: no selected property has a value"):
        hunt(*words, "--properties", "throughput", "--against", "none")


def test_what_the_reference_kernel_shows_too_is_not_close(bench: Bench, tmp_path: Path) -> None:
    bench.rule = lambda kernel, seed: 5.0
    words = ("--machines", 1, "--loads", 1, "--kernel", BAD, "--output", tmp_path, "--json")
    assert "affinity" not in json.loads(hunt(*words).stdout)["closest"]


def test_a_finished_hunt_has_no_minutes_left(bench: Bench, tmp_path: Path) -> None:
    bench.rule = lambda kernel, seed: 0.0
    done = hunt("--survey", "--machines", 5, "--output", tmp_path)
    lines = [line for line in done.stderr.splitlines() if "closest: " in line]
    assert [" min left" in line for line in lines] == [True, False]


def test_only_selected_properties_are_judged(bench: Bench, tmp_path: Path) -> None:
    hunt("--survey", "--machines", 1, "--properties", "affinity", "--output", tmp_path)
    assert bench.properties == frozenset({"affinity"})


def test_a_list_has_the_selected_properties(bench: Bench) -> None:
    done = hunt("--list", "--properties", "affinity", "--json")
    assert [row["name"] for row in json.loads(done.stdout)] == ["affinity"]
    with pytest.raises(UserError, match=r"no property is called .few-fork..*affinity"):
        hunt("--properties", "few-fork", "--list")


def test_a_replay_does_each_case_on_the_kernels_it_names(bench: Bench, tmp_path: Path) -> None:
    junit = tmp_path / "junit.xml"
    cases = [read_case(CASE)[1]]
    assert (cases[0].violated_by, cases[0].holds_on) == ((BAD,), (GOOD,))
    bench.rule = lambda kernel, seed: 5.0 if kernel == BAD else 0.0
    done = hunt("--replay", "--junit", junit, "--output", tmp_path / "out")
    lines = [line for line in done.stderr.splitlines() if line.startswith("beside-the-mask on ")]
    assert [line.partition(": ")[2][:3] for line in lines] == ["ok:", "ok:"]
    failures = ET.parse(junit).getroot().findall(".//failure") + ET.parse(junit).findall(".//error")
    assert len(failures) == int(done.stdout.split(" done, ")[1].split()[0]) > 0
    assert done.exit_code == 1  # of the other cases nothing was shown


def test_a_replay_on_one_kernel_fails_where_it_shows_what_the_file_rules_out(
    bench: Bench, tmp_path: Path
) -> None:
    bench.rule = lambda kernel, seed: 5.0
    done = hunt("--replay", "--kernel", GOOD, "--output", tmp_path)
    assert bench.requested == [([GOOD], "icount")]
    assert f"beside-the-mask on {GOOD}: UNEXPECTED: " in done.stderr
    assert done.exit_code == 1


def test_a_replay_does_each_case_on_every_kernel_it_is_told(bench: Bench, tmp_path: Path) -> None:
    bench.rule = lambda kernel, seed: 5.0 if kernel == BAD else 0.0
    done = hunt("--replay", "--kernel", BAD, "--kernel", GOOD, "--output", tmp_path)
    assert bench.requested == [([BAD, GOOD], "icount")]
    for kernel in (BAD, GOOD):
        assert f"beside-the-mask on {kernel}: ok: " in done.stderr


def test_a_replay_names_a_patched_kernel_as_it_is_built(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    built = f"{GOOD}+mine-26af5f2d"
    chosen = replace(chosen_kernel(GOOD), name=built)
    monkeypatch.setattr(replay_command, "chosen_kernel", lambda _: chosen)
    bench.rule = lambda kernel, seed: 5.0
    done = hunt("--replay", "--kernel", f"{GOOD}+mine.patch", "--output", tmp_path)
    assert bench.requested == [([built], "icount")]
    assert f"beside-the-mask on {built}: UNEXPECTED: " in done.stderr


@pytest.fixture
def case_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the cases of a lab folder, with one case."""
    lab = tmp_path / "lab"
    (lab / "hunts").mkdir(parents=True)
    (lab / "hunts" / "mine.toml").write_text(CASE.read_text())
    monkeypatch.setenv("NUMALAB_PATH", str(lab))
    return lab / "hunts"


def test_a_replay_refuses_a_case_that_another_user_can_change(
    bench: Bench, case_folder: Path
) -> None:
    (case_folder / "mine.toml").chmod(0o666)
    with pytest.raises(UserError, match=r"mine\.toml: is not used: every user may write to"):
        hunt("--replay")
    assert not bench.boots


def test_a_replay_refuses_a_broken_case(bench: Bench, case_folder: Path) -> None:
    (case_folder / "mine.toml").write_text("question = 1\n")
    with pytest.raises(UserError, match=r"mine\.toml"):
        hunt("--replay")
    assert not bench.boots


@pytest.mark.parametrize("words", [(), ("--replay",)])
@pytest.mark.usefixtures("without_plugins")
def test_a_hunt_with_a_broken_plug_in_boots_nothing(
    words: tuple[str, ...], bench: Bench, case_folder: Path
) -> None:
    (case_folder.parent / "plugins").mkdir()
    (case_folder.parent / "plugins" / "bad.py").write_text("1 / 0\n")
    with pytest.raises(UserError, match=r"bad\.py: this plug-in cannot be imported"):
        hunt(*words)
    assert not bench.requested


def bisect_on(*words: object, case: Path = CASE) -> Result:
    return invoke(bisect, "--case", case, *words)


def test_the_patch_that_made_a_case_fail_is_named(bench: Bench, tmp_path: Path) -> None:
    bench.rule = lambda kernel, seed: 5.0 if kernel.endswith("-patch-1") else 0.0
    done = bisect_on("--output", tmp_path)
    assert done.exit_code == 0
    assert done.stdout.startswith("first bad step: ")
    assert re.search("[0-9]+ steps? after", done.stderr) and ": violates, " in done.stderr
    assert bench.requested[0][1] == "icount" and bench.jobs == [1]


def test_ends_that_do_not_differ_end_with_1(bench: Bench, tmp_path: Path) -> None:
    bench.rule = lambda kernel, seed: 0.0
    done = bisect_on("--output", tmp_path, "--json")
    assert done.exit_code == 1
    assert "the two ends do not differ" in json.loads(done.stdout)["ended"]


def test_a_step_violates_only_with_every_seed(bench: Bench, tmp_path: Path) -> None:
    first, *_, last = read_case(CASE)[2].seeds
    bench.rule = lambda kernel, seed: 5.0 if (kernel[-8:], seed) == ("-patch-1", last) else 0.0
    done = bisect_on("--output", tmp_path)
    assert done.exit_code == 1
    assert "patch-1 does not violate it" in done.stdout
    assert [seed for kernel, seed in bench.boots if kernel.endswith("-patch-1")] == [first]


def test_what_does_not_build_or_boot_is_not_judged(bench: Bench, tmp_path: Path) -> None:
    bench.rule = lambda kernel, seed: -1.0 if kernel.endswith("-patch-1") else 0.0
    done = bisect_on("--output", tmp_path)
    assert done.exit_code == 1
    assert done.stderr.endswith(": no space on this host\n")
    assert done.stderr.splitlines()[-1].startswith("patch-1: not judged, ")
    assert done.stdout.startswith("no first bad step: patch-1 is not judged: ")
    bench.broken = {f"{BAD}-patch-1"}
    with pytest.raises(BuildError, match=r"patch-1 does not build\n  \| error"):
        bisect_on("--output", tmp_path)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--good", "v1"), "give either --good and --bad, or --series"),
        (("--good", "a", "--bad", "b", "--series", "s"), "give either --good and --bad"),
        (("--study", "group-construction"), "give either --case, or --study and --measure"),
        (("--cell", "a"), "--cell: has no effect with --case"),
        (("--jobs", "2"), "--jobs: has no effect with --case"),
    ],
)
def test_ends_are_named_in_one_way(words: tuple[str, ...], said: str, bench: Bench) -> None:
    with pytest.raises(UserError, match=said):
        bisect_on(*words)


def test_a_case_that_no_kernel_violates_has_no_first(bench: Bench, tmp_path: Path) -> None:
    text = CASE.read_text().replace(f'violated_by = ["{BAD}"]', "violated_by = []")
    (tmp_path / "case.toml").write_text(text)
    with pytest.raises(UserError, match=r"case\.violated_by: names no kernel that violates it"):
        bisect_on(case=tmp_path / "case.toml")


def test_a_kernel_without_a_series_needs_revisions(bench: Bench, tmp_path: Path) -> None:
    text = CASE.read_text().replace(f'violated_by = ["{BAD}"]', f'violated_by = ["{GOOD}"]')
    (tmp_path / "case.toml").write_text(text)
    with pytest.raises(UserError, match=f"{GOOD} has no series; say --good and --bad"):
        bisect_on(case=tmp_path / "case.toml")


def counted_code(change: CodeChange = CodeChange.LINES) -> CountedCode:
    table = LineTable("x", BAD, "patched", change, (), (), 0, 250)
    return CountedCode("x", change, table, Bias({}, {}))


def test_nothing_found_is_reported_with_the_lines_that_ran(bench: Bench, tmp_path: Path) -> None:
    bench.rule = lambda *_: 0.0
    bench.code, bench.reach = counted_code(), boot(line(5, "added", 3, (3, 0)), line(6))
    words = ("--kernel", BAD, "--machines", 4, "--output", tmp_path)
    text = hunt(*words)
    assert text.exit_code == 0
    assert "nothing found\nreach: x: partly reached, 1 of 2 changed lines" in text.stdout
    assert "never ran: kernel/sched/fair.c:6" in text.stdout
    reach = json.loads(hunt(*words, "--json").stdout)["reach"]
    assert (reach["boots"], reach["verdict"], len(reach["lines"])) == (4, "partly reached", 2)
    assert reach["branches"][0]["taken"] == {"to_line": 90, "executions": 12, "boots": 4}


def test_a_patch_whose_lines_never_ran_is_not_reached(bench: Bench, tmp_path: Path) -> None:
    bench.rule = lambda *_: 0.0
    bench.code, bench.reach = counted_code(), boot(line(6))
    done = hunt("--kernel", BAD, "--machines", 4, "--output", tmp_path)
    assert "not reached: no changed line ran" in done.stdout
    assert "nothing found" not in done.stdout


def test_boots_that_confirm_count_nothing(bench: Bench, tmp_path: Path) -> None:
    bench.code, bench.reach = counted_code(), boot(line(5, "added", 3))
    words = ("--kernel", BAD, "--machines", 4, "--first", "--output", tmp_path, "--json")
    document = json.loads(hunt(*words).stdout)
    assert document["found"]
    assert document["reach"]["boots"] == document["machines"] < len(bench.boots)


def test_a_series_without_effect_on_the_code_is_warned_of(bench: Bench, tmp_path: Path) -> None:
    bench.rule = lambda *_: 0.0
    bench.code = counted_code(CodeChange.NONE)
    done = hunt("--kernel", BAD, "--machines", 4, "--output", tmp_path)
    assert "x compiles to the same code as the kernel without it" in done.stderr


def test_an_undirected_hunt_draws_the_cases_of_a_kernel_without_series(
    bench: Bench, tmp_path: Path
) -> None:
    bench.rule = lambda *_: 0.0
    bench.reach = boot(line(5, "added", 3, (3, 0)))

    def covered(*words: str) -> object:
        done = hunt("--kernel", BAD, "--machines", 12, "--output", tmp_path, "--json", *words)
        return json.loads(done.stdout)["covered"]

    plain = covered()
    bench.code = counted_code()
    assert covered("--undirected") == plain
    assert covered() != plain


def test_a_scheduler_is_hunted_for_its_own_properties_and_without_hotplug(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.rule = lambda *_: 5.0
    monkeypatch.setattr(hunt_command, "plan_direction", lambda *_: pytest.fail("compiles a kernel"))
    words = ("--scheduler", "scx_simple", "--argument=-f", "--first", "--output", tmp_path)
    done = hunt(*words, "--machines", 4)
    assert done.exit_code == 1
    assert bench.properties == OF_SCHEDULER
    assert bench.requested == [(["debian-6.12-sched-ext"], "icount")]
    assert "debian-6.12-sched-ext with scx_simple -f" in done.output
    [file] = tmp_path.glob("affinity-*.toml")
    variant = load_study(file).variants["violates"]
    assert (variant.scheduler, variant.scheduler_arguments) == ("scx_simple", ("-f",))
    assert "hotplug" not in file.read_text()
    assert not bench.written  # a reproducer without numalab would lack the scheduler
    assert (file.with_suffix("") / "mail.txt").is_file()
    assert bench.watchdog == variant.scheduler_watchdog == 5.0
    with pytest.raises(UserError, match="numalab run repeats it"):
        read_case(file)


def test_arguments_need_a_scheduler(bench: Bench) -> None:
    with pytest.raises(UserError, match="has no effect without --scheduler"):
        hunt("--argument=-f")
    with pytest.raises(UserError, match="no scheduler is called 'scx_none'"):
        hunt("--scheduler", "scx_none")
    assert not bench.requested


def test_a_hunt_goes_on_without_line_numbers(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise BuildError("fair.o does not compile", tail="error")

    monkeypatch.setattr(hunt_command, "plan_direction", fails)
    done = hunt("--kernel", BAD, "--machines", 4, "--first", "--output", tmp_path, "--json")
    assert "hunting without direction: fair.o does not compile" in done.stderr
    document = json.loads(done.stdout)
    assert document["found"] and document["reach"] is None
