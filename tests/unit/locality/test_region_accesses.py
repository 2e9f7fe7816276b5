"""Regions, pages and contended lines of a window: worked out by hand."""

from dataclasses import replace
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from numalab.capture.maps import Mapping, ProcessMaps, Snapshot
from numalab.capture.memory_places import BARRIER, FIRST_BARRIER, KERNEL, LINE, MARK, MOMENT, PAGE
from numalab.locality.address_names import FILES, UNSEEN, AddressNames, ThreadNames, cut_middle
from numalab.locality.contended_lines import LineThread, sharing
from numalab.locality.locality import Locality, NodeAccesses
from numalab.locality.locality_text import locality_lines
from numalab.locality.region_accesses import (
    PageRun,
    Places,
    barrier_window,
    read_places,
    rows_within,
)
from numalab.process import run
from numalab.workload.elf_symbols import ElfFile, read_elf

HEAP, STACK, BIAS = 0x7F00_0000_0000, 0x7F10_0000_0000, 0x5555_0000_0000
DATA, LOADED = 0x7F20_0000_0000, 0x7F30_0000_0000
THREADS = ThreadNames({21: "first", 22: "second"}, 3)
SOURCE = """
long counters[8] __attribute__((aligned(4096)));
long more[8] __attribute__((aligned(64)));
char table[1 << 16] __attribute__((aligned(4096)));
int main(void) { return table[3] + counters[1] + more[2]; }
"""


def row(kind: int, vaddr: int, pid: int | None, **values: int) -> dict[str, Any]:
    usual = {
        "since_ns": 10, "time_ns": 10, "line": vaddr >> 6, "task": pid or 0, "node": 0, "home": 0,
        "lines": 1, "moves": 0, "stalled_ps": 10**9, "written": 0, "read": 1,
    }  # fmt: skip
    row = {**usual, "kind": kind, "vaddr": vaddr, "pid": pid, **values}
    near = row["lines"] if row["node"] == row["home"] else 0
    return {"local": near, **row}


def table(*rows: dict[str, Any]) -> pl.DataFrame:
    masks = dict.fromkeys(("written", "read", "task"), pl.UInt64)
    return pl.DataFrame(rows, schema_overrides={**masks, "pid": pl.Int32})


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    folder = tmp_path_factory.mktemp("program")
    (folder / "program.c").write_text(SOURCE)
    run(["gcc", "-O1", "-pie", "-o", folder / "program", folder / "program.c"])
    return (folder / "program").read_bytes()


@pytest.fixture
def elf(program: bytes) -> ElfFile:
    elf = read_elf(program)
    assert elf is not None
    return elf


@pytest.fixture
def names(program: bytes, elf: ElfFile) -> AddressNames:
    path = f"{FILES}folder/program"
    files = [
        Mapping(
            (part.vaddr & -4096) + BIAS,
            -(-(part.vaddr + part.file_size) // 4096) * 4096 + BIAS,
            "rw-p",
            part.offset & -4096,
            path,
        )
        for part in elf.segments
    ]
    anonymous = [
        Mapping(files[-1].end, elf.ends[1] + BIAS, "rw-p", 0, ""),
        Mapping(HEAP, HEAP + (1 << 20), "rw-p", 0, "[heap]"),
        Mapping(STACK - 4096, STACK, "---p", 0, ""),
        Mapping(STACK, STACK + (10 << 20), "rw-p", 0, ""),
        Mapping(DATA, DATA + (1 << 20), "rw-s", 0, "/tmp/input.dat"),
        Mapping(DATA + (1 << 20), DATA + (2 << 20), "rw-p", 0, ""),
        Mapping(LOADED, LOADED + 4096, "rw-p", 0, f"{FILES}host/bin/program"),
    ]
    maps = Snapshot(5, tuple(sorted((*files, *anonymous), key=lambda part: part.start)))
    process = ProcessMaps(20, {20, 21, 22}, [maps])
    return AddressNames((process,), {"folder/program": program}, 100)


def address(elf: ElfFile, name: str) -> int:
    return next(part.vaddr for part in elf.variables if part.name == name) + BIAS


def test_a_region_on_the_wrong_node_has_its_variable(names: AddressNames, elf: ElfFile) -> None:
    start = address(elf, "table")
    rows = [
        row(PAGE, start + 4096 * page, 22, node=2, home=int(page == 3), lines=3, read=7)
        for page in range(6)
    ]
    rows.append(row(PAGE, start, 21, node=0, home=0, lines=2))
    places = read_places(table(*rows), names, THREADS)
    (region,) = places.regions
    assert (region.name, region.file, region.start) == ("table", "program", start)
    assert (region.pages, region.lines, region.local) == ((5, 1, 0), (2, 0, 18), 2)
    assert (region.uncontended, region.misplaced_pages, region.misplaced_lines) == (
        (2, 0, 18),
        6,
        20,
    )
    assert region.misplaced == 2
    assert [thread.lines for thread in region.threads] == [18, 2]
    assert region.threads_in_all == 2
    assert region.runs == (
        PageRun(start, 3, 0, (2, 0, 9), (2, 0, 9)),
        PageRun(start + 3 * 4096, 1, 1, (0, 0, 3), (0, 0, 3)),
        PageRun(start + 4 * 4096, 2, 0, (0, 0, 6), (0, 0, 6)),
    )


def test_false_sharing_has_the_words_of_its_threads(names: AddressNames, elf: ElfFile) -> None:
    line = address(elf, "counters")
    rows = [
        row(LINE, line, 21, moves=9, written=1, read=1),
        row(LINE, line, 22, moves=8, written=1 << 8, read=1 << 8 | 1 << 16),
        row(LINE, address(elf, "more"), 21, moves=20, written=1),
        row(LINE, address(elf, "more"), 22, moves=20, written=1),
        row(LINE, HEAP, 21, moves=50, written=1),  # of one thread
        row(LINE, HEAP + 64, 21, moves=50, read=1),  # nobody writes
        row(LINE, HEAP + 64, 22, moves=50, read=1),
        row(LINE, HEAP + 128, 21, moves=3, written=1),  # too few
        row(LINE, HEAP + 128, 22, moves=3, written=1),
    ]
    places = read_places(table(*rows), names, THREADS)
    assert [(part.name, part.sharing, part.moves) for part in places.contended] == [
        ("more", "true", 40),
        ("counters", "false", 17),
    ]
    assert places.contended[1].threads == (
        LineThread(21, "first", 9, ("1 byte at counters",), ()),
        LineThread(22, "second", 8, ("1 byte at counters+8",), ("1 byte at counters+16",)),
    )


def test_words_are_the_bytes_of_variables(names: AddressNames, elf: ElfFile) -> None:
    line = address(elf, "counters")
    rows = [
        row(LINE, line, 21, moves=9, written=0xFF0F, read=0),
        row(LINE, line, 22, moves=9, written=0, read=0xF000),
    ]
    (shared,) = read_places(table(*rows), names, THREADS).contended
    assert shared.sharing == "true"
    assert shared.threads[0].written == ("4 bytes at counters", "8 bytes at counters+8")


def test_a_line_in_memory_of_no_snapshot_has_its_address(names: AddressNames) -> None:
    rows = [row(LINE, 0x1000, pid, moves=9, written=3) for pid in (77, 78)]
    (line,) = read_places(table(*rows), names, THREADS).contended
    assert (line.process, line.name) == (UNSEEN, "of processes that were not seen")
    assert line.threads[0].written == ("2 bytes at 0x1000",)


@pytest.mark.parametrize(("lines", "misplaced"), [((5, 0, 5), None), ((3, 0, 7), 2)])
def test_only_a_clear_majority_makes_a_wrong_node(
    names: AddressNames, lines: tuple[int, ...], misplaced: int | None
) -> None:
    rows = [row(PAGE, HEAP, 21, node=node, lines=count) for node, count in enumerate(lines)]
    rows.append(row(PAGE, 0x1000, 77, node=2, lines=9))
    regions = read_places(table(*rows), names, THREADS).regions
    assert {region.name: region.misplaced for region in regions} == {
        "[heap]": misplaced,
        "of processes that were not seen": None,
    }


@pytest.mark.parametrize(("moves", "rest", "misplaced"), [(40, 3, None), (40, 5, 2), (2, 3, 2)])
def test_lines_that_move_to_and_fro_make_no_wrong_node(
    names: AddressNames, moves: int, rest: int, misplaced: int | None
) -> None:
    rows = [
        row(LINE, HEAP, 21, node=2, lines=40, local=30, moves=moves),
        row(PAGE, HEAP, 21, node=2, lines=rest),
    ]
    (region,) = read_places(table(*rows), names, THREADS).regions
    assert (region.local, region.misplaced) == (30, misplaced)


def test_what_the_kernel_fetched_has_no_pages(names: AddressNames) -> None:
    rows = [row(PAGE, KERNEL, pid, home=1, lines=5) for pid in (21, 77)]
    (region,) = read_places(table(*rows), names, THREADS).regions
    assert region.name == "the kernel, for this command"
    assert (region.lines, region.pages, region.misplaced) == ((10, 0, 0), (0, 0, 0), None)


def text_of(places: Places) -> str:
    nodes = tuple(NodeAccesses(node, 0.0, 0.0, 0.0, (0.0,) * 3) for node in range(3))
    return "\n".join(locality_lines(Locality(1.0, (), nodes, ("a note",), places)))


def test_many_short_runs_are_one_remark(names: AddressNames) -> None:
    rows = [row(PAGE, HEAP + 4096 * page, 21, home=page % 2) for page in range(200)]
    rows += [row(PAGE, HEAP, 21, node=2, home=0, lines=20)]
    places = read_places(table(*rows), names, THREADS)
    (region,) = places.regions
    assert (len(region.runs), region.runs_in_all) == (64, 200)
    text = text_of(places)
    assert f"  1 page from {HEAP:#x} on node 0: 95 % of the uncontended lines went to" in text
    assert "  100 more pages, with 45 % of the lines, are on other nodes than the CPUs" in text


def test_a_page_of_two_homes_is_one_page(names: AddressNames) -> None:
    rows = [row(PAGE, HEAP, 21, home=home, lines=lines) for home, lines in ((0, 2), (1, 5))]
    (region,) = read_places(table(*rows), names, THREADS).regions
    assert (region.pages, region.lines, region.local) == ((0, 1, 0), (7, 0, 0), 2)


def test_memory_without_a_variable_has_its_mapping(names: AddressNames, elf: ElfFile) -> None:
    (process,) = names.processes
    rows = {
        HEAP + 4096: "[heap]",
        STACK + 4096: "thread stack, 8192 KiB",
        STACK + (9 << 20): "anonymous, 2048 KiB",
        DATA: "data of input.dat",
        DATA + (1 << 20): "anonymous, 1024 KiB",
        LOADED: "data of ld.so",
        0x1000: "mappings that were not seen",
        address(elf, "counters"): "counters",
    }
    assert {page: names.of_page(process, page, 1).name for page in rows} == rows
    assert names.of_word(process, HEAP + 5) == "[heap]+5"
    assert names.of_word(process, STACK + (8 << 20) + 8) == "anonymous, 2048 KiB+8"


ARENA = 64 << 20


def test_an_arena_is_no_stack(names: AddressNames) -> None:
    first, second, third = (0x7F40_0000_0000 + ARENA * place for place in range(3))
    mappings = (
        Mapping(first, first + (1 << 20), "rw-p", 0, ""),
        Mapping(first + (1 << 20), second, "---p", 0, ""),
        Mapping(second, third - 4096, "rw-p", 0, ""),
        Mapping(third - 4096, third, "---p", 0, ""),
        Mapping(third, third + ARENA, "rw-p", 0, ""),
    )
    process = ProcessMaps(20, {20}, [Snapshot(5, mappings)])
    for address, start in ((first + 4096, first), (second - 1, first), (third - 1, second)):
        name = names.of_page(process, address, 1)
        assert (name.name, name.start, name.end) == ("heap arena", start, start + ARENA)
    assert names.of_page(process, third, 1).name == "anonymous, 65536 KiB", "full, or another's"


def test_memory_has_the_name_of_when_it_could_be_accessed(names: AddressNames) -> None:
    start = 0x7F40_0000_0000
    snapshots = [
        Snapshot(
            time,
            (
                Mapping(start, start + used, "rw-p", 0, ""),
                Mapping(start + used, start + size, "---p", 0, ""),
            ),
        )
        for time, used, size in ((5, 8192, ARENA), (200, 1 << 20, ARENA), (300, 1 << 16, 1 << 17))
    ]
    grows, other = (ProcessMaps(20, {20}, shots) for shots in (snapshots[:2], snapshots[::2]))
    of_arena = {names.of_page(grows, start + at, 1) for at in (0, 8192, 1 << 16, 1 << 21)}
    assert [name.name for name in of_arena] == ["heap arena"]
    assert names.of_page(other, start + 8192, 1).name == "anonymous, 64 KiB"


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/memfd:my shared (deleted)", "memfd:my shared"),
        ("/dev/shm/sem.a", "sem.a"),
        ("/dev/shm/ring (deleted)", "ring"),
        ("/tmp/input.dat (deleted)", "data of input.dat (deleted)"),
    ],
)
def test_shared_memory_has_its_name(names: AddressNames, path: str, name: str) -> None:
    mapped = Snapshot(5, (Mapping(DATA, DATA + 4096, "rw-s", 0, path),))
    assert names.of_page(ProcessMaps(20, {20}, [mapped]), DATA, 1).name == name


def test_a_thread_that_was_never_seen_is_of_the_only_process(names: AddressNames) -> None:
    process = names.process_of(99, HEAP)
    assert process is not None and process.tgid == 20
    assert names.process_of(99, 0x1000) is None


def test_a_thread_that_was_never_seen_is_of_the_process_of_its_name(names: AddressNames) -> None:
    threads = {10: "sh", 20: "prog", 77: "prog", 78: "other", 15: "prog"}
    named = replace(names, processes=(ProcessMaps(10, {10}), *names.processes), threads=threads)
    process = named.process_of(77, 0x1000)
    assert process is not None and process.tgid == 20
    assert named.process_of(78, 0x1000) is None
    assert named.process_of(15, 0x1000) is None, "it is older than the process"
    rows = [row(PAGE, page, 77, node=2, lines=9) for page in (0x1000, 0x9000)]
    (region,) = read_places(table(*rows), named, THREADS).regions
    assert (region.name, region.process) == ("mappings that were not seen", 20)
    assert (region.pages, region.misplaced) == ((2, 0, 0), 2)


def test_regions_of_several_processes_have_these(names: AddressNames) -> None:
    (first,) = names.processes
    several = replace(names, processes=(first, ProcessMaps(30, {30}, first.snapshots)))
    rows = [row(PAGE, HEAP, pid, lines=9) for pid in (21, 30)]
    rows.append(row(PAGE, STACK, 30, stalled_ps=1))
    text = text_of(read_places(table(*rows), several, THREADS))
    assert "[heap], process 20  " in text and "[heap], process 30  " in text
    places = read_places(table(*rows[1:]), several, THREADS)
    assert "[heap]   " in text_of(places)


def test_long_names_keep_their_ends(names: AddressNames) -> None:
    ends = [cut_middle(f"_ZN{'x' * 200}{last}E", 36) for last in ("first", "second")]
    assert [len(name) for name in ends] == [36, 36]
    assert ends[0] != ends[1] and ends[0].startswith("_ZN") and ends[0].endswith("firstE")
    assert cut_middle("short", 5) == "short"


@pytest.mark.parametrize(
    ("masks", "kind"),
    [
        ([(1, 1), (2, 0)], "false"),
        ([(1, 0), (0, 1)], "true"),
        ([(1, 0), (0, 2), (0, 2)], "false"),
        ([(1, 0), (1, 0), (2, 0)], "mixed"),
    ],
)
def test_sharing(masks: list[tuple[int, int]], kind: str) -> None:
    assert sharing(masks) == kind


def test_rows_between_two_moments() -> None:
    rows = table(
        row(MOMENT, MARK, 21, since_ns=1000, time_ns=5_001_000),
        row(MOMENT, MARK, 21, since_ns=2000, time_ns=9_002_000),
        *(row(PAGE, 4096 * at, 21, since_ns=at * 1000) for at in range(4)),
    )
    inside = rows_within(rows, 5_003_000, 9_004_000)
    assert inside is not None
    assert inside["vaddr"].to_list() == [4096]
    assert rows_within(rows, 7_000_000, 9_004_000) is None


def test_the_window_of_barriers() -> None:
    firsts = [row(MOMENT, FIRST_BARRIER, pid, time_ns=at) for pid, at in ((21, 30), (22, 50))]
    assert barrier_window(table(*firsts)) == (50, None)
    firsts.append(row(MOMENT, BARRIER, None, time_ns=70))
    assert barrier_window(table(*firsts)) == (50, 70)
    later = row(MOMENT, FIRST_BARRIER, 23, time_ns=90)
    assert barrier_window(table(*firsts, later)) == (50, 90)
    assert barrier_window(table(*firsts, later, row(MOMENT, BARRIER, None, time_ns=99))) == (50, 99)
    # Nobody was at a second barrier: the third thread counts as one of the first barrier's.
    assert barrier_window(table(*firsts[:2], later)) == (90, None)
    assert barrier_window(table(row(MOMENT, MARK, 21))) is None


def test_the_text_names_what_is_wrong(names: AddressNames, elf: ElfFile) -> None:
    start, line = address(elf, "table"), address(elf, "counters")
    places = read_places(
        table(
            row(PAGE, start, 22, node=2, lines=4),
            row(PAGE, HEAP, 21, lines=1, stalled_ps=1),
            row(PAGE, 0x1000, 77, node=2, lines=4),
            row(LINE, line, 21, moves=9, written=1),
            row(LINE, line, 22, moves=8, written=2, read=0),
        ),
        names,
        ThreadNames({21: "evil\x1b[31m", 22: "second"}, 3),
    )
    text = text_of(places)
    assert "  on the wrong node: it lies on node 0, and 100 % of its uncontended lines went" in text
    assert f"line {line:#x}, counters (program): false sharing: threads use different" in text
    assert "  second/22 writes 1 byte at counters+1 (8 moves)" in text
    assert "... and 1 regions that took less time to fetch (--json)" in text
    assert "of processes that were not seen" in text
    assert text.count("on the wrong node") == 1
    assert "\x1b" not in text
    assert text.endswith("a note")


def test_threads_beyond_the_limit_are_counted(names: AddressNames, elf: ElfFile) -> None:
    line, pids = address(elf, "counters"), range(21, 41)
    rows = [row(LINE, line, pid, moves=9, written=1) for pid in pids]
    threads = ThreadNames(dict.fromkeys(pids, "many"), 3)
    places = read_places(table(*rows), replace(names, threads=threads.names), threads)
    (contended,), (region,) = places.contended, places.regions
    assert (len(contended.threads), contended.threads_in_all) == (16, len(pids))
    assert (len(region.threads), region.threads_in_all) == (16, len(pids))
    text = text_of(places)
    assert text.count("writes 1 byte at counters") == 6
    assert "  ... and 14 threads more" in text


@given(
    st.lists(
        st.builds(
            row,
            st.sampled_from([PAGE, LINE]),
            st.integers(0, 40).map(lambda at: HEAP - 8192 + at * 1024),
            st.sampled_from([21, 22, 77]),
            node=st.integers(0, 2),
            home=st.integers(0, 2),
            written=st.integers(0, 1 << 63),
        ),
        min_size=1,
    )
)
def test_all_lines_are_in_some_region(rows: list[dict[str, Any]]) -> None:
    maps = Snapshot(5, (Mapping(0, 1 << 47, "rw-p", 0, ""),))
    everything = AddressNames((ProcessMaps(20, {20}, [maps]),), {}, 0)
    places = read_places(table(*rows), everything, THREADS)
    assert sum(sum(region.lines) for region in places.regions) == len(rows)
    assert all(sum(r.pages) == sum(run.pages for run in r.runs) for r in places.regions)
    assert isinstance(places, Places)
