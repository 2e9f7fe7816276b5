from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from numalab.errors import UserError
from numalab.topology.load import list_topologies, load_topology
from numalab.topology.topology import Topology
from numalab.workload.workload import list_workloads, load_workload, resolve
from numalab.workload.workload_table import PLACEHOLDER

BOOTS = Path(__file__).parents[2] / "data" / "topology" / "boots"
MINIMAL = """
summary = "s"
stresses = "t"
command = ["run", "{n}"]
seconds = "1"
[parameters.n]
type = "integer"
default = 3
help = "h"
"""

Written = Callable[[str], Path]


@pytest.fixture
def ring() -> Topology:
    return load_topology("ring-4")


@pytest.fixture
def written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Written:
    """Write a workload file named `mine` into a project of its own."""
    for folder in ("topologies", "kernel-configs", "workloads/mine"):
        (tmp_path / folder).mkdir(parents=True)
    monkeypatch.setenv("NUMALAB_HOME", str(tmp_path))

    def write(text: str) -> Path:
        path = tmp_path / "workloads/mine/workload.toml"
        path.write_text(text, encoding="utf-8")
        return path

    return write


def test_every_workload_of_the_project_fits_every_default(ring: Topology) -> None:
    names = list_workloads()
    assert {"bound-hogs", "numa-mem"} <= set(names)
    for name in names:
        bound = resolve(load_workload(name), {}, ring)
        assert not [word for word in bound.argv if "{" in word]
        assert bound.seconds > 0


def test_bound_hogs_scale_with_the_allowed_nodes(ring: Topology) -> None:
    workload = load_workload("bound-hogs")
    bound = resolve(workload, {"start_node": 0, "allowed_nodes": "0-1,3", "seconds": 1.5}, ring)
    assert bound.argv == ("/job/files/bound-hogs", "12", "1.5", "0-1", "0-3,6-7")
    assert bound.parameters["hogs"] == 12
    assert bound.allowed_cpus == (0, 1, 2, 3, 6, 7)
    assert (bound.tasks, bound.seconds) == (("hog",), 1.5)


@pytest.mark.parametrize(
    ("kind", "value", "words"),
    [
        ("node", 1, ("0", "0-1")),
        ("node", 3, ("3", "6-7")),
        ("nodes", "1,0", ("0,2", "0-1,4-5")),
        ("nodes", "0,3", ("2,3", "4-7")),
        ("nodes", "2,0,1", ("2,0,1", "0-5")),
        ("nodes", "3", ("3", "6-7")),
    ],
)
def test_a_command_has_the_node_numbers_of_the_guest(
    written: Written, kind: str, value: int | str, words: tuple[str, str]
) -> None:
    """The kernel numbers the machine's nodes 2, 0, 1, 3; the study keeps the file's numbers."""
    table = MINIMAL.replace('"integer"', f'"{kind}"').replace('"{n}"', '"{n}", "{n.cpulist}"')
    written(table)
    bound = resolve(load_workload("mine"), {"n": value}, load_topology(str(BOOTS / "swap.toml")))
    assert bound.argv == ("run", *words)
    assert bound.parameters == {"n": value}


def test_a_workload_that_names_no_nodes_may_use_every_cpu(ring: Topology) -> None:
    assert resolve(load_workload("numa-mem"), {}, ring).allowed_cpus == tuple(range(8))


@pytest.mark.parametrize(
    ("parameters", "key", "message"),
    [
        (
            {"strat_node": 1},
            "parameters.strat_node",
            "bound-hogs has no such parameter; did you mean start_node? (valid: start_node, ",
        ),
        ({"start_node": 4}, "parameters.start_node", "node 4 is not there"),
        ({"start_node": -1}, "parameters.start_node", "node -1 is not there"),
        ({"start_node": "1"}, "parameters.start_node", "needs the number of a node"),
        ({"allowed_nodes": "1,9"}, "parameters.allowed_nodes", "node 9 is not there"),
        ({"allowed_nodes": ""}, "parameters.allowed_nodes", "at least one node"),
        ({"allowed_nodes": "one"}, "parameters.allowed_nodes", "not a cpulist"),
        ({"allowed_nodes": 1.5}, "parameters.allowed_nodes", "not a cpulist"),
        ({"seconds": "three"}, "parameters.seconds", "unknown name 'three'"),
        ({"seconds": "3 +"}, "parameters.seconds", "not an expression: '3 +'"),
        ({"seconds": 0}, "parameters.seconds", "needs at least 0.1, found 0"),
        ({"seconds": float("inf")}, "parameters.seconds", "needs a number"),
        ({"hogs_per_cpu": 2.5}, "parameters.hogs_per_cpu", "needs an integer, found 2.5"),
        ({"hogs_per_cpu": 65}, "parameters.hogs_per_cpu", "needs at most 64, found 65"),
    ],
)
def test_a_wrong_parameter_is_explained(
    ring: Topology, parameters: dict[str, str | int | float], key: str, message: str
) -> None:
    with pytest.raises(UserError) as caught:
        resolve(load_workload("bound-hogs"), parameters, ring)
    assert caught.value.key == key
    assert str(caught.value.file).endswith("workloads/bound-hogs/workload.toml")
    assert message in str(caught.value)


def test_a_node_without_cpus_cannot_be_used() -> None:
    machine = load_topology("memoryless-4")
    empty = [node.id for node in machine.nodes if not node.cpus]
    if not empty:
        machine = load_topology("slow-memory-3")
        empty = [node.id for node in machine.nodes if not node.cpus]
    with pytest.raises(UserError, match="has no CPUs"):
        resolve(load_workload("bound-hogs"), {"start_node": empty[0]}, machine)


def test_an_unknown_workload_names_those_there_are() -> None:
    with pytest.raises(UserError, match=r"did you mean bound-hogs\? \(valid: .*numa-mem"):
        load_workload("bound-hog")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('seconds = "1"', "", "seconds: this key is missing"),
        ('seconds = "1"', 'seconds = "1 +"', "not an expression: '1 +'"),
        ('seconds = "1"', 'seconds = "m"', "seconds: unknown name 'm' (valid: machine.cpus"),
        ('"{n}"', '"{m}"', "command: '{m}': unknown name 'm'"),
        ('"integer"', '"node"', "unknown name 'n.cpus'"),
        ('"integer"', '"int"', "parameters.n.type"),
        ("default = 3", "default = true", "parameters.n.default"),
        ("default", "defualt", "unknown key; did you mean default?"),
        ('command = ["run", "{n}"]', "command = []", "command"),
        ('seconds = "1"', 'seconds = "1"\nallowed_nodes = "n"', "'n' is not a node parameter"),
        ("[parameters.n]", '[derived]\nn = "1"\n[parameters.n]', "there is a parameter"),
        ("[parameters.n]", "[parameters.N]", "parameters.N"),
        ("[parameters.n]", "[parameters.folder]", "parameters.folder: in `command` this is the"),
        ("[parameters.n]", '[derived]\nfolder = "1"\n[parameters.n]', "derived.folder: in `comm"),
        ('"{n}"', '"{n}\\u0000"', "command: a NUL in '{n}\\x00', which no argument can have"),
        ('seconds = "1"', 'seconds = "1"\ntasks = [""]', "tasks: no task can be called ''"),
        ('seconds = "1"', f'seconds = "1"\ntasks = ["{"a" * 16}*"]', "keeps 1 to 15 bytes"),
        ("default = 3", 'default = 3\npattern = "3"', "n.pattern: has no effect with type = "),
    ],
)
def test_a_wrong_file_is_explained(written: Written, old: str, new: str, message: str) -> None:
    text = MINIMAL
    if message.endswith("'n.cpus'"):
        text = text.replace('seconds = "1"', 'seconds = "n.cpus"')
        old, new = '"integer"', '"number"'
    path = written(text.replace(old, new))
    with pytest.raises(UserError) as caught:
        load_workload("mine")
    assert caught.value.file == path
    assert message in str(caught.value)


@pytest.mark.parametrize("kind", ["text", "node"])
@pytest.mark.parametrize("bound", ["least", "most"])
def test_only_a_number_has_bounds(written: Written, kind: str, bound: str) -> None:
    text = MINIMAL.replace('"{n}"', '"n"').replace("integer", kind)
    written(text)
    load_workload("mine")
    written(f"{text}{bound} = 1\n")
    with pytest.raises(UserError) as caught:
        load_workload("mine")
    reason = f'has no effect with type = "{kind}" (valid: integer, number, integers)'
    assert (caught.value.key, caught.value.message) == (f"parameters.n.{bound}", reason)


@pytest.mark.parametrize("name", ["a" * 15, "*a*" + "b" * 14, "?" * 15, "*"])
def test_names_of_tasks_that_may_match(written: Written, name: str) -> None:
    written(MINIMAL.replace('seconds = "1"', f'seconds = "1"\ntasks = ["{name}"]'))
    assert load_workload("mine").table.tasks == (name,)


METRIC = """
[[metrics]]
name = "ops"
pattern = '{pattern}'
unit = "1/s"
direction = "higher"
kind = "timing"
required = false
"""
PLAIN, LABELLED = "ops (?P<value>.+)", "ops (?P<label>.+): (?P<value>.+)"


def test_two_metrics_of_one_name_need_labels(written: Written) -> None:
    """All runs that print both would fail."""
    for second in (LABELLED, "of (?P<label>.+): (?P<value>.+)"):
        written(MINIMAL + "".join(METRIC.format(pattern=text) for text in (LABELLED, second)))
        load_workload("mine")
    written(MINIMAL + METRIC.format(pattern=PLAIN) + METRIC.format(pattern=LABELLED))
    load_workload("mine")
    written(MINIMAL + METRIC.format(pattern=PLAIN) * 2)
    with pytest.raises(UserError, match="metrics: ops: two have this name; give each its own"):
        load_workload("mine")


@pytest.mark.parametrize(
    ("pattern", "measures"),
    [
        (PLAIN, {"ops"}),
        (LABELLED, {"ops_LABEL"}),
        (r"ops (?P<label>\w+) (?P<value>\d+(?:\.\d+)?)", {"ops_LABEL"}),
        (r"ops(?:_(?P<label>\w+))?: (?P<value>\d+(\.\d+)?)", {"ops", "ops_LABEL"}),
        (r"ops(?: \((?P<label>\w+)\)){0,1}: (?P<value>\d+)", {"ops", "ops_LABEL"}),
        (r"ops(?P<label>[_()a-z]*): (?P<value>\d+)", {"ops", "ops_LABEL"}),
        (r"ops \((?P<label>\w+)\)?: (?P<value>\d+)", {"ops_LABEL"}),
    ],
)
def test_a_label_may_be_optional(written: Written, pattern: str, measures: set[str]) -> None:
    written(MINIMAL + METRIC.format(pattern=pattern))
    (metric,) = load_workload("mine").table.metrics
    assert set(metric.measures) == measures
    assert metric.is_named("ops") == ("ops" in measures)
    assert metric.is_named("ops_b") == ("ops_LABEL" in measures)
    assert not metric.is_named("opses")


@pytest.mark.parametrize("pattern", ["(", "no groups", "(?P<value>x)(?P<other>y)", "(?P<label>x)"])
def test_a_metric_needs_a_pattern_with_a_value(written: Written, pattern: str) -> None:
    written(
        f"{MINIMAL}\n[[metrics]]\nname = 'm'\npattern = '{pattern}'\nunit = 's'\n"
        "direction = 'lower'\nkind = 'timing'\n"
    )
    with pytest.raises(UserError, match=r"metrics\[0\].pattern"):
        load_workload("mine")


def test_what_is_derived_must_be_above_zero(ring: Topology, written: Written) -> None:
    written(MINIMAL + '[derived]\nhalf = "n // 100"\n')
    with pytest.raises(UserError, match=r"derived.half: n // 100 is 0 here"):
        resolve(load_workload("mine"), {}, ring)


SCALED = """
summary = "s"
stresses = "t"
command = ["run", "{threads}", "{sizes}", "{word}", "{mib}"]
seconds = "sizes.count + sizes.sum + sizes.most"
memory_mib = "threads * mib"
packages = ["iperf3"]
[parameters.threads]
type = "integer"
default = "machine.cpus // 2"
least = 1
help = "h"
[parameters.sizes]
type = "integers"
default = "1,20"
least = 1
most = 100
help = "h"
[parameters.word]
type = "text"
default = "tcp"
pattern = "tcp|udp"
help = "h"
[parameters.free]
type = "text"
default = ""
help = "h"
[parameters.mib]
type = "number"
default = "threads * 1.5"
help = "h"
"""


def test_a_parameter_may_be_worked_out_from_the_machine(ring: Topology, written: Written) -> None:
    written(SCALED)
    bound = resolve(load_workload("mine"), {}, ring)
    assert bound.argv == ("run", "4", "1,20", "tcp", "6.0")
    assert bound.parameters == {
        "threads": 4,
        "sizes": "1,20",
        "word": "tcp",
        "free": "",
        "mib": 6.0,
    }
    assert (bound.seconds, bound.memory_mib, bound.packages) == (2 + 21 + 20, 24, ("iperf3",))


def test_a_study_may_scale_a_parameter_too(ring: Topology, written: Written) -> None:
    written(SCALED)
    bound = resolve(load_workload("mine"), {"threads": "machine.nodes", "sizes": 7}, ring)
    assert (bound.parameters["threads"], bound.parameters["mib"]) == (4, 6.0)
    assert bound.parameters["sizes"] == "7"


@pytest.mark.parametrize(
    ("parameters", "key", "message"),
    [
        ({"threads": "machine.cpus / 3"}, "threads", "needs an integer, found 2.66"),
        ({"threads": "machine.cpus - 8"}, "threads", "needs at least 1, found 0"),
        ({"threads": "mib"}, "threads", "unknown name 'mib'"),
        ({"sizes": "1;rm"}, "sizes", "needs integers such as 1,2,4, found '1;rm'"),
        ({"sizes": "1,0"}, "sizes", "needs at least 1, found 0"),
        ({"sizes": "5,5"}, "sizes", "names a number twice: 5,5"),
        ({"sizes": ",".join(map(str, range(1, 66)))}, "sizes", "at most 64 integers, found 65"),
        ({"word": "sctp"}, "word", "needs a text that matches tcp|udp, found 'sctp'"),
        ({"free": "a\0"}, "free", "a NUL in 'a\\x00', which no argument can have"),
        ({"wrod": "tcp"}, "wrod", "mine has no such parameter; did you mean word? (valid: threads"),
    ],
)
def test_a_study_s_own_mistake_names_the_study(
    ring: Topology,
    written: Written,
    parameters: dict[str, str | int | float],
    key: str,
    message: str,
) -> None:
    written(SCALED)
    study = Path("studies/mine.toml")
    with pytest.raises(UserError) as caught:
        resolve(load_workload("mine"), parameters, ring, file=study, key="workloads[1].parameters")
    assert caught.value.file == study
    assert caught.value.key == f"workloads[1].parameters.{key}"
    assert message in str(caught.value)


def test_a_default_that_does_not_fit_names_the_workload_s_file(
    ring: Topology, written: Written
) -> None:
    path = written(SCALED.replace("machine.cpus // 2", "machine.cpus // 100"))
    with pytest.raises(UserError) as caught:
        resolve(load_workload("mine"), {"mib": 1}, ring, file=Path("study"))
    assert (caught.value.file, caught.value.key) == (path, "parameters.threads")


def test_more_memory_than_the_machine_has_is_refused_before_the_boot(
    ring: Topology, written: Written
) -> None:
    path = written(SCALED)
    with pytest.raises(UserError) as caught:
        resolve(load_workload("mine"), {"mib": 700}, ring, file=Path("s.toml"), key="parameters")
    assert str(caught.value) == (
        "s.toml: parameters: mine needs 2800 MiB (threads = 4, mib = 700), "
        "but of the 3072 MiB of ring-4 it may use 2458"
    )
    written(SCALED.replace("threads * mib", "100000"))
    with pytest.raises(UserError, match=r"mine needs 100000 MiB, but of the 3072 MiB of ring-4"):
        resolve(load_workload("mine"), {}, ring)
    written(SCALED.replace("threads * 1.5", "machine.memory_mib"))
    with pytest.raises(UserError) as caught:
        resolve(load_workload("mine"), {}, ring, file=Path("s.toml"))
    assert (caught.value.file, caught.value.key) == (path, "memory_mib")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("machine.cpus // 2", "mib", "parameters.threads.default: unknown name 'mib'"),
        ("machine.cpus // 2", "1 +", "parameters.threads.default: not an expression"),
        ("threads * mib", "word", "memory_mib: unknown name 'word'"),
        ("tcp|udp", "(", "parameters.word.pattern: not a regular expression"),
    ],
)
def test_a_wrong_default_or_memory_is_explained(
    written: Written, old: str, new: str, message: str
) -> None:
    written(SCALED.replace(old, new))
    with pytest.raises(UserError) as caught:
        load_workload("mine")
    assert message in str(caught.value)


def test_no_two_workloads_differ_in_case_only() -> None:
    names = [name.lower() for name in list_workloads()]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("topology", list_topologies())
def test_every_workload_scales_to_every_machine(topology: str) -> None:
    """Its defaults suit the machine, or it says which node it lacks."""
    machine = load_topology(topology)
    for name in list_workloads():
        try:
            bound = resolve(load_workload(name), {}, machine)
        except UserError as error:
            assert "node" in str(error)
            continue
        assert 0 <= bound.memory_mib < machine.memory_mib
        assert 0 < bound.seconds < 120


VALUES = st.one_of(
    st.integers(-10, 10**12),
    st.floats(allow_nan=True, allow_infinity=True),
    st.text(max_size=12),
    st.sampled_from(["machine.cpus", "1,2", "machine.cpus // 0", "9" * 40, "1-3", "threads * 2"]),
)


@given(st.data())
def test_whatever_a_study_sets_is_fitted_or_explained(data: st.DataObject) -> None:
    """No value makes a traceback, and none leaves something out of bounds."""
    workload = load_workload(data.draw(st.sampled_from(list_workloads())))
    names = st.sampled_from(list(workload.table.parameters))
    parameters = data.draw(st.dictionaries(names, VALUES, max_size=3))
    machine = load_topology(data.draw(st.sampled_from(["ring-4", "slow-memory-3"])))
    try:
        bound = resolve(workload, parameters, machine, file=Path("s.toml"), key="parameters")
    except UserError as error:
        assert error.key
        return
    assert all(word and not PLACEHOLDER.search(word) for word in bound.argv)
    for name, table in workload.table.parameters.items():
        value = bound.parameters[name]
        if isinstance(value, int | float):
            assert table.least is None or value >= table.least
            assert table.most is None or value <= table.most
