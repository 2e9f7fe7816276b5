"""Recordings for the tests: a real one, and a writer of small ones (trace.dat version 6)."""

import lzma
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

DATA = Path(__file__).parents[2] / "data" / "capture"
PAGE = 4096
SWITCH_ID, WAKEUP_ID, EXEC_ID, MASKS_ID, PRINT_ID = 300, 301, 302, 303, 5

HEADER_PAGE = (
    "\tfield: u64 timestamp;\toffset:0;\tsize:8;\tsigned:0;\n"
    "\tfield: local_t commit;\toffset:8;\tsize:8;\tsigned:1;\n"
    "\tfield: int overwrite;\toffset:8;\tsize:1;\tsigned:1;\n"
    "\tfield: char data;\toffset:16;\tsize:4080;\tsigned:1;\n"
)
COMMON = (
    "\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n"
    "\tfield:unsigned char common_flags;\toffset:2;\tsize:1;\tsigned:0;\n"
    "\tfield:unsigned char common_preempt_count;\toffset:3;\tsize:1;\tsigned:0;\n"
    "\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n"
)


def _format(name: str, number: int, fields: Sequence[tuple[str, int, int, int]], shown: str) -> str:
    lines = "".join(
        f"\tfield:{what};\toffset:{offset};\tsize:{size};\tsigned:{signed};\n"
        for what, offset, size, signed in fields
    )
    return f"name: {name}\nID: {number}\nformat:\n{COMMON}{lines}\nprint fmt: {shown}\n"


SWITCH = _format(
    "sched_switch",
    SWITCH_ID,
    [
        ("char prev_comm[16]", 8, 16, 0),
        ("pid_t prev_pid", 24, 4, 1),
        ("int prev_prio", 28, 4, 1),
        ("long prev_state", 32, 8, 1),
        ("char next_comm[16]", 40, 16, 0),
        ("pid_t next_pid", 56, 4, 1),
        ("int next_prio", 60, 4, 1),
    ],
    '"prev_comm=%s", REC->prev_comm',
)
WAKEUP = _format(
    "sched_wakeup",
    WAKEUP_ID,
    [
        ("char comm[16]", 8, 16, 0),
        ("pid_t pid", 24, 4, 1),
        ("int prio", 28, 4, 1),
        ("int target_cpu", 32, 4, 1),
    ],
    '"comm=%s", REC->comm',
)
EXEC = _format(
    "sched_process_exec",
    EXEC_ID,
    [
        ("__data_loc char[] filename", 8, 4, 0),
        ("pid_t pid", 12, 4, 1),
        ("bool done", 16, 1, 0),
        ("short small", 18, 2, 1),
        ("unsigned long mask[2]", 20, 16, 0),
    ],
    '"pid=%d", REC->pid',
)
MASKS = _format(
    "sched_masks",
    MASKS_ID,
    [
        ("__data_loc cpumask_t allowed", 8, 4, 0),
        ("__data_loc u32[] loads", 12, 4, 0),
        ("__rel_loc char[] why", 16, 4, 0),
        ("__rel_loc short[] steps", 20, 4, 1),
        ("__data_loc struct pair[] pairs", 24, 4, 0),
        ("int lost", 28, 4, 1),
    ],
    '"allowed=%s loads=%s why=%s steps=%s", __get_cpumask(allowed),'
    " __print_array(__get_dynamic_array(loads), __get_dynamic_array_len(loads) / 4, 4),"
    " __get_rel_str(why),"
    " __print_array(__get_rel_dynamic_array(steps), 2, 2)",
)
PRINT = _format(
    "print",
    PRINT_ID,
    [("unsigned long ip", 8, 8, 0), ("char buf[]", 16, 0, 0)],
    '"%ps: %s", (void *)REC->ip, REC->buf',
)


def switch(pid: int, prev: bytes, state: int, next_pid: int, next_: bytes) -> bytes:
    """A record of sched_switch on the CPU where `pid` runs."""
    head = struct.pack("<HBBi", SWITCH_ID, 0, 0, pid)
    left = struct.pack("<16siiq", prev, pid, 120, state)
    return head + left + struct.pack("<16sii", next_, next_pid, 120)


def wakeup(pid: int, comm: bytes, target: int, by: int = 0) -> bytes:
    """A record of sched_wakeup."""
    return struct.pack("<HBBi16siii", WAKEUP_ID, 0, 0, by, comm, pid, 120, target)


def executed(pid: int, filename: bytes) -> bytes:
    """A record of sched_process_exec with a text behind its fixed fields."""
    text = filename + b"\0"
    where = len(text) << 16 | 36
    fixed = struct.pack("<HBBiIi?xhQQ", EXEC_ID, 0, 0, pid, where, pid, True, -7, 1, 1 << 63)
    return fixed + text


def masks(pid: int, *arrays: bytes) -> bytes:
    """A record with five arrays behind its fixed fields, located from its start or the field."""
    words, start = [], 32
    for data, after in zip(arrays, (0, 0, 20, 24, 0), strict=True):
        words.append(len(data) << 16 | start - after)
        start += len(data)
    return struct.pack("<HBBi5Ii", MASKS_ID, 0, 0, pid, *words, -3) + b"".join(arrays)


def marker(pid: int, text: bytes) -> bytes:
    """A record of the trace marker."""
    return struct.pack("<HBBiQ", PRINT_ID, 0, 0, pid, 0) + text + b"\n\0"


def item(delta: int, payload: bytes) -> bytes:
    """A record in the ring buffer, `delta` ns after the one before."""
    payload += b"\0" * (-len(payload) % 4)
    extend = b""
    if delta >= 1 << 27:
        extend = struct.pack("<II", 30 | (delta & 0x7FFFFFF) << 5, delta >> 27)
        delta = 0
    if len(payload) <= 28 * 4:
        return extend + struct.pack("<I", len(payload) // 4 | delta << 5) + payload
    return extend + struct.pack("<II", delta << 5, len(payload) + 4) + payload


def page(time: int, *items: bytes, missed: int = 0) -> bytes:
    """A page of the ring buffer; `missed` events were lost before it (-1: an unknown number)."""
    body = b"".join(items)
    commit = len(body)
    if missed:
        commit |= 1 << 31
    if missed > 0:
        commit |= 1 << 30
        body += struct.pack("<Q", missed)
    return (struct.pack("<QQ", time, commit) + body).ljust(PAGE, b"\0")


def trace_dat(
    cpus: Sequence[bytes], comms: str = "", *, options: bytes = b"", of_clock: str = "mono"
) -> bytes:
    """A trace.dat of version 6 with the pages of each CPU."""

    def blob(text: str) -> bytes:
        return struct.pack("<Q", len(text)) + text.encode()

    out = b"\x17\x08\x44tracing6\0" + struct.pack("<BBI", 0, 8, PAGE)
    out += b"header_page\0" + blob(HEADER_PAGE) + b"header_event\0" + blob("")
    out += struct.pack("<I", 1) + blob(PRINT)
    out += struct.pack("<I", 1) + b"sched\0" + struct.pack("<I", 4)
    out += blob(SWITCH) + blob(WAKEUP) + blob(EXEC) + blob(MASKS)
    out += struct.pack("<II", 0, 0) + blob(comms) + struct.pack("<I", len(cpus))
    out += b"options  \0" + options + struct.pack("<H", 0) + b"flyrecord\0"
    clock = blob(f"[{of_clock}]")
    where = -(-(len(out) + 16 * len(cpus) + len(clock)) // PAGE) * PAGE
    for pages in cpus:
        out += struct.pack("<QQ", where, len(pages))
        where += len(pages)
    out += clock
    return out + b"\0" * (-len(out) % PAGE) + b"".join(cpus)


@dataclass(frozen=True)
class Writer:
    """The functions above, for tests (which cannot import each other's modules)."""

    header_page: str = HEADER_PAGE
    switch: Callable[..., bytes] = switch
    wakeup: Callable[..., bytes] = wakeup
    executed: Callable[..., bytes] = executed
    masks: Callable[..., bytes] = masks
    marker: Callable[..., bytes] = marker
    item: Callable[..., bytes] = item
    page: Callable[..., bytes] = page
    trace_dat: Callable[..., bytes] = trace_dat


@pytest.fixture(scope="session")
def write() -> Writer:
    """Write small recordings."""
    return Writer()


@pytest.fixture(scope="session")
def ring4_dat(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recording of NUMA balancing in a real guest."""
    path = tmp_path_factory.mktemp("recording") / "trace.dat"
    path.write_bytes(lzma.decompress((DATA / "ring-4-numa.dat.xz").read_bytes()))
    return path
