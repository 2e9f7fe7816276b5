"""Pages and lines by task: the C core's table, beside the core's own counts and by hand."""

import random
from pathlib import Path

import polars as pl
import pytest

from numalab.capture.memory_places import (
    BARRIER,
    FIRST_BARRIER,
    KERNEL,
    LINE,
    MARK,
    MOMENT,
    PAGE,
    parse_places,
)
from numalab.capture.memory_tables import node_columns, parse_memory_tables
from numalab.errors import HostError
from numalab.topology.load import load_topology
from numalab.topology.memory.costs import render_parameters
from numalab.topology.memory.timing import memory_model
from support.memory_core import LINE_BYTES, MemoryCore, build_core

NODES, LINES, PAGE_LINES, CPUS = 4, 1 << 16, 64, 8
VADDR = 1 << 40  # where programs see their memory


class Counted(MemoryCore):
    """A core of ring-4 that counts places, with a task of its own on each CPU."""

    def __init__(self, library: Path, folder: Path) -> None:
        self.topology = load_topology("ring-4")
        text = render_parameters(
            self.topology, memory_model(self.topology), window_ns=10_000, slice_ns=10_000_000
        )
        self.folder = folder
        tables = folder / "counts", folder / "traffic"
        super().__init__(library, text, nodes=NODES, lines_of_node=LINES, tables=tables)
        self.count_places(folder / "places")
        for cpu in range(CPUS):
            self.switch(cpu, 100 + cpu, 1000)

    def touch(
        self, cpu: int, line: int, byte: int = 0, *, size: int = 1, store: bool = False
    ) -> None:
        vaddr = VADDR + line * LINE_BYTES + byte
        (self.store if store else self.load)(cpu, line, vaddr=vaddr, size=size)

    def rows(self) -> pl.DataFrame:
        self.finish()
        return parse_places(self.folder / "places", NODES).rows


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_core(tmp_path_factory.mktemp("core"))


@pytest.fixture
def core(library: Path, tmp_path: Path) -> Counted:
    return Counted(library, tmp_path)


def test_the_lines_of_pages_add_up_to_those_of_the_nodes(core: Counted) -> None:
    chance = random.Random(5)
    for step in range(60_000):
        line = chance.randrange(NODES) * LINES + chance.randrange(12 * PAGE_LINES)
        core.touch(chance.randrange(CPUS), line, chance.randrange(64), store=step % 3 == 0)
        if step % 10_000 == 0:
            core.mark(0)
    pages = core.rows().filter(pl.col("kind") != MOMENT)
    tables = parse_memory_tables(core.folder / "counts", core.folder / "traffic", core.topology)
    memory, cached = node_columns(NODES)[:NODES], node_columns(NODES)[NODES : 2 * NODES]
    for node in range(NODES):
        of_node = pages.filter(pl.col("node") == node)
        counts = tables.counts.filter(pl.col("node") == node)
        assert of_node["lines"].sum() == sum(counts[name].sum() for name in (*memory, *cached))
        own = sum(counts[f"{kind}_{node}"].sum() for kind in ("memory", "cache"))
        assert of_node["local"].sum() == own
    stalled = int(tables.counts["stalled_ps"].sum())
    assert 0.8 * stalled < int(pages["stalled_ps"].sum()) <= stalled  # without hits in caches


def test_a_page_has_the_lines_that_were_written_and_read(core: Counted) -> None:
    for line in (3, 5):
        core.touch(2, LINES + line)
    core.touch(2, LINES + 9, store=True)
    (row,) = core.rows().filter(pl.col("kind") == PAGE).to_dicts()
    assert row | {"stalled_ps": 0} == {
        "since_ns": 0, "kind": PAGE, "vaddr": VADDR + LINES * LINE_BYTES, "line": LINES,
        "task": 102, "node": 1, "home": 1, "lines": 3, "local": 3, "moves": 0,
        "stalled_ps": 0, "written": 1 << 9, "read": 1 << 3 | 1 << 5,
    }  # fmt: skip


def test_what_the_kernel_fetches_for_a_task_is_one_page(core: Counted) -> None:
    for line in (2 * LINES, 2 * LINES + 9000):
        core.store(3, line, vaddr=(1 << 63) + line * LINE_BYTES)
    (row,) = core.rows().filter(pl.col("kind") == PAGE).to_dicts()
    assert (row["vaddr"], row["task"], row["node"], row["lines"]) == (KERNEL, 103, 1, 2)
    assert row["local"] == 0 and row["stalled_ps"] > 0


def test_a_line_of_a_near_cache_is_local_whatever_its_home(core: Counted) -> None:
    for _ in range(4):
        for cpu in (0, 1, 6):  # two CPUs of node 0, and one of node 3, its home
            core.touch(cpu, 3 * LINES, store=True)
    lines = core.rows().filter(pl.col("kind") == LINE).sort("task")
    assert lines["home"].unique().to_list() == [3]
    assert lines["task"].to_list() == [100, 101, 106]
    assert lines["lines"].to_list() == [3, 4, 4]
    assert lines["local"].to_list() == [0, 4, 0]


def test_a_line_has_the_bytes_of_each_task(core: Counted) -> None:
    for _ in range(10):
        core.touch(0, 7, 8, store=True)
        core.touch(4, 7, 16, store=True)
        core.touch(6, 7, 8)
    lines = core.rows().filter(pl.col("kind") == LINE).sort("task")
    assert lines["task"].to_list() == [100, 104, 106]
    assert lines["vaddr"].unique().to_list() == [VADDR + 7 * LINE_BYTES]
    assert lines["written"].to_list() == [1 << 8, 1 << 16, 0]
    assert lines["read"].to_list() == [0, 0, 1 << 8]
    assert lines["moves"].to_list() == [9, 10, 10]  # nobody had it before the first store
    assert lines["lines"].to_list() == [9, 10, 10]


def test_an_access_touches_all_bytes_of_its_width(core: Counted) -> None:
    for _ in range(4):
        core.touch(0, 7, 8, size=8, store=True)
        core.touch(4, 7, 12, size=4)
        core.touch(4, 7, 60, size=8)  # the line ends
    lines = core.rows().filter(pl.col("kind") == LINE).sort("task")
    assert lines["written"].to_list() == [0xFF << 8, 0]
    assert lines["read"].to_list() == [0, 0xF << 12 | 0xF << 60]


def test_what_follows_the_move_of_a_line_is_counted(core: Counted) -> None:
    for _ in range(4):
        core.touch(0, 7, 8, store=True)  # a value, and that it is new
        core.touch(0, 7, 0, store=True)
        core.touch(4, 7, 0)
        core.touch(4, 7, 8)
    lines = core.rows().filter(pl.col("kind") == LINE).sort("task")
    assert lines["written"].to_list() == [0b1_0000_0001, 0]
    assert lines["read"].to_list() == [0, 0b1_0000_0001]
    assert lines["moves"].to_list() == [3, 4]


def test_a_line_that_moved_passes_its_filter_when_all_was_told(core: Counted) -> None:
    for cpu in (0, 4):
        core.touch(cpu, 7, store=True)
    core.touch(4, 7, store=True)
    entry = core.filter_entry(4, VADDR + 7 * LINE_BYTES)
    assert entry.write == 7 * LINE_BYTES


def test_a_read_modify_write_moves_a_line_once(core: Counted) -> None:
    for _ in range(10):
        for cpu in (0, 4):
            core.touch(cpu, 7)
            core.touch(cpu, 7, store=True)
    lines = core.rows().filter(pl.col("kind") == LINE).sort("task")
    assert lines["moves"].to_list() == [9, 10]


def test_a_mark_parts_what_comes_before_and_after(core: Counted) -> None:
    core.touch(0, 0)
    core.mark(2)
    marked_ns = core.now_ps // 1000
    core.touch(0, LINES)
    rows = core.rows()
    pages = rows.filter(pl.col("kind") == PAGE)
    assert dict(pages.select("home", "since_ns").iter_rows()) == {0: 0, 1: marked_ns}
    (moment,) = rows.filter(pl.col("kind") == MOMENT).to_dicts()
    assert (moment["vaddr"], moment["since_ns"], moment["task"]) == (MARK, marked_ns, 102)


def test_what_comes_after_the_last_barrier_is_apart(core: Counted) -> None:
    core.touch(0, 0)
    core.barrier(0)
    core.touch(0, LINES)
    core.barrier(2)
    first_ns = core.now_ps // 1000
    for line in (2 * LINES, 2 * LINES + 1):
        core.touch(0, line)
        core.barrier(0)
    last_ns = core.now_ps // 1000
    core.touch(0, 3 * LINES)
    rows = core.rows()
    moments = rows.filter(pl.col("kind") == MOMENT).select("vaddr", "task").rows()
    assert moments == [(FIRST_BARRIER, 100), (FIRST_BARRIER, 102), (BARRIER, 0)]
    since = dict(rows.filter(pl.col("kind") == PAGE).select("home", "since_ns").iter_rows())
    assert (since[2], since[3]) == (first_ns, last_ns)
    assert since[1] < first_ns


def test_moves_are_counted_however_many_barriers_there_are(core: Counted) -> None:
    lines, rounds = 500, 70  # more moves than the table has rows of lines
    for _ in range(rounds):
        for cpu in (0, 4):
            for line in range(lines):
                core.touch(cpu, line, 8 * cpu, store=True)
            core.barrier(cpu)
    rows = core.rows()
    assert rows.filter(pl.col("kind") == LINE)["moves"].sum() == lines * (2 * rounds - 1)
    assert rows.filter(pl.col("kind") == PAGE)["lines"].sum() == lines  # nobody had them before


def test_a_new_task_at_the_address_of_one_that_ended_is_apart(core: Counted) -> None:
    core.touch(0, 0)
    core.touch(2, 0)
    core.switch(0, 100, core.now_ps)
    core.born(0)
    born_ns = core.now_ps // 1000
    core.now_ps -= 1000  # the other CPU is not as far
    core.switch(2, 102, core.now_ps)
    core.born(2)
    core.touch(0, LINES)
    core.touch(2, LINES)
    rows = core.rows()
    pages = rows.filter(pl.col("kind") == PAGE).select("task", "home", "since_ns")
    assert sorted(pages.rows()) == [
        (100, 0, 0), (100, 1, born_ns), (102, 0, 0), (102, 1, born_ns)
    ]  # fmt: skip
    tables = parse_memory_tables(core.folder / "counts", core.folder / "traffic", core.topology)
    fetched = tables.counts.filter(pl.col("memory_1") + pl.col("cache_1") > 0)
    assert sorted(fetched.select("task", "slice_ns", "since_ns").rows()) == [
        (100, born_ns, born_ns), (102, born_ns, born_ns - 1)
    ]  # fmt: skip


def test_the_table_grows(core: Counted) -> None:
    pages = LINES // PAGE_LINES
    for node in range(NODES):
        for page in range(pages):
            for cpu in range(0, CPUS, 2):
                core.touch(cpu, node * LINES + page * PAGE_LINES)
    rows = core.rows().filter(pl.col("kind") == PAGE)
    assert len(rows) == NODES * pages * CPUS // 2
    assert rows.select("vaddr", "task", "home").is_unique().all()


def test_a_table_of_another_machine_is_refused(core: Counted) -> None:
    core.touch(6, 3 * LINES)
    core.finish()
    with pytest.raises(HostError, match="4 nodes, not version"):
        parse_places(core.folder / "places", 2)
