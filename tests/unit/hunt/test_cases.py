"""Cases: the same seed gives the same ones, and each is written and read back unchanged."""

import random
import tomllib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from numalab.api import SHAPES, Count, Link, RuleBroken, Shape, register_shape
from numalab.errors import UserError
from numalab.hunt.case import Case, machine_of
from numalab.hunt.case_file import find_cases, read_case, render_case
from numalab.hunt.finding import Finding
from numalab.hunt.generate.cases import LOADS, Near, case_for_scheduler, draw_case
from numalab.hunt.generate.families import draw_loads
from numalab.hunt.generate.machines import MOST_CPUS, draw_machine
from numalab.hunt.loads.driver_output import part_of_task
from numalab.hunt.loads.load_text import parse_loads, render_loads
from numalab.hunt.posting.script import Statement, qemu_words, render_script
from numalab.machine.model import usual_shift
from numalab.places import project_dir
from numalab.study.plan import plan_study


def drawn(number: int) -> Case:
    rng = random.Random(f"7-{number}")
    machine = draw_machine(rng)
    return Case(machine, draw_loads(rng, machine, 5))


@settings(max_examples=40)
@given(st.integers(0, 10_000))
def test_the_same_seed_gives_the_same_case(number: int) -> None:
    assert drawn(number) == drawn(number)
    assert drawn(number).key() == drawn(number).key()


def test_each_fourth_machine_has_several_cores_of_two_cpus_on_each_node() -> None:
    for number in (3, 7, 11, 103):
        machine = draw_case(1, number).machine
        assert machine.packaging.threads == 2
        assert {len(node.cpus) for node in machine.nodes} <= {4, 6}
        assert 4 <= machine.cpu_count <= MOST_CPUS


def test_some_machines_have_dies_of_two_cores_or_more() -> None:
    drawn_ones = [draw_machine(random.Random(n), smt=n % 4 == 3).packaging for n in range(300)]
    with_dies = [shape for shape in drawn_ones if shape.dies > 1]
    assert len(with_dies) >= 3
    assert all(shape.cores >= 2 for shape in with_dies)
    assert {shape.threads for shape in with_dies} >= {1, 2}


@settings(max_examples=40)
@given(st.integers(0, 10_000))
def test_loads_are_written_and_read_back(number: int) -> None:
    case = drawn(number)
    assert parse_loads(render_loads(case.loads)) == case.loads
    assert len(render_loads(case.loads)) < 8000


@settings(max_examples=40)
@given(st.integers(0, 10_000))
def test_loads_name_only_what_the_machine_has(number: int) -> None:
    case = drawn(number)
    cpus = {cpu for node in case.machine.nodes for cpu in node.cpus}
    assert 2 <= len(cpus) <= MOST_CPUS
    for load in case.loads:
        assert load.every_cpu <= cpus
        assert all(part.node in (None, *range(len(case.machine.nodes))) for part in load.parts)


@settings(max_examples=40)
@given(st.integers(0, 10_000))
def test_loads_of_a_case_differ_and_those_that_change_the_machine_come_last(number: int) -> None:
    case = draw_case(3, number)
    late = [load.changes_machine for load in case.loads]
    assert late == sorted(late)
    assert len(set(case.loads)) == len(case.loads) <= LOADS
    assert not any(load.changes_machine for load in draw_case(3, number, timed=True).loads)


@settings(max_examples=40)
@given(st.integers(0, 10_000), st.integers(1, 6), st.booleans())
def test_a_case_has_no_more_loads_than_asked_for(number: int, most: int, timed: bool) -> None:
    near = [Near(1.0, drawn(number), 0)]
    case = draw_case(3, number, timed=timed, near=near, most=most)
    assert 1 <= len(case.loads) <= most
    whole = draw_case(3, number, timed=timed, near=near)
    assert case.machine == whole.machine


def test_what_came_close_is_tried_again_with_more_and_fewer_tasks() -> None:
    close = draw_case(3, 0, timed=True)
    again = draw_case(3, 2, timed=True, near=[Near(1.0, close, 1)])
    assert again.machine == close.machine
    kinds = [part.kind for part in close.loads[1].parts]
    alike = [load for load in again.loads if [part.kind for part in load.parts] == kinds]
    assert alike


def test_many_machines_are_hazards() -> None:
    machines = [drawn(number).machine for number in range(60)]
    assert len({render for machine in machines if (render := str(machine.distances))}) > 30
    assert any(not node.cpus for machine in machines for node in machine.nodes)
    assert any(machine.packaging.threads > 1 for machine in machines)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("time ms=1", "10 to"),
        ("hog n=1", "lacks cpus="),
        ("dog n=1 cpus=0", "no part is called 'dog'"),
        ("hog n=1 cpus=0 bark=1", "hog has no bark="),
        ("time", "lacks ms="),
    ],
)
def test_a_load_that_is_none_is_explained(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        parse_loads(text)


def test_tasks_are_known_by_their_names() -> None:
    assert part_of_task("wakee2.13") == ("wakee", 2, 13)
    assert part_of_task("kworker/0:1") is None


def test_masks_follow_what_happens() -> None:
    (load,) = parse_loads("time ms=1000;hog n=1 cpus=0-1 later=2;cpuset from=0 to=0-3 at=200")
    assert load.masks(0, 100) == {0}
    assert load.masks(0, 300) == {0, 1}
    assert load.masks(0, 600) == {2}
    (load,) = parse_loads("time ms=1000;hog n=1 cpus=2;cpuset from=0 to=0-3 at=200")
    assert load.masks(0, 100) == {0}, "a mask that has nothing of the cpuset gives way to it"


PROPERTIES_OF_CASES = (
    *("reachability", "less-calls-of-__update_idle_core"),
    "more-runs-of-task_h_load+0x3e/0x110",
    "less-runs-of-group_classify:return-group_overloaded.2",
)


def test_a_case_file_is_a_study_and_a_case(tmp_path: Path) -> None:
    for number in range(12):
        case = drawn(number)
        case = case.only(case.loads[0])
        prop = PROPERTIES_OF_CASES[number % len(PROPERTIES_OF_CASES)]
        finding = Finding(prop, 0, 1.0, 0.98, 'node 3 was "idle" \\ all the time')
        path = tmp_path / f"case-{number}.toml"
        path.write_text(
            render_case(
                case, finding, seeds=[2, 3], violated_by=["debian-6.12-mutation-fork"],
                holds_on=["debian-6.12"],
            )
        )  # fmt: skip
        read, table, _ = read_case(path)
        assert read.loads == case.loads
        assert read.machine.distances == case.machine.distances
        assert read.machine.nodes == case.machine.nodes
        assert read.machine.packaging == case.machine.packaging
        assert table.sentence == finding.text
        plan = plan_study(path)
        assert [run.variant for run in plan.runs] == ["violates", "holds1"] * 2


def test_a_machine_that_is_none() -> None:
    assert machine_of("nodes = 2") is None


def test_a_reproducer_needs_no_numalab(drawn_case: Case) -> None:
    statement = Statement("affinity", "a text", "mine", 2)
    script = render_script(drawn_case, statement, short=False)
    assert script.splitlines()[1] == "# affinity: a text"
    words = qemu_words(drawn_case.machine)
    nodes = drawn_case.machine.nodes
    assert sum(word.startswith("-numa node,") for word in words) == len(nodes)
    assert sum(word.startswith("-numa dist,") for word in words) == len(nodes) * (len(nodes) - 1)
    assert render_loads(drawn_case.loads) in script
    assert any("-icount shift=3," in word for word in words)


def test_a_reproducer_of_a_large_machine_counts_instructions_as_its_run() -> None:
    nodes = 'summary = "large"\nnodes = 64\ncpus = 2\nmemory_mib = 64\n'
    machine = machine_of(f'{nodes}[shape]\nkind = "full"\ndistances = [10, 20]\n')
    assert machine is not None
    shift = usual_shift("icount", machine)
    assert shift < 3
    assert any(f"-icount shift={shift}," in word for word in qemu_words(machine))


@pytest.mark.parametrize("path", find_cases(), ids=lambda path: path.stem)
def test_each_case_of_the_corpus_is_one(path: Path) -> None:
    case, table, study = read_case(path)
    assert table.violated_by
    assert len(case.loads) == 1
    assert len(plan_study(path).runs) == len(study.variants) * len(study.seeds)


def test_each_case_violates_its_own_limit() -> None:
    """A raised limit needs the value and the sentence of a boot that is still above it."""
    paths = sorted((project_dir() / "hunts").rglob("*.toml"))
    tables = {path.stem: tomllib.loads(path.read_text("utf-8")).get("case") for path in paths}
    cases = {name: table for name, table in tables.items() if table is not None}
    assert len(cases) > 20
    assert [name for name, table in cases.items() if table["value"] <= table["most"]] == []


@pytest.mark.usefixtures("without_plugins")
def test_machines_are_drawn_from_every_shape_of_the_registry() -> None:
    @register_shape("one-hub")
    class OneHub(Shape):
        """A hub with a number of spokes."""

        spokes: Count

        def check(self, nodes: int) -> None:
            if nodes != self.spokes + 1:
                raise RuleBroken("shape.spokes", "too many")

        def links(self, nodes: int) -> tuple[Link, ...]:
            return tuple((0, node) for node in range(1, nodes))

    rng = random.Random(1)
    machines = [draw_machine(rng) for _ in range(400)]
    kinds = {machine.shape.kind for machine in machines if machine.shape is not None}
    assert kinds == set(SHAPES.all())
    assert "one-hub" in kinds


def test_a_case_for_a_scheduler_has_no_hotplug_and_no_real_time_tasks(drawn_case: Case) -> None:
    plain = "time ms=900;hog n=2 cpus=0-1;change at=200 part=0 policy=batch"
    dropped = (
        "time ms=900;hog n=2 cpus=0-1;hotplug cpu=1 off=200 on=500",
        "time ms=900;hog n=2 cpus=0-1;sleeper n=1 cpus=0 policy=fifo priority=3",
        "time ms=900;hog n=1 cpus=0 policy=deadline runtime=2000 period=10000",
        "time ms=900;hog n=2 cpus=0-1;change at=200 part=0 policy=rr priority=2",
    )
    loads = parse_loads("|".join([plain, *dropped]))
    assert len(loads) == 5
    assert case_for_scheduler(drawn_case.only(*loads)).loads == loads[:1]
    (left,) = case_for_scheduler(drawn_case.only(*loads[1:])).loads
    assert (left.hotplug, [part.policy for part in left.parts]) == ((), ["fair"])


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ('loads = "time', 'lads = "time', r"parameters\.loads: this key is missing"),
        ("cpus=1,3", "cpus=1,3;memory n=1 cpus=0 node=9", r"load 0 names node 9 \(valid: 0, 1, 2"),
        ("cpus=1,3", "cpus=1,9", r"parameters\.loads: load 0 names CPU 9 \(valid: 0-3\)"),
        ("most = 0.5", "most = nan", "case.most: input should be a finite number, found nan"),
        ("[case]", '[machine]\nemulator = "x"\n\n[case]', r"machine\.emulator: no emulator is"),
    ],
)
def test_a_wrong_case_is_refused_before_a_boot(
    tmp_path: Path, old: str, new: str, reason: str
) -> None:
    text = (project_dir() / "hunts" / "group-construction.toml").read_text()
    assert text.count(old) == 1
    (tmp_path / "case.toml").write_text(text.replace(old, new))
    with pytest.raises(UserError, match=reason):
        read_case(tmp_path / "case.toml")
