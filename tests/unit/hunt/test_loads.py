"""Loads: groups, changes and policies are written and read back, varied and combined."""

import random
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from numalab.hunt.generate import changes, memory, policies
from numalab.hunt.generate.cases import draw_case
from numalab.hunt.generate.draw import everywhere, is_admitted
from numalab.hunt.generate.families import FAMILIES, draw_loads, first_families
from numalab.hunt.generate.groups import grouped
from numalab.hunt.generate.loads import reset_forkers
from numalab.hunt.generate.machines import draw_machine
from numalab.hunt.generate.mutate import combined, varied
from numalab.hunt.loads.kinds import load_kinds
from numalab.hunt.loads.load import CHANNELS, KINDS, POLICIES, Load
from numalab.hunt.loads.load_text import parse_loads, render_load
from numalab.places import shipped_dir
from numalab.topology.load import load_topology

RICH = (
    "time ms=1500;group name=a quota=50;group name=b weight=300 parent=a cpus=0-2;"
    "hog n=2 cpus=0-3 policy=deadline runtime=2000 period=10000;"
    "waker n=1 cpus=0-3 burst=4 wakee=1 over=futex group=b;forker n=1 cpus=0 exec=1;"
    "change at=300 part=1 cpus=2 nice=5;change at=500 group=b cpus=1;change at=600 part=1 stop=1"
)


def parsed(text: str) -> Load:
    (load,) = parse_loads(text)
    return load


def loads(number: int) -> list[Load]:
    rng = random.Random(number)
    machine = draw_machine(rng)
    drawn = [family(rng, machine) for family in FAMILIES]
    some = [load for load in drawn if load is not None]
    return [*some, *(varied(rng, load, machine, some) for load in some)]


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10_000))
def test_loads_of_all_families_and_their_variations_are_read_back(number: int) -> None:
    for load in loads(number):
        assert parsed(render_load(load)) == load
        assert load.tasks <= 256 and len(load.parts) <= 32
        assert is_admitted(load)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10_000))
def test_some_cpu_is_left_to_fair_tasks(number: int) -> None:
    rng = random.Random(number)
    machine = draw_machine(rng)
    cpus = set(everywhere(machine))
    for load in loads(number):
        hogs = [part for part in load.parts if part.kind == "hog" and part.is_real_time]
        taken = [part for part in hogs if part.policy != "deadline"]
        assert set[int]().union(*(part.cpus for part in taken)) < cpus or not taken


def test_a_rich_load_is_written_and_read_back() -> None:
    load = parsed(RICH)
    assert parsed(render_load(load)) == load
    assert load.tasks == 2 + 5 + 2
    assert not load.is_steady and not load.has_plain_tasks


def test_masks_follow_changes_groups_and_wakees() -> None:
    load = parsed(RICH)
    assert load.masks(1, 0) == {0, 1, 2}
    assert load.masks(1, 400) == {2}
    assert load.masks(1, 600) == {1}  # no CPU in common: the group's
    assert load.masks(1, 0, wakees=True) == {1}
    assert load.has_quota(load.parts[1]) and not load.has_quota(load.parts[0])


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("hog n=1 cpus=0 group=a", "no group is called 'a'"),
        ("group name=a parent=b;hog n=1 cpus=0", "comes before its parent"),
        ("group name=a;group name=a;hog n=1 cpus=0", "1 to 8 letters, once"),
        ("hog n=1 cpus=0 policy=none", "valid: fair, batch, idle, fifo, rr, deadline"),
        ("hog n=1 cpus=0;change at=1", "either part= or group="),
        ("hog n=1 cpus=0;change at=1 part=3 nice=1", "names part 3 of 1"),
        ("group name=a;hog n=1 cpus=0;cpuset from=0 to=1 at=5", "either cpuset or groups"),
        ("group weight=3;hog n=1 cpus=0", "lacks name="),
        ("hog n=3 cpus=", "cpus= names no CPU"),
        ("hog n=3 cpus=0 n=2", "has a word twice"),
        ("hog n=3 cpus=0 yield=yes", r"yield=yes \(valid: 0, 1\)"),
        ("time ms=100 bogus=3;hog n=1 cpus=0", r"time has no bogus= .valid: ms, scan."),
        ("hog n=1 cpus=0;hotplug cpu=1 off=900 on=100", "comes back at 100 ms, before it goes"),
        ("hog n=1 cpus=0;change at=1 part=0 into=b", "no group is called 'b'"),
        (
            "group name=a;hog n=1 cpus=0;change at=1 group=a into=a",
            "into= is of a change of a part",
        ),
        (
            "hog n=1 cpus=0;change at=1 part=0 nice=1 times=0",
            "times=0 is no whole number from 1 to 256",
        ),
        ("group name=a partition=1;hog n=1 cpus=0", "partition a lacks cpus="),
        ("group name=a quota=5 burst=6;hog n=1 cpus=0", "the burst of group a is larger than its"),
        (
            "group name=a;hog n=1 cpus=0;change at=1 group=a nice=5",
            "is of cpus=, weight=, quota=, period=, burst= or idle=",
        ),
        ("hog n=1 cpus=0;change at=1 part=0 weight=50", "are of a change of a group"),
        ("hog n=1 cpus=0;time ms=50", "has time only once"),
        ("hog n=1 cpus=0;cpuset from=0 to=1 at=5;cpuset from=0 to=1 at=6", "cpuset only once"),
        ("waker n=200 cpus=0 burst=16", "has 3400 tasks and wakees, and at most 1024"),
        ("hog n=1 cpus=0;change at=1 part=0 nice=1 times=256", "256 changes, and at most 255"),
        ("", "at least one part .valid: hog, sleeper"),
        ("hog n=abc cpus=0", "n=abc is no whole number from 1 to 256"),
        ("hog n=1e3 cpus=0", "n=1e3 is no whole number"),
        (f"hog n={'9' * 5000} cpus=0", "n=9{40} is no whole number"),
        ("hog n=1 cpus=0 nice=-99999", "nice=-99999 is no whole number from -20 to 19"),
        (";".join(["hog n=1 cpus=0"] * 33), "has 33 parts, and at most 32"),
        (";".join(["hog n=200 cpus=0"] * 2), "has 400 tasks, and at most 256"),
        ("x" * 70_000 + " n=1", "no part is called 'x{40}' "),
        ("hog n=1 cpus=0|time ms=9;" * 5000, "characters, and at most 100000 are read"),
        ("hog cpus=0 policy=deadline period=9", "policy=deadline lacks runtime= or period=, in us"),
        ("hog cpus=0;change at=1 part=0 policy=deadline runtime=9", "lacks runtime= or period="),
        ("hog n=1 cpus=0 foo=1", "hog has no foo= .valid: n, cpus"),
    ],
)
def test_a_load_that_names_what_it_lacks_is_explained(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        parse_loads("time ms=1000;" + text)


PARSER = """
#define _GNU_SOURCE
#include <stdatomic.h>
#include <stdint.h>
#include <sys/wait.h>
#include <unistd.h>
#include "shared.h"
#include "load.h"

int main(int argc, char **argv)
{
	setvbuf(stdout, NULL, _IONBF, 0);
	for (int i = 1; i < argc; i++) {
		int status;

		if (!fork()) {
			char *save, *part = strtok_r(argv[i], ";", &save);

			for (; part; part = strtok_r(NULL, ";", &save))
				parse_part(part);
			add_event(0, HALF, 0, "");
			_exit(0);
		}
		wait(&status);
		putchar(status ? '0' : '1');
	}
	return 0;
}
"""
OF_PART = (
    "n nice priority run sleep burst mib areas node runtime period deadline slice yield reclaim"
)
NUMBERS_OF = {
    **dict.fromkeys((f"{kind} n=1 cpus=0" for kind in KINDS), OF_PART),
    "hog n=1 cpus=0;group name=a": "weight quota period burst idle partition",
    "hog n=1 cpus=0;hotplug cpu=1 off=0": "on",
    "hog n=1 cpus=0;hotplug on=600000 off=0": "cpu",
    "hog n=1 cpus=0;cpuset from=0 to=0": "at",
    "hog n=1 cpus=0;change at=5 part=0": "nice times every stop go",
    "hog n=1 cpus=0;change at=5 part=0 policy=rr": "priority runtime period",
    "group name=a;hog n=1 cpus=0;change at=5 group=a": "weight quota period burst idle times every",
}
EDGES = (-21, -20, 0, 1, 10, 16, 19, 63, 64, 98, 256, 1000, 1023, 4096, 10_000, 100_000, 600_000,
         10_000_000)  # fmt: skip
WRONG = (
    "hog n=2 cpus=0 prioritty=50",
    "hog n=2 cpus=0 yield",
    "hog n=2 cpus=0;group nam=a",
    "hog n=2 cpus=0;hotplug cpu=1 of=2",
    "hog n=2 cpus=0;change at=5 part=0 weight=50",
    "hog n=2 cpus=0;change at=5 part=0 priority=50",
    "group name=a;hog n=2 cpus=0;change at=5 group=a nice=5",
    "hog n=2 cpus=0;cpuset from=0 to=0 at=5;cpuset from=0 to=0 at=6",
    "hog n=2 cpus=0;time ms=50;time ms=60",
    "hog n=2 cpus=0;time",
)


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    program = tmp_path_factory.mktemp("load") / "parser"
    shipped = shipped_dir()
    subprocess.run(
        ["gcc", "-w", "-x", "c", "-o", program, f"-I{shipped / 'workloads'}",
         f"-I{shipped / 'workloads' / 'hunt'}", f"-I{shipped / 'images' / 'src'}", "-"],
        input=PARSER, text=True, check=True, timeout=60,
    )  # fmt: skip
    return program


def read_by(driver: Path, texts: list[str]) -> list[bool]:
    done = subprocess.run([driver, *texts], capture_output=True, text=True, timeout=60, check=True)
    return [flag == "1" for flag in done.stdout]


def test_the_driver_reads_the_numbers_that_parse_loads_reads(driver: Path) -> None:
    numbers = sorted({edge + step for edge in EDGES for step in (-1, 0, 1)})
    texts = []
    for load, words in NUMBERS_OF.items():
        bare = load.replace(" n=1", "")
        texts += [
            f"{bare if word == 'n' else load} {word}={number}"
            for word in words.split()
            for number in numbers
        ]
    differing = []
    for text, of_driver in zip(texts, read_by(driver, texts), strict=True):
        try:
            parse_loads(text)
            reads = True
        except ValueError as error:
            if "is no whole number" not in str(error) and "valid: 0, 1" not in str(error):
                continue  # a rule about the whole load
            reads = False
        differing += [text] if reads != of_driver else []
    assert differing == []


def test_the_driver_refuses_what_it_would_ignore(driver: Path) -> None:
    assert read_by(driver, list(WRONG)) == [False] * len(WRONG)
    assert read_by(driver, [RICH.replace("0-3", "0").replace("0-2", "0")]) == [True]
    assert read_by(driver, ["hog n=2 cpus=0-2000", "hog n=2 cpus=900-1000"]) == [False, False]
    for text in WRONG:
        with pytest.raises(ValueError, match=r"valid|only once|change of|lacks|policy="):
            parse_loads(text)


def test_two_loads_are_combined_with_their_changes() -> None:
    both = combined(parsed("time ms=900;hog n=1 cpus=0"), parsed(RICH))
    assert [part.kind for part in both.parts] == ["hog", "hog", "waker", "forker"]
    assert [change.part for change in both.changes] == [2, None, 2]
    assert both.ms == 1500
    assert combined(both, parsed(RICH)) == both  # the names of groups would clash


def test_parts_are_put_into_groups() -> None:
    load = parsed("time ms=900;hog n=1 cpus=0;sleeper n=1 cpus=1")
    names = {tuple(part.group for part in grouped(random.Random(n), load).parts) for n in range(20)}
    assert names == {("a", "a"), ("a", "b")}


def test_groups_of_a_load_may_be_below_others() -> None:
    load = parsed("time ms=900;hog n=1 cpus=0;sleeper n=1 cpus=1")
    grouped_loads = [grouped(random.Random(n), load) for n in range(30)]
    assert all(parsed(render_load(some)) == some for some in grouped_loads)
    depths = {
        len([group for group in some.groups if group.name in ("top", "mid")])
        for some in grouped_loads
    }
    assert depths == {0, 1, 2}
    assert any(some.groups[0].quota_ms for some in grouped_loads)


def test_a_load_ends_with_the_settings_of_its_last_changes() -> None:
    load = parsed(
        "time ms=900;group name=a quota=50;group name=b;hog n=2 cpus=0 later=0-1 nice=5 group=a;"
        "sleeper n=1 cpus=1 policy=fifo priority=7;change at=100 times=2 every=50 part=0 nice=-5;"
        "change at=120 part=0 nice=3 into=b;change at=300 group=a weight=20 quota=70;"
        "change at=310 part=1 policy=batch;change at=320 part=1 stop=1"
    )
    assert load.at_end == parsed(
        "time ms=900;group name=a quota=70 weight=20;group name=b;hog n=2 cpus=0-1 nice=-5 group=b;"
        "sleeper n=1 cpus=1 policy=batch"
    )
    assert load.stops_any
    assert not replace(load, changes=load.changes[:-1]).stops_any
    load = parsed("time ms=900;hog n=1 cpus=0 later=1;change at=200 part=0 cpus=2")
    masks = [load.masks(0, ms) for ms in (100, 300, 500)]
    assert masks == [{0}, {2}, {1}], "the mask from half of the time on comes after the change"
    assert load.at_end == parsed("time ms=900;hog n=1 cpus=1")
    load = parsed("time ms=900;hog n=1 cpus=0 later=1;change at=450 part=0 cpus=2")
    assert load.masks(0, 900) == {1}, "at the same time the driver makes the change first"


def test_some_loads_are_of_two_families() -> None:
    machine = load_topology("ring-4")
    loads = [load for n in range(20) for load in draw_loads(random.Random(n), machine, 24)]
    both = [
        load
        for load in loads
        if any(map(load.has_quota, load.parts))
        and any(part.policy in ("fifo", "rr") for part in load.parts)
    ]
    assert any(not part.group for load in both for part in load.parts if part.is_real_time)
    assert all(parsed(render_load(load)) == load for load in loads)


def test_the_first_cases_of_a_hunt_have_all_families() -> None:
    for seed in range(5):
        families = [family for number in range(9) for family in first_families(seed, number)]
        assert sorted(map(repr, families)) == sorted(map(repr, FAMILIES))
    first = [family.__name__ for family in first_families(1, 0)]
    assert first != [family.__name__ for family in first_families(2, 0)]


def test_changes_of_parts_that_go_are_gone() -> None:
    load = parsed(RICH).keep([1, 2])
    assert [(change.part, change.group) for change in load.changes] == [
        (0, ""),
        (None, "b"),
        (0, ""),
    ]
    assert parsed(RICH).keep([0, 2]).changes == (parsed(RICH).changes[1],)


def test_loads_have_all_policies_and_every_kind_of_task() -> None:
    parts = [part for number in range(30) for load in loads(number) for part in load.parts]
    assert {part.policy for part in parts} == set(POLICIES)
    assert {part.kind for part in parts} == set(KINDS)
    assert {part.over for part in parts} == set(CHANNELS)
    assert any(part.bound for part in parts)
    for more in (policies, changes, memory):
        assert more.FAMILIES.keys() <= FAMILIES.keys()


def test_tasks_without_a_cpu_on_line_have_the_rest_of_their_cpuset() -> None:
    (load,) = parse_loads(
        "time ms=1000;group name=a cpus=0-3;group name=b parent=a cpus=2-5"
        ";hog n=1 cpus=2 group=b;hog n=1 cpus=1;change at=400 group=b cpus=3"
    )
    assert load.cpuset_of(0, 0) == {2, 3}
    assert load.cpuset_of(0, 500) == {3}
    assert load.cpuset_of(1, 0) == frozenset()
    assert load.masks(0, 0) == {2}


TURNS = (
    "time ms=1500;group name=a;group name=b cpus=3;hog n=1 cpus=0-3 group=a"
    ";change at=100 times=3 every=200 part=0 cpus=1;change at=200 times=3 every=200 part=0 cpus=0-3"
    ";change at=650 part=0 into=b"
)


def test_changes_that_repeat_happen_in_turn() -> None:
    load = parsed(TURNS)
    assert parsed(render_load(load)) == load
    assert load.changes_ms() == (100, 200, 300, 400, 500, 600, 650)
    masks = [sorted(load.masks(0, at)) for at in (0, 150, 250, 350, 560, 610, 700)]
    every = [0, 1, 2, 3]
    assert masks == [every, [1], every, [1], [1], every, [3]]


def test_a_group_that_tasks_move_to_may_have_a_quota() -> None:
    load = parsed(TURNS.replace("name=b cpus=3", "name=b quota=20"))
    assert load.has_quota(load.parts[0])


def test_a_partition_takes_its_cpus_from_all_others() -> None:
    load = parsed(
        "time ms=900;group name=a cpus=2,3 partition=1;hog n=2 cpus=0-3 group=a;hog n=4 cpus=0-3"
    )
    assert load.masks(0, 0) == {2, 3}
    assert load.masks(1, 0) == {0, 1}
    assert load.changes_machine and load.rebuilds_domains


def test_generated_changes_are_within_what_the_driver_keeps() -> None:
    drawn = [load for number in range(40) for load in loads(number)]
    repeated = [load for load in drawn if any(change.times > 1 for change in load.changes)]
    assert len(repeated) > 10
    assert any(part.reclaim for load in drawn for part in load.parts)
    assert any(change.into for load in drawn for change in load.changes)
    assert any(change.policy == "deadline" for load in drawn for change in load.changes)
    assert any(group.partition for load in drawn for group in load.groups)
    assert any(group.burst_ms for load in drawn for group in load.groups)
    for load in repeated:
        assert parsed(render_load(load)) == load
        assert load.timeline[-1][0] <= load.ms * 0.8


def test_memory_is_swapped_between_nodes_that_have_a_cpu_for_each_user() -> None:
    for number in range(40):
        rng = random.Random(number)
        machine = draw_machine(rng)
        load = memory.swapped_memory(rng, machine)
        if load is None:
            continue
        nodes = {machine.node_of_cpu(part.start[0]) for part in load.parts}
        cpus = [cpu for node in machine.nodes if node.id in nodes for cpu in node.cpus]
        assert sorted(part.start[0] for part in load.parts) == sorted(cpus)
        homes = [part.node for part in load.parts]
        assert {node: homes.count(node) for node in nodes} == {
            node.id: len(node.cpus) for node in machine.nodes if node.id in nodes
        }
        assert all(part.bound for part in load.parts)


def test_a_priority_is_above_and_below_that_of_the_hogs_that_wait_in_turn() -> None:
    machine = draw_machine(random.Random(2))
    assert machine.cpu_count > 2
    bound = 0
    for number in range(20):
        load = changes.priorities_in_turn(random.Random(number), machine)
        assert load is not None
        mine, *beside, waits = load.parts
        bound += len(mine.cpus) == 1
        lowered, raised = load.changes
        assert lowered.priority < waits.priority < raised.priority == mine.priority
        assert mine.count + sum(part.count for part in beside) == len(mine.cpus)
        assert len(mine.cpus) < machine.cpu_count and waits.cpus == mine.cpus
        assert lowered.at_ms < raised.at_ms and lowered.times == raised.times > 2
    assert 0 < bound < 20


def test_some_machines_with_smt_have_a_node_with_twice_as_many_cores() -> None:
    machines = [draw_machine(random.Random(number), smt=True) for number in range(60)]
    assert all(machine.packaging.threads == 2 for machine in machines)
    cores = [sorted(len(node.cpus) // 2 for node in machine.nodes) for machine in machines]
    assert cores.count([2, 4]) > 3
    assert sum(len(set(counts)) == 1 for counts in cores) > 30


def test_children_of_some_parents_do_not_inherit_the_policy() -> None:
    machine = draw_machine(random.Random(3))
    for number in range(20):
        load = reset_forkers(random.Random(number), machine)
        assert load is not None and parsed(render_load(load)) == load
        parent, hogs = load.parts
        assert bool(parent.slice_us) == (parent.nice == -10)
        assert parent.resets and (parent.nice < 0 or parent.is_real_time)
        assert parent.cpus == hogs.cpus and hogs.count > len(hogs.cpus)


def test_memory_that_stays_on_a_full_node_is_used_from_elsewhere() -> None:
    drawn = [
        memory.crowded_memory(random.Random(number), draw_machine(random.Random(number)))
        for number in range(40)
    ]
    possible = [load for load in drawn if load is not None]
    assert len(possible) > 10
    for load in possible:
        hogs, *users = load.parts
        assert hogs.kind == "hog" and hogs.count >= len(hogs.cpus)
        assert all(user.bound and not set(user.start) & set(hogs.cpus) for user in users)


def test_some_memory_is_scanned_in_pieces_and_the_text_says_so() -> None:
    drawn_loads = [load for n in range(60) for load in draw_case(1, n).loads]
    in_pieces = [load for load in drawn_loads if load.scan_mib]
    assert in_pieces
    for load in in_pieces:
        assert any(part.kind == "memory" and part.mib > load.scan_mib for part in load.parts)
        assert render_load(load).startswith(f"time ms={load.ms} scan=1;")
        assert parse_loads(render_load(load)) == (load,)
        assert "memory scanned in pieces" in load_kinds(load)


@pytest.mark.parametrize("value", ["0", "257", "x", "-1"])
def test_a_scan_of_no_or_too_many_mib_is_refused(value: str) -> None:
    with pytest.raises(ValueError, match="is no whole number from 1 to 256"):
        parse_loads(f"time ms=100 scan={value};memory n=1 cpus=0 mib=2")
