"""hwloc's XML: CPU sets, memory-only nodes, and tables of latencies in both formats."""

import pytest

from numalab.errors import UserError
from numalab.topology.importers.hwloc import parse_hwloc
from numalab.topology.importers.hwloc_xml import MAX_ELEMENTS, parse_xml
from numalab.topology.importers.imported import Imported
from numalab.topology.topology import CpuShape

GIB = 1 << 30


def pu(number: int) -> str:
    return f'<object type="PU" os_index="{number}" cpuset="{1 << number:#x}"/>'


def node(number: int, cpuset: str, gp: int = 0, memory: int = GIB) -> str:
    return (f'<object type="NUMANode" os_index="{number}" cpuset="{cpuset}" gp_index="{gp}"'
            f' local_memory="{memory}"/>')  # fmt: skip


def read(*inside: str) -> Imported:
    text = f'<topology><object type="Machine" os_index="0">{"".join(inside)}</object></topology>'
    return parse_hwloc(text, name="x", source="s", file="f.xml")


def distances2(indexing: str, indexes: str, values: str, name: str = "NUMALatency") -> str:
    return (f'</object><distances2 type="NUMANode" indexing="{indexing}" name="{name}">'
            f"<indexes>{indexes}</indexes><u64values>{values}</u64values></distances2>"
            '<object type="Misc">')  # fmt: skip


def core(cpuset: str, *pus: str) -> str:
    return f'<object type="Core" os_index="0" cpuset="{cpuset}">{"".join(pus)}</object>'


TWO = (node(0, "0x3", gp=11), node(1, "0xc", gp=5), *map(pu, range(4)))


@pytest.mark.parametrize(
    ("name", "values", "noted"),
    [
        ("Latency", '<memattr_value value="100"/>', True),
        ("ReadBandwidth", '<memattr_value value="100"/>', True),
        ("Latency", "", False),
        ("Capacity", '<memattr_value value="100"/>', False),
    ],
)
def test_latencies_of_memory_are_left_out_with_a_note(name: str, values: str, noted: bool) -> None:
    table = f'</object><memattr name="{name}">{values}</memattr><object type="Misc">'
    notes = read(*TWO, table).notes
    assert any("latencies and bandwidths of memory" in note for note in notes) == noted


@pytest.mark.parametrize(
    ("cpuset", "cpus"),
    [("0x5", (0, 2)), ("0x80000000", (31,)), ("0x1,0x2", (1, 32)), ("0x1,,0x1", (0, 64))],
)
def test_a_cpu_set_is_words_of_32_bits_the_last_the_lowest(
    cpuset: str, cpus: tuple[int, ...]
) -> None:
    assert read(node(0, cpuset)).old_cpus == cpus


def test_a_machine_without_nodes_is_one() -> None:
    text = ('<topology><object type="Machine" os_index="0" cpuset="0x3" local_memory="2097152">'
            f"{pu(0)}{pu(1)}</object></topology>")  # fmt: skip
    (single,) = parse_hwloc(text, name="x", source="s", file="f").topology.nodes
    assert (single.cpus, single.memory_mib) == ((0, 1), 2)


def test_cpus_that_are_offline_are_left_out() -> None:
    imported = read(node(0, "0xf"), pu(0), pu(2))
    assert imported.old_cpus == (0, 2)


def test_a_cpu_belongs_to_the_node_with_the_fewest() -> None:
    """High-bandwidth memory has the CPUs near it, which are those of another node."""
    imported = read(node(0, "0xf"), node(1, "0x3"), *map(pu, range(4)))
    assert [machine_node.cpus for machine_node in imported.topology.nodes] == [(0, 1), (2, 3)]
    same = read(node(0, "0x3"), node(1, "0x3"), *map(pu, range(2)))
    assert [machine_node.cpus for machine_node in same.topology.nodes] == [(0, 1), ()]


@pytest.mark.parametrize(
    "table",
    [
        distances2("os", "0 1", "10 21 31 10"),
        distances2("os", "1 0", "10 31 21 10"),  # in another order
        distances2("gp", "11 5", "10 21 31 10"),  # by hwloc's own numbers
        distances2("os", "0 1", "9 9 9 9", "NUMABandwidth")
        + distances2("os", "0 1", "10 21 31 10"),
        '<distances latency_base="10.0"><latency value="1.0"/><latency value="2.1"/>'
        '<latency value="3.1"/><latency value="1.0"/></distances>',
    ],
)
def test_latencies_are_found_in_either_format(table: str) -> None:
    assert read(*TWO, table).topology.distances == ((10, 21), (31, 10))


def test_without_a_table_nodes_are_20_apart_and_that_is_said() -> None:
    imported = read(*TWO)
    assert imported.topology.distances == ((10, 20), (20, 10))
    assert imported.notes[0] == ("no table of distances: 20 between nodes, the default of kernels")


def test_cores_without_packages_keep_their_threads() -> None:
    cores = (core("0x3", pu(0), pu(1)), core("0xc", pu(2), pu(3)))
    imported = read(node(0, "0x3"), node(1, "0xc"), *cores)
    assert imported.topology.cpu_shape == CpuShape(sockets=2, dies=1, cores=1, threads=2)
    assert "no sockets in the source: each node becomes a socket" in imported.notes


def test_a_cache_that_cores_share_below_the_last_one_is_left_out_with_a_note() -> None:
    def cache(level: int, cpuset: str, *inside: str) -> str:
        head = f'<object type="L{level}Cache" depth="{level}" cpuset="{cpuset}">'
        return f"{head}{''.join(inside)}</object>"

    pairs = [
        cache(2, cpuset, *(core(f"{1 << cpu:#x}", pu(cpu)) for cpu in cpus))
        for cpuset, cpus in (("0x3", (0, 1)), ("0xc", (2, 3)))
    ]
    package = f'<object type="Package" os_index="0" cpuset="0xf">{cache(3, "0xf", *pairs)}</object>'
    imported = read(node(0, "0xf"), package)
    assert [note for note in imported.notes if "clusters of 2 CPUs" in note]
    alone = f'<object type="Package" os_index="0" cpuset="0xf">{"".join(pairs)}</object>'
    assert not [note for note in read(node(0, "0xf"), alone).notes if "clusters" in note]


def test_packages_cores_and_caches_make_the_shape() -> None:
    """Two packages of two cores of two threads; threads are 4 apart, as firmware numbers them."""
    inside = ""
    for package in range(2):
        cores = ""
        mask = 0
        for core in (2 * package, 2 * package + 1):
            threads = 1 << core | 1 << (core + 4)
            mask |= threads
            cores += f'<object type="Core" os_index="{core}" cpuset="{threads:#x}">'
            cores += f"{pu(core)}{pu(core + 4)}</object>"
        inside += f'<object type="Package" os_index="{package}" cpuset="{mask:#x}">'
        inside += f'<object type="L3Cache" cpuset="{mask:#x}">{cores}</object></object>'
        inside += node(package, f"{mask:#x}")
    imported = read(inside)
    shape = imported.topology.cpu_shape
    assert shape is not None
    assert (shape.sockets, shape.dies, shape.cores, shape.threads) == (2, 1, 2, 2)
    assert imported.old_cpus == (0, 4, 1, 5, 2, 6, 3, 7)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("<topology>", "not XML"),
        ("<html/>", "the root is <html>"),
        ("<topology/>", "no NUMA node found"),
        ('<!DOCTYPE t [<!ENTITY a "b">]><topology/>', "XML entities are not read"),
    ],
)
def test_what_is_no_such_file(text: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        parse_hwloc(text, name="x", source="s", file="f.xml")


@pytest.mark.parametrize(
    ("inside", "message"),
    [
        (node(0, "3"), "not a CPU set: '3'"),
        (node(0, "0x1," * 2000), "not a CPU set"),
        (node(0, "0x1").replace('os_index="0"', 'os_index="-1"'), "os_index is not a number: '-1'"),
        (node(0, "0x1").replace(f'"{GIB}"', '"much"'), "local_memory is not a number: 'much'"),
        ("".join(TWO) + distances2("os", "0 1", "10 21 31"), "not a table of 2 x 2"),
        ("".join(TWO) + distances2("os", "0 7", "10 21 31 10"), "not a table of 2 x 2"),
        (node(0, "0x1") + '<distances><latency value="x"/></distances>', "not a latency: 'x'"),
        (node(0, "0x3") + "\n" + node(0, "0xc"), "line 2: node 0 is described twice"),
        (node(0, "0x3") + "\n" + node(1, "0x6"), "line 2: CPUs 1 of node 1 are in two nodes"),
        (node(0, "0x3") + "\n" + pu(2), "line 2: CPU 2 is in no node"),
        (node(0, "0x3") + "\n" + pu(0).replace("0x1", "0x2"), "line 2: the cpuset of a PU"),
        (node(0, "0x3") + "\n" + core("0x3", pu(0), pu(0)), "line 2: CPU 0 is also in the PU"),
        (node(0, "0x7") + "\n" + core("0x6", pu(1)) + pu(2), "line 2: CPUs 2 are in the cpuset"),
        (node(0, "0x7") + "\n" + core("0x1", pu(0), pu(1)), "line 2: CPUs 1 are in the cpuset"),
        (node(0, "0x1").replace('cpuset="0x1"', ""), "line 1: NUMANode without a cpuset"),
        (node(0, "0x1").replace("/>", ' nodeset="0x2"/>'), "line 1: the nodeset of a NUMANode"),
        (
            node(0, "0x1") + "\n" + pu(0).replace("/>", ' nodeset="0x0"/>'),
            "line 2: CPU 0 is in nodes",
        ),
        (
            node(0, "0x1").replace("/>", '><page_type size="4096" count="7"/></object>'),
            f"line 1: local_memory is {GIB}, and its pages are 28672 bytes",
        ),
        (node(0, "0x1").replace('os_index="0"', 'os_index="٣"'), "os_index is not a number: '٣'"),
        ("".join(TWO) + "\n" + distances2("os", "0 1", "10 21 31 11"), "line 2: node 1 is 11 away"),
        ("".join(TWO) + "\n" + distances2("os", "0 1", "10 21 0 10"), "line 2: distance 0 from"),
        ("".join(TWO) + "\n" + distances2("os", "0 1", "10 2 1 31 10"), "line 2: .* not a table"),
        ("".join(TWO) + "\n" + distances2("gp", "11 6", "10 21 31 10"), "line 2: no NUMANode has"),
        ("".join(TWO) + "\n" + distances2("os", "0 1", "10 21 -1 10"), "line 2: distance is not a"),
        (
            "".join(TWO) + '<distances nbobjs="2"><latency value="1.0"/></distances>',
            "line 1: 1 latencies for 2 objects",
        ),
        (node(0, "0x1") + "<object>" * 70 + "</object>" * 70, "line 1: more than"),
    ],
)
def test_what_is_wrong_in_it_is_named(inside: str, message: str) -> None:
    with pytest.raises(UserError, match=rf"f\.xml: .*{message}"):
        read(inside)


def test_what_is_left_out_is_reported() -> None:
    notes = read(node(0, "0x7"), pu(0), pu(2), '<object type="Quark"/>').notes
    assert notes[:2] == (
        "left out CPUs without a PU, which are offline: 1",
        "left out objects of unknown type: 'Quark' (line 1)",
    )


def test_elements_have_their_line_and_are_bounded() -> None:
    xml = parse_xml("<a>\n<b/>\n <c>x</c></a>", "f")
    assert [(element.tag, xml.at(element).line) for element in xml.root.iter()] == [
        ("a", "line 1"), ("b", "line 2"), ("c", "line 3")
    ]  # fmt: skip
    with pytest.raises(UserError, match="line 2: more than"):
        parse_xml("<a>\n" + "<b/>" * MAX_ELEMENTS + "</a>", "f")
    with pytest.raises(UserError, match="line 1: XML entities are not read"):
        parse_xml('<!DOCTYPE a [<!ENTITY % b "c">]><a/>', "f")


def test_cpu_sets_and_nodes_are_bounded() -> None:
    wide = '<object type="Group" cpuset="' + ",".join(["0xffffffff"] * 300) + '"/>\n'
    with pytest.raises(UserError, match="line 110: more than 1048576 CPUs in all CPU sets"):
        read(*[wide] * 200)
    with pytest.raises(UserError, match="65 nodes; at most 64 are possible"):
        read(*(node(number, f"0x{number + 1:x}") for number in range(65)))
