"""An axis of a study from a plug-in folder outside the package: what runs get of it."""

import json
import re
from pathlib import Path

import pytest

from numalab.errors import UserError
from numalab.plugins import unload_plugins
from numalab.study.axis import RunChange, register_axis
from numalab.study.guest import guest_of, tunables_of
from numalab.study.model import Study, study_table
from numalab.study.plan import plan_study

DOCS = Path(__file__).parents[3] / "docs" / "how-to" / "write-a-plug-in.md"
THP = "/sys/kernel/mm/transparent_hugepage/enabled"
STUDY = """
question = "Do huge pages help?"
topologies = ["ring-4"]
seeds = [1]
{exclude}
[variants.now]
kernel = "debian-6.12"
tunables = {{ "/proc/sys/kernel/numa_balancing" = 1 }}
[[workloads]]
name = "bound-hogs"
label = "hogs"
parameters = {{ seconds = 2 }}
[[workloads]]
name = "numa01"
{workload}
[machine]
cmdline = ["quiet"]
[axes]
{axes}
{more}
"""
MORE = """
from numalab.api import RunChange, register_axis

@register_axis("seconds", int)
def change(seconds: int) -> RunChange:
    if seconds > 9:
        raise ValueError("that takes too long")
    return RunChange(
        parameters={"seconds": seconds}, cmdline=("nohz=off",), env={"LONG": "so long"}, pages="2M"
    )

register_axis("thp-too", str)(lambda value: RunChange(tunables={"THP": value}))
register_axis("none", str)(lambda value: None)
register_axis("bound", int)(lambda node: RunChange(nodes=node))
register_axis("unbound", str)(lambda nodes: RunChange(nodes=nodes))
""".replace("THP", THP)


@pytest.fixture(autouse=True)
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, without_plugins: None) -> Path:
    """A lab folder with the example of the page and more axes."""
    monkeypatch.setenv("NUMALAB_PATH", str(tmp_path))
    (code,) = re.findall(r"```python\n(# plugins/hugepages.*?)```", DOCS.read_text(), re.DOTALL)
    (tmp_path / "plugins").mkdir()
    (tmp_path / "plugins/hugepages.py").write_text(code)
    (tmp_path / "plugins/more.py").write_text(MORE)
    return tmp_path


def study(lab: Path, axes: str, more: str = "", exclude: str = "", workload: str = "") -> Path:
    path = lab / "mine.toml"
    path.write_text(STUDY.format(axes=axes, more=more, exclude=exclude, workload=workload))
    return path


def test_each_value_gives_each_use_of_a_workload_once_more(lab: Path) -> None:
    plan = plan_study(study(lab, 'thp = ["always", "never"]'))
    assert [run.id for run in plan.runs] == [
        "ring-4_hogs-thp-always_now_1",
        "ring-4_hogs-thp-never_now_1",
        "ring-4_numa01-thp-always_now_1",
        "ring-4_numa01-thp-never_now_1",
    ]
    assert [tunables_of(plan.study, run.variant, run.workload) for run in plan.runs[:2]] == [
        {"/proc/sys/kernel/numa_balancing": 1, THP: value} for value in ("always", "never")
    ]


def test_two_axes_multiply_and_change_what_they_say(lab: Path) -> None:
    text = 'seconds = [1, 3]\nthp = ["always", "madvise", "never"]'
    no_other = 'exclude = [{ workloads = ["numa01"] }]'
    plan = plan_study(study(lab, text, exclude=no_other))
    assert len(plan.runs) == 6
    label = plan.runs[3].workload
    assert label == "hogs-seconds-3-thp-always"
    guest = guest_of(plan.study, plan.topologies["ring-4"], label)
    assert (guest.extra_cmdline, guest.pages) == (("quiet", "nohz=off"), "2M")
    bound = plan.workload_of(plan.runs[3])
    assert bound.argv[:3] == ("env", "LONG=so long", "/job/files/bound-hogs")
    assert bound.parameters["seconds"] == 3


def test_what_is_said_of_a_label_is_said_of_all_that_are_made_of_it(lab: Path) -> None:
    claim = '[[claims]]\ntext = "t"\nmeasure = "storms"\nvariant = "now"\nbelow = 1\n'
    preset = '[presets.quick]\nworkloads = ["hogs"]\naxes = { thp = ["never", "madvise"] }\n'
    more = f'{claim}workload = "hogs"\n{claim}workload = "numa01-thp-always"\n{preset}'
    exclude = 'exclude = [{ workloads = ["hogs-thp-never"] }]'
    path = study(lab, 'thp = ["always", "never"]', more, exclude)
    plan = plan_study(path)
    assert [claim.workload for claim in plan.study.claims] == [
        "hogs-thp-always",
        "hogs-thp-never",
        "numa01-thp-always",
    ]
    assert [run.workload for run in plan.runs] == [
        "hogs-thp-always",
        "numa01-thp-always",
        "numa01-thp-never",
    ]
    quick = plan_study(path, "quick")
    assert [run.workload for run in quick.runs] == ["hogs-thp-madvise"]
    assert [claim.workload for claim in quick.study.claims] == [
        "hogs-thp-never",
        "hogs-thp-madvise",
    ]


def test_what_is_stored_needs_no_plug_in(lab: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = plan_study(study(lab, 'thp = ["always"]'))
    unload_plugins()
    monkeypatch.delenv("NUMALAB_PATH")
    table = study_table(plan.study)
    assert "axes" not in table
    assert Study.model_validate_json(json.dumps(table)) == plan.study


def test_a_study_without_axes_is_stored_as_before(lab: Path) -> None:
    table = study_table(plan_study(study(lab, "")).study)
    assert "axes" not in table
    assert list(table["workloads"][0]) == ["name", "label", "parameters"]


@pytest.mark.parametrize(
    ("text", "more", "message"),
    [
        ('tph = ["always"]', "", r"axes\.tph: no plug-in adds an axis 'tph'.*seconds, thp-too"),
        ('thp = ["often"]', "", r"axes\.thp\[0\]: .*'always', 'madvise' or 'never', found 'often'"),
        ("thp = []", "", r"axes\.thp"),
        (f'thp = ["{"a" * 65}"]', "", r"axes\.thp\[0\]"),
        (f"a = {[*range(40)]}\nb = {[*range(40)]}", "", "axes: the values have more than 1000"),
        ('thp = ["never", "never"]', "", "values of axes.thp: 'never' is a duplicate"),
        ("seconds = [1, 10]", "", r"axes\.seconds\[1\]: that takes too long"),
        ("seconds = [1.5]", "", r"axes\.seconds\[0\]: .*integer, found 1.5"),
        ('none = ["a b"]', "", r"axes\.none\[0\]: 'a b' is invalid in the name of a run"),
        (
            'none = ["a"]',
            "",
            r"axes\.none\[0\]: the axis none returned a NoneType, not a RunChange",
        ),
        (
            'thp = ["never"]\nthp-too = ["never"]',
            "",
            r"axes\.thp-too: thp and thp-too both change /sys/kernel/mm",
        ),
        (
            'thp = ["never"]',
            f'[variants.other]\nkernel = "debian-6.12"\ntunables = {{ "{THP}" = "never" }}',
            r"variants\.other\.tunables: variant other and workload hogs-thp-never both set /sys",
        ),
    ],
)
def test_what_is_wrong_is_told_with_its_place(
    lab: Path, text: str, more: str, message: str
) -> None:
    with pytest.raises(UserError, match=message) as caught:
        plan_study(study(lab, text, more))
    assert caught.value.file == lab / "mine.toml"


def test_a_use_of_a_workload_can_have_a_guest_of_its_own(lab: Path) -> None:
    own = 'guest = { cmdline = ["nohz=off"], tunables = { "/proc/sys/vm/swappiness" = 1 } }'
    plan = plan_study(study(lab, "", workload=own))
    guests = [guest_of(plan.study, plan.topologies["ring-4"], name) for name in plan.study.labels]
    assert [guest.extra_cmdline for guest in guests] == [("quiet",), ("quiet", "nohz=off")]
    with pytest.raises(UserError, match=r"workloads\.numa01\.guest: tunables: '/etc/x' is not a"):
        plan_study(study(lab, "", workload='guest = { tunables = { "/etc/x" = 1 } }'))
    with pytest.raises(UserError, match=r"workloads\.numa01\.guest: env: 'a b' is an invalid name"):
        plan_study(study(lab, "", workload='guest = { env = { "a b" = "1" } }'))


def test_a_command_can_be_bound_to_nodes(lab: Path) -> None:
    plan = plan_study(study(lab, "", workload='guest = { nodes = "0,2", env = { A = "b" } }'))
    hogs, bound = plan.workloads.values()
    assert bound.argv[:5] == ("taskset", "--cpu-list", "0-1,4-5", "env", "A=b")
    assert bound.allowed_cpus == (0, 1, 4, 5)
    assert hogs.argv[0] != "taskset"
    assert plan.digest != plan_study(study(lab, "")).digest


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        ('"0,9"', r"guest\.nodes: node 9 is not there \(nodes with CPUs on ring-4: 0-3\)"),
        ('"one"', r"guest\.nodes: .*'one'"),
        ("true", r"guest\.nodes"),
    ],
)
def test_nodes_that_are_not_there_are_refused(lab: Path, nodes: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        plan_study(study(lab, "", workload=f"guest = {{ nodes = {nodes} }}"))


def test_what_binds_its_tasks_itself_is_not_bound_elsewhere(lab: Path) -> None:
    path = study(lab, "bound = [2]")
    with pytest.raises(
        UserError, match="bound-hogs binds its tasks to CPUs outside of these nodes"
    ):
        plan_study(path)
    path.write_text(path.read_text().replace('"bound-hogs"', '"numa02"'))
    cpus = [bound.argv[2] for bound in plan_study(path).workloads.values()]
    assert cpus == ["4-5", "4-5"]
    both = path.read_text().replace("bound = [2]", 'bound = [2]\nunbound = ["1"]')
    path.write_text(both)
    with pytest.raises(UserError, match="bound and unbound both change nodes"):
        plan_study(path)


def test_a_name_is_given_once() -> None:
    register_axis("mine", int)(lambda _: RunChange())
    with pytest.raises(UserError, match="'mine' already"):
        register_axis("mine", int)(lambda _: RunChange())
