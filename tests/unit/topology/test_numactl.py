"""Output of `numactl -H` that contradicts itself, or that numactl does not print."""

import pytest

from numalab.errors import UserError
from numalab.topology.importers.imported import Imported
from numalab.topology.importers.numactl import MAX_LINE, parse_numactl

TWO = """available: 2 nodes (0-1)
node 0 cpus: 0 1 2 3
node 0 size: 1000 MB
node 0 free: 900 MB
node 1 cpus: 4 5 6 7
node 1 size: 1000 MB
node 1 free: 900 MB
node distances:
node   0   1
  0:  10  20
  1:  30  10
"""


def read(text: str) -> Imported:
    return parse_numactl(text, name="x", source="s", file="f")


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("cpus: 0 1 2 3", "cpus: 0 1 1 2 3", "line 2: CPU 1 is listed twice"),
        ("cpus: 0 1 2 3", "cpus: 0-2 2-3", "line 2: CPU 2 is listed twice"),
        ("cpus: 0 1 2 3", "cpus: 0 2 1 3", "line 2: CPU 1 comes after CPU 2"),
        ("cpus: 0 1 2 3", "cpus: 0 1 2 ٣", "line 2: not a cpulist: '٣'"),
        ("cpus: 0 1 2 3", "cpus: 0 1 2 1_0", "line 2: not a cpulist: '1_0'"),
        ("cpus: 0 1 2 3", "cpus: 0 1 2 8192", "line 2: range '8192' is backwards or past CPU"),
        ("cpus: 4 5 6 7", "cpus: 3 4 5 6 7", "line 5: CPU 3 of node 1 is in two nodes"),
        ("cpus: 4 5 6 7", "cpus: 1\n4 15", "line 5 to 6: a line break between 1 and 4 may"),
        ("cpus: 4 5 6 7", "cpus: 4 5\n6", "line 5 to 6: a line break between 5 and 6 may split 56"),
        ("cpus: 4 5 6 7", "cpus: 4 5 2\n6", "line 5 to 6: CPU 2 comes after CPU 5"),
        ("node 1 cpus: 4 5 6 7", "node 0 cpus: 4 5 6 7", "line 5: node 0 is given twice, first in"),
        ("  1:  30  10", "  0:  10  20\n  1:  30  10", "line 11: the row of node 0 is given twice"),
        ("node 1 size", "node 0 size", "line 6: the size of node 0 is given twice, first"),
        ("2 nodes (0-1)", "4 nodes (0-3)", "line 1: 4 nodes announced, 2 described: 0, 1"),
        ("2 nodes (0-1)", "2 nodes (0,2)", "line 1: 2 nodes announced, 2 described: 0, 1"),
        ("2 nodes (0-1)", "1 nodes (0-1)", "line 1: 1 node announced, 2 described"),
        ("  0:  10  20", "  0:  10  -1", "line 10: not a distance: '-1'"),
        ("  0:  10  20", "  0:  10  2٣", "line 10: not a distance: '2٣'"),
        ("  0:  10  20", "  0:  10  0", "line 10: distance 0 from node 0 to node 1"),
        ("  0:  10  20", "  0:  10  9", "line 10: distance 9 from node 0 to node 1"),
        ("  0:  10  20", "  0:  10  256", "line 10: distance 256 from node 0 to node 1"),
        ("  0:  10  20", "  0:  11  20", "line 10: node 0 is 11 away from itself"),
        ("  0:  10  20", "  0:  10  2\n0", "line 10 to 11: row of node 0: 3 distances for 2"),
        ("  0:  10  20", "  0:  10", "line 10: row of node 0: 1 distance for 2 nodes"),
        ("  0:  10  20\n", "", "line 9: the table of node distances lacks the row of node 0"),
        ("  0:  10  20\n", "  0:  10  20\n  2:  10  20\n", "line 11: a row of node 2"),
        ("node   0   1\n", "node   1   0\n", "line 9: the table of node distances is not of the"),
        ("node   0   1\n", "node   0   1   2\n", "line 9: the table of node distances is not of"),
        ("node   0   1\n", "", "line 9: a row of the table of node distances"),
        ("node 1 size: 1000 MB", "node 1 size: -1 MB", "line 6: not a size in MB: '-1 MB'"),
        ("node 1 size: 1000 MB", "node 1 size: 1000 GB", "line 6: not a size in MB"),
        ("node 1 size: 1000 MB", "node 1 size: 18446744073709 MB", "line 6: not a size in MB"),
        ("node 1 size: 1000 MB", "node 1 size: 16777217 MB", "line 6: node 1 has 16777217 MiB"),
        ("node 1 size: 1000 MB", "node 1 size: 100 MB", "line 7: node 1 has 900 MB free, more"),
        ("node 1 cpus: 4 5 6 7\n", "", "line 5: no line `node 1 cpus:`"),
        ("  1:  30  10\n", "  1:  30  10\nbye\n", "line 12: numactl -H prints no such line: 'bye'"),
        ("  1:  30  10\n", "  1:  30  10\nnode 2 cpus: 8\n", "line 12: this line comes too late"),
        ("node distances:\n", "node distances:\n" * 2, "line 9: this line comes too late"),
        ("cpus: 0 1 2 3", "cpus: 0 1\u00a02 3", "line 2: not a cpulist"),
        ("cpus: 0 1 2 3", "cpus: 0\n\n1 2 3", "line 4: numactl -H prints no such line: '1 2 3'"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named_with_its_line(before: str, after: str, message: str) -> None:
    assert TWO.count(before) == 1
    with pytest.raises(UserError) as caught:
        read(TWO.replace(before, after))
    assert str(caught.value).startswith(f"f: {message}")


def test_the_ends_of_lines_of_dos_and_distances_that_differ_by_direction() -> None:
    assert read(TWO.replace("\n", "\r\n")) == read(TWO)
    assert read(TWO).topology.distances == ((10, 20), (30, 10))


def test_a_line_is_bounded() -> None:
    many = "1 " * MAX_LINE
    with pytest.raises(UserError, match=f"line 2: longer than {MAX_LINE} characters"):
        read(TWO.replace("cpus: 0 1 2 3", f"cpus: {many}"))
    with pytest.raises(UserError, match=r"line 2 to .*: longer than"):
        read(TWO.replace("cpus: 0 1 2 3", "cpus:" + "\n1" * MAX_LINE))


def test_a_kernel_without_distances() -> None:
    imported = read(TWO.partition("node distances")[0] + "No distance information available.\n")
    assert imported.topology.distances == ((10, 20), (20, 10))
    assert imported.notes[0].startswith("no table of distances")


def test_threads_are_not_listed_and_that_is_reported() -> None:
    assert read(TWO).notes[0].startswith("no sockets, cores, threads and caches in the source")
