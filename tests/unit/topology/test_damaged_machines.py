"""A damaged description of a machine is refused, or imported as what it says, never as another.

A drawn machine is written as each importer reads it, and one word or line of that is damaged. Then
the import fails and names the line or the file; or it gives the machine as before; or its notes
say what is different; or the damaged text is exactly how the imported machine is written.
"""

import re
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from numalab.document import check_document
from numalab.errors import UserError
from numalab.topology.export import render_numactl
from numalab.topology.file_format import TopologyFile
from numalab.topology.file_rules import broken_rules, build_topology
from numalab.topology.importers.any_format import read_machine
from numalab.topology.importers.hwloc import parse_hwloc
from numalab.topology.importers.imported import Imported
from numalab.topology.importers.numactl import parse_numactl
from numalab.topology.importers.sysfs import read_sysfs
from numalab.topology.predict.firmware import as_guest_numbers
from numalab.topology.topology import Topology
from support.described_machines import render_hwloc, sysfs_files

HOSTILE = ["-1", "+1", "1_0", "٣", "²", "1e1", "0x1", "1.5", "9" * 30, "", "\u00a0", "0", "7",
           "nan", "255", "256", "10", "9", "1,", "-", "0-", "\x0b", "node", ":"]  # fmt: skip


@st.composite
def machines(draw: st.DrawFn) -> Topology:
    """Draw a small machine whose CPUs and nodes keep their numbers when it is imported."""
    nodes = draw(st.integers(1, 4))
    size, threads = draw(st.sampled_from([(1, 1), (2, 1), (2, 2), (4, 2), (14, 1)]))
    counts = [size] * nodes
    for node in draw(st.sets(st.integers(1, nodes), max_size=nodes - 1)):
        if node < nodes:
            counts[node] = 0
    values = st.sampled_from([11, 12, 20, 21, 30, 102, 254, 255])
    table = {
        "summary": "x",
        "nodes": nodes,
        "cpus": counts,
        "memory_mib": [draw(st.sampled_from([1, 12, 512, 1024])) for _ in range(nodes)],
        "cpu": {"threads": threads},
        "matrix": [[10 if a == b else draw(values) for b in range(nodes)] for a in range(nodes)],
        "memory": {"far_may_be_nearer": True, "llc_kib": 64},
    }
    document = check_document(table, TopologyFile, Path("drawn"))
    assume(not broken_rules(document))
    return as_guest_numbers(build_topology("drawn", document))


@st.composite
def damages(draw: st.DrawFn) -> Callable[[str], str]:
    """Draw a damage of one word or line of a text."""
    way = draw(st.sampled_from(["word", "digit", "drop word", "twice", "drop line", "line twice",
                                "swap lines", "move line", "insert", "cut"]))  # fmt: skip
    place, other = draw(st.floats(0, 0.999)), draw(st.floats(0, 0.999))
    hostile = draw(st.sampled_from(HOSTILE))

    def damage(text: str) -> str:
        lines = text.splitlines()
        at, to = int(place * len(lines)), int(other * len(lines))
        words = lines[at].split(" ")
        word = int(other * len(words))
        match way:
            case "drop line":
                del lines[at]
            case "line twice":
                lines.insert(to, lines[at])
            case "swap lines":
                lines[at], lines[to] = lines[to], lines[at]
            case "move line":
                lines.insert(to, lines.pop(at))
            case "insert":
                cut = int(other * (len(lines[at]) + 1))
                lines[at] = lines[at][:cut] + hostile + lines[at][cut:]
            case "cut":
                return text[: int(place * len(text))]
            case _:
                changed = {"word": [hostile], "drop word": [], "twice": [words[word]] * 2,
                           "digit": [_other_digit(words[word], place)]}[way]  # fmt: skip
                lines[at] = " ".join([*words[:word], *changed, *words[word + 1 :]])
        return "\n".join(lines) + "\n"

    return damage


def _other_digit(word: str, place: float) -> str:
    digits = [at for at, char in enumerate(word) if char.isdigit()]
    if not digits:
        return word
    at = digits[int(place * len(digits))]
    return f"{word[:at]}{(int(word[at]) + 1 + int(place * 8)) % 10}{word[at + 1 :]}"


@dataclass(frozen=True)
class Attempt:
    """A damaged import: what came out, or its error; and whether its text is its own writing."""

    imported: Imported | None
    error: UserError | None
    honest: bool


def judge(before: Imported, attempt: Attempt, damaged: str) -> None:
    """Check that a damage was refused, reported, without effect, or made another whole machine."""
    if attempt.imported is None:
        return
    same = attempt.imported.topology == before.topology
    reported = attempt.imported.notes != before.notes
    assert same or reported or attempt.honest, damaged


def words_of(text: str) -> list[str]:
    return [word for line in text.splitlines() if "free:" not in line for word in line.split()]


def numactl(text: str) -> Imported:
    return parse_numactl(text, name="x", source="s", file="f")


WHOLE_FILE = r"no node has|this is not the output|at most 255|APIC id"


@settings(max_examples=200)
@given(machines(), damages())
def test_damaged_numactl_output(topology: Topology, damage: Callable[[str], str]) -> None:
    whole = render_numactl(topology)
    before, damaged = numactl(whole), damage(whole)
    try:
        imported = numactl(damaged)
    except UserError as error:
        if error.key is None:
            assert re.search(WHOLE_FILE, str(error))
        else:
            assert error.key.startswith("line ")
        return
    honest = words_of(render_numactl(imported.topology)) == words_of(damaged)
    judge(before, Attempt(imported, None, honest), damaged)


@settings(max_examples=150)
@given(machines(), st.floats(0, 0.999))
def test_a_line_break_inside_of_a_number_is_refused(topology: Topology, place: float) -> None:
    whole = render_numactl(topology)
    inside = [at for at in range(1, len(whole)) if whole[at - 1 : at + 1].isdigit()]
    assume(inside)
    at = inside[int(place * len(inside))]
    with pytest.raises(UserError, match="line "):
        numactl(f"{whole[:at]}\n{whole[at:]}")


@settings(max_examples=200)
@given(machines(), st.floats(0, 0.999))
def test_a_line_break_after_a_number_loses_nothing(topology: Topology, place: float) -> None:
    whole = render_numactl(topology)
    gaps = [at for at in range(1, len(whole) - 1) if whole[at] == " " and whole[at + 1].isdigit()
            and whole[at - 1].isdigit()]  # fmt: skip
    assume(gaps)
    at = gaps[int(place * len(gaps))]
    assert numactl(f"{whole[: at + 1]}\r\n{whole[at + 1 :]}") == numactl(whole)


@settings(max_examples=200)
@given(machines(), damages())
def test_damaged_xml_of_hwloc(topology: Topology, damage: Callable[[str], str]) -> None:
    def read(text: str) -> Imported:
        return parse_hwloc(text, name="x", source="s", file="f")

    whole = render_hwloc(topology)
    before, damaged = read(whole), damage(whole)
    try:
        imported = read(damaged)
    except UserError as error:
        if error.key is None:
            assert re.search(WHOLE_FILE, str(error))
        else:
            assert error.key.startswith("line ")
        return
    honest = words_of(render_hwloc(imported.topology)) == words_of(damaged)
    judge(before, Attempt(imported, None, honest), damaged)


@settings(max_examples=60, deadline=None)
@given(machines(), damages(), st.floats(0, 0.999), st.booleans())
def test_a_damaged_tree_of_sysfs(
    topology: Topology, damage: Callable[[str], str], place: float, gone: bool
) -> None:
    files = sysfs_files(topology)
    name = sorted(files)[int(place * len(files))]
    changed = dict(files)
    if gone:
        del changed[name]
    else:
        changed[name] = damage(files[name])
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        before = _read_tree(root / "whole", files)
        try:
            imported = _read_tree(root / "damaged", changed)
        except UserError as error:
            assert error.file is not None and str(error.file).startswith(folder)
            return
    honest = _without_ids(sysfs_files(imported.topology)) == _without_ids(changed)
    judge(before, Attempt(imported, None, honest), f"{name}: {changed.get(name)!r}")


def _without_ids(files: dict[str, str]) -> dict[str, str]:
    """Number the packages in the order of their CPUs: a machine may number them in any order."""
    places: dict[str, int] = {}
    ids = sorted(name for name in files if name.endswith("/physical_package_id"))
    return files | {name: str(places.setdefault(files[name], len(places))) for name in ids}


def _read_tree(root: Path, files: dict[str, str]) -> Imported:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return read_sysfs(root, name="x", source="s")


@given(machines())
def test_the_whole_machine_is_imported(topology: Topology) -> None:
    """The texts that are damaged above are whole: each gives the machine that it was made of."""
    for imported in (
        numactl(render_numactl(topology)),
        read_machine("-", render_hwloc(topology).encode(), name="x"),
    ):
        assert imported.topology.distances == topology.distances
        assert imported.topology.nodes == topology.nodes
        assert imported.old_cpus == tuple(range(topology.cpu_count))
        assert imported.old_nodes == tuple(range(len(topology.nodes)))
    assert imported.topology.packaging == topology.packaging
    with tempfile.TemporaryDirectory() as folder:
        imported = _read_tree(Path(folder), sysfs_files(topology))
    assert imported.notes == ()
    assert imported.topology.packaging == topology.packaging
    assert imported.topology.nodes == topology.nodes
