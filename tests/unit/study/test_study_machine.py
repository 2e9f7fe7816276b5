"""A study's table `machine`: what guests are made of and where they lie, checked before a build."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from numalab.emulator.emulator_specs import load_emulators
from numalab.errors import UserError
from numalab.machine.model import PageKind
from numalab.study.guest import guest_of
from numalab.study.model import study_table
from numalab.study.plan import plan_study
from numalab.topology.load import load_topology
from numalab.topology.memory.timing import memory_model

STUDY = """
question = "?"
topologies = ["ring-4"]
seeds = [1]
[variants.after]
kernel = "debian-6.12"
[[workloads]]
name = "bound-hogs"
"""


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "tried.toml"
    path.write_text(STUDY + text)
    return path


def test_guests_are_made_as_the_study_says(tmp_path: Path) -> None:
    table = '[machine]\npages = "2M"\nvcpu_cpus = "8-11,3,2,1,0"\nnodes = [1, 1, 0, 0]\n'
    plan = plan_study(write(tmp_path, table))
    guest = guest_of(plan.study, plan.topologies["ring-4"], "bound-hogs")
    assert (guest.pages, guest.vcpu_cpus) == ("2M", (8, 9, 10, 11, 3, 2, 1, 0))
    assert guest.host_nodes == (1, 1, 0, 0)
    numbers = plan_study(write(tmp_path, "[machine]\nvcpu_cpus = [0, 1, 2, 3, 4, 5, 6, 0]\n"))
    assert numbers.study.machine.vcpu_cpus[-1] == 0


def test_in_slow_motion_instructions_quantum_and_memory_take_longer(tmp_path: Path) -> None:
    path = write(tmp_path, "")
    usual, table = plan_study(path), study_table(plan_study(path).study)["machine"]
    assert "slow_motion" not in table
    plan = plan_study(write(tmp_path, "[machine]\nslow_motion = 8\n"))
    guest = guest_of(plan.study, plan.topologies["ring-4"], "bound-hogs")
    timed = replace(guest, mode="timed")
    assert (timed.shift, timed.turn_ns) == (5, 80_000)
    assert replace(guest, mode="icount").shift == 3
    assert memory_model(plan.topologies["ring-4"]).latency_ns[0] == (720, 1440, 2160, 1440)
    assert plan.digest != usual.digest
    slower = plan_study(write(tmp_path, "[machine]\nslow_motion = 8\ninstruction_ns = 2\n"))
    guest = guest_of(slower.study, slower.topologies["ring-4"], "bound-hogs")
    assert replace(guest, mode="timed").shift == 4


def test_a_machine_that_is_too_slow_for_slow_motion_is_refused(tmp_path: Path) -> None:
    machine = """
[machine]
slow_motion = 16
[machines.ring-4]
summary = "slow"
nodes = 2
cpus = 1
memory_mib = 512
shape = { kind = "full", distances = [10, 20] }
memory = { latency_ns = 400000 }
"""
    path = write(tmp_path, machine)
    with pytest.raises(UserError) as caught:
        plan_study(path)
    assert f"{path}: machine.slow_motion: ring-4: 16 times slower it is more than" in str(
        caught.value
    )


def test_kernel_words_reach_every_guest_and_make_another_study(tmp_path: Path) -> None:
    path = write(tmp_path, "")
    digest = plan_study(path).digest
    assert "cmdline" not in study_table(plan_study(path).study)["machine"]
    plan = plan_study(write(tmp_path, '[machine]\ncmdline = ["noxsave", "quiet"]\n'))
    assert guest_of(plan.study, plan.topologies["ring-4"], "bound-hogs").extra_cmdline == (
        "noxsave",
        "quiet",
    )
    assert plan.digest != digest


def test_a_machine_of_its_own_may_have_a_shape_and_survives_a_preset(tmp_path: Path) -> None:
    shaped = """
[machines.wide-8]
summary = "wide"
nodes = 8
cpus = 4
memory_mib = 384
[machines.wide-8.shape]
kind = "mesh"
rows = 2
columns = 4
wiring = "rows-and-columns"
distances = [10, 16, 22]
[presets.quick]
seeds = [7]
"""
    path = tmp_path / "tried.toml"
    path.write_text(STUDY.replace('"ring-4"', '"wide-8"') + shaped)
    whole, quick = plan_study(path), plan_study(path, "quick")
    assert quick.topologies == whole.topologies
    assert quick.topologies["wide-8"].distances == load_topology("mesh-8").distances
    assert study_table(quick.study)["machines"]["wide-8"]["shape"]["rows"] == 2


def test_a_variant_may_name_a_kernel_and_a_study_an_image_by_path(tmp_path: Path) -> None:
    kernel = tmp_path / "boot" / "bzImage"
    kernel.parent.mkdir()
    kernel.touch()
    image = tmp_path / "base"
    image.mkdir()
    facts = {"recipe": "base", "packages": ["util-linux=2", "bash=5"]}
    (image / "image.json").write_text(json.dumps(facts))
    path = tmp_path / "tried.toml"
    text = STUDY.replace('"debian-6.12"', f'"{kernel}"')
    path.write_text(f'image = "{image}"\n{text}')
    plan = plan_study(path)
    assert plan.kernels[str(kernel)].is_prebuilt
    assert plan.recipe.built == image


def test_pages_can_be_asked_for_instead(tmp_path: Path) -> None:
    path = write(tmp_path, "")
    plan, other = plan_study(path), plan_study(path, pages="2M")
    assert other.study.machine.pages == "2M"
    assert plan.digest != other.digest  # a resumed run must not mix them


def test_the_emulator_is_that_of_the_study_or_what_is_asked_for(tmp_path: Path) -> None:
    names = list(load_emulators())
    path = write(tmp_path, f'[machine]\nemulator = "{names[-1]}"\n')
    plan, other = plan_study(path), plan_study(path, emulator=names[0])
    assert (plan.study.machine.emulator, other.study.machine.emulator) == (names[-1], names[0])
    assert plan.digest != other.digest
    with pytest.raises(UserError, match=r"machine.emulator: no emulator is called 'qemu-1'"):
        plan_study(path, emulator="qemu-1")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('pages = "4M"', "machine.pages: input should be 'memfd', 'anonymous', '2M' or '1G'"),
        ("vcpu_cpus = [1, 2]", "machine: ring-4: vcpu_cpus: 2 host CPUs for 8 vCPUs"),
        ('vcpu_cpus = "1-x"', "machine.vcpu_cpus: not a cpulist: '1-x'"),
        ("nodes = [0]", "machine: ring-4: nodes: 1 host nodes for 4 guest nodes"),
        ('cmdline = ["two words"]', "machine.cmdline[0]: string should match"),
        ('emulator = "nobody"', "machine.emulator: no emulator is called 'nobody'"),
        ("node = [0]", "machine.node: unknown key; did you mean nodes?"),
    ],
)
def test_a_table_that_fits_no_guest_is_refused(tmp_path: Path, text: str, message: str) -> None:
    path = write(tmp_path, f"[machine]\n{text}\n")
    with pytest.raises(UserError) as caught:
        plan_study(path)
    assert f"{path}: {message}" in str(caught.value)


@pytest.mark.parametrize("pages", ["2M", "1G"])
def test_nodes_are_whole_hugepages(tmp_path: Path, pages: PageKind) -> None:
    odd = load_topology("ring-4").nodes[0].memory_mib % 1024
    if pages == "2M" or not odd:
        assert plan_study(write(tmp_path, ""), pages=pages)
        return
    with pytest.raises(UserError, match=r"machine: ring-4: pages: node 0 has .* no multiple of 1G"):
        plan_study(write(tmp_path, ""), pages=pages)


@pytest.mark.parametrize(
    ("measure", "timed"),
    [("task_migrations", False), ("even_spread_time", True)],
)
def test_a_study_about_time_is_strict_about_placement(
    tmp_path: Path, measure: str, timed: bool
) -> None:
    claim = f'[[claims]]\ntext = "?"\nvariant = "after"\nmeasure = "{measure}"\nat_least = 0\n'
    plan = plan_study(write(tmp_path, claim))
    assert guest_of(plan.study, plan.topologies["ring-4"], "bound-hogs").measures_time is timed
