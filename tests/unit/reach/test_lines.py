"""The code of a line: parsed from binutils' listings, moved instructions, inlined copies."""

import random
from collections import Counter
from itertools import combinations

import pytest

from numalab.reach.line_table import line_code
from numalab.reach.lines import _STORE, Code, LineCode, executions
from numalab.reach.listing import (
    Instruction,
    Row,
    StaticJump,
    Symbol,
    parse_instructions,
    parse_rows,
    parse_static_jumps,
    parse_symbols,
    section_bases,
)

TREE = "/linux"
FILE = "kernel/sched/fair.c"

# vruntime_eligible() of Linux 6.12 by gcc 12.2 (shortened): the addition of line 773 was moved
# before the test of line 772's block, and its statement was left where the branch of 769 ends.
ROWS = """\
CU: ../kernel/sched/fair.c:
File name                            Line number    Starting address    View    Stmt
fair.c                                       767  0x38               x
fair.c                                       767  0x38       1
fair.c                                       769  0x3c               x
fair.c                                       571  0x3c       1
fair.c                                       769  0x40       1
fair.c                                       770  0x4b               x
fair.c                                       770  0x4b       1       x
fair.c                                       773  0x64       1
fair.c                                       772  0x67       2       x

../kernel/sched/sched.h:[++]
sched.h                                       12  0x6b               x

../kernel/sched/fair.c:
fair.c                                       773  0x75               x
fair.c                                       776  0x75       2       x
fair.c                                       776  0x75       3
fair.c                                         -  0x80
"""
LISTING = """\

Disassembly of section .text:

0000000000000038 <eligible>:
eligible():
/linux/build-0/../kernel/sched/fair.c:767
      38:\tmov    0x30(%rdi),%rcx
entity_key():
/linux/build-0/../kernel/sched/fair.c:571
inlined by /linux/build-0/../kernel/sched/fair.c:772 (eligible)
      3c:\tmov    0x38(%rdi),%rdi
eligible():
/linux/build-0/../kernel/sched/fair.c:769 (discriminator 1)
      40:\tje     75 <eligible+0x3d>
/linux/build-0/../kernel/sched/fair.c:770
      4b:\tmov    (%rax),%r8
/linux/build-0/../kernel/sched/fair.c:773
      64:\tadd    %r8,%rcx
entity_key():
/linux/build-0/../kernel/sched/fair.c:571
inlined by /linux/build-0/../kernel/sched/fair.c:772 (eligible)
      67:\tmov    0x70(%rax),%rax
inlined by /linux/build-0/../kernel/sched/fair.c:772 (eligible)
      6b:\tsub    %rdi,%rax
eligible():
/linux/build-0/../kernel/sched/fair.c:776
      75:\tsub    %rdi,%rsi
      78:\tret
"""


def code(static: tuple[StaticJump, ...] = ()) -> Code:
    rows = parse_rows(ROWS, f"{TREE}/build-0", TREE)
    return Code(rows, parse_instructions(LISTING, TREE), static)


def count(line: int, counts: dict[int, int]) -> int:
    code_of_line = code().line((FILE, line))
    assert code_of_line is not None
    return executions(code_of_line, counts)


def test_rows_have_files_below_the_tree() -> None:
    rows = parse_rows(ROWS, f"{TREE}/build-0", TREE)
    assert [row.file for row in rows if row.line == 12] == ["kernel/sched/sched.h"]
    assert [row.is_empty for row in rows if row.address == 0x75] == [True, True, False]


def test_an_instruction_has_all_lines_that_inlined_it() -> None:
    places = {
        instruction.address: instruction.places for instruction in parse_instructions(LISTING, TREE)
    }
    assert places[0x6B] == ((FILE, 571), (FILE, 772))
    assert places[0x75] == places[0x78] == ((FILE, 776),)


def test_a_moved_instruction_does_not_count_for_its_line() -> None:
    """Line 571's first instruction runs always, its statement 3 times."""
    always = dict.fromkeys((0x38, 0x3C, 0x40, 0x75, 0x78), 10)
    inside = dict.fromkeys((0x4B, 0x64, 0x67, 0x6B), 3)
    counts = always | inside
    assert count(769, counts) == 10
    assert count(772, counts) == 3
    assert count(776, counts) == 10


def test_a_statement_left_at_the_end_of_a_block_belongs_to_the_block() -> None:
    always = dict.fromkeys((0x38, 0x3C, 0x40, 0x75, 0x78), 10)
    assert count(773, always) == 0
    assert count(773, always | dict.fromkeys((0x4B, 0x64, 0x67, 0x6B), 3)) == 3


def test_a_jump_knows_the_lines_of_both_ways() -> None:
    line = code().line((FILE, 769))
    assert line is not None
    (jump,) = line.jumps
    assert (jump.next, jump.next_line) == (0x4B, 770)
    assert (jump.target, jump.target_line) == (0x75, 776)
    assert not jump.is_static


def test_a_static_branch_is_a_jump_of_its_line() -> None:
    line = code((StaticJump(0x4B, 0x78),)).line((FILE, 770))
    assert line is not None
    assert [(jump.is_static, jump.target_line) for jump in line.jumps] == [(True, 776)]


# dequeue_task_fair() of a patched Linux 6.12 by gcc 12.2 (shortened): the body of a rare condition
# is the last code of the function, so that objdump gives its line to what aligns the next one.
PADDED_ROWS = """\
CU: ../kernel/sched/fair.c:
File name                            Line number    Starting address    View    Stmt
fair.c                                      5048  0xda2               x
fair.c                                      5049  0xda4               x
fair.c                                      5055  0xda4       1       x
fair.c                                      5049  0xdca               x
fair.c                                      5049  0xdca       1       x
fair.c                                      8957  0xde0               x
fair.c                                         -  0xde8
"""
PADDED = """\

Disassembly of section .text:

0000000000000da2 <dequeue>:
update():
/linux/build-0/../kernel/sched/fair.c:5048
inlined by /linux/build-0/../kernel/sched/fair.c:7286 (dequeue)
     da2:\tjb     dca <dequeue+0x28>
/linux/build-0/../kernel/sched/fair.c:5055
inlined by /linux/build-0/../kernel/sched/fair.c:7286 (dequeue)
     da4:\tmov    0x168(%rbx),%rax
inlined by /linux/build-0/../kernel/sched/fair.c:7286 (dequeue)
     dc5:\tjmp    da2 <dequeue>
/linux/build-0/../kernel/sched/fair.c:5049
inlined by /linux/build-0/../kernel/sched/fair.c:7286 (dequeue)
     dca:\tmov    %r14d,%eax
inlined by /linux/build-0/../kernel/sched/fair.c:7286 (dequeue)
     dd2:\tmov    %eax,0x178(%rbx)
inlined by /linux/build-0/../kernel/sched/fair.c:7286 (dequeue)
     dd8:\tjmp    da4 <dequeue+0x2>
dequeue():
/linux/build-0/../kernel/sched/fair.c:5049
     dda:\t{padding}

0000000000000de0 <pick>:
pick():
/linux/build-0/../kernel/sched/fair.c:8957
     de0:\tpush   %rbp
"""


@pytest.mark.parametrize("padding", ["nopw   0x0(%rax,%rax,1)", "data16 cs nopw 0x0(%rax)", "nop"])
def test_what_aligns_the_next_function_is_no_copy_of_a_line(padding: str) -> None:
    rows = parse_rows(PADDED_ROWS, f"{TREE}/build-0", TREE)
    listing = parse_instructions(PADDED.replace("{padding}", padding), TREE)
    line = Code(rows, listing, ()).line((FILE, 5049))
    assert line is not None
    assert line.parts == (((0xDCA,),),)
    assert executions(line, {0xDA2: 9, 0xDA4: 9, 0xDC5: 9}) == 0


def test_a_line_without_rows_has_no_code() -> None:
    assert code().line((FILE, 768)) is None


def test_sections_lie_where_their_functions_are() -> None:
    own = [Symbol(0, 8, "FUNC", "1", "a"), Symbol(8, 4, "FUNC", "1", "b"),
           Symbol(0, 4, "FUNC", "2", "b")]  # fmt: skip
    linked = [Symbol(100, 8, "FUNC", "1", "a"), Symbol(108, 4, "FUNC", "1", "b"),
              Symbol(300, 4, "FUNC", "1", "other"), Symbol(900, 8, "OBJECT", "3", "a")]  # fmt: skip
    assert section_bases(own, {"1": ".text"}, linked) == {".text": 100}
    assert section_bases(own, {"3": ".text"}, linked) == {}


def test_symbols_and_static_jumps_are_parsed() -> None:
    text = "  4256: ffffffff81082e30    85 FUNC    LOCAL  DEFAULT    1 vruntime_eligible\n"
    assert parse_symbols(text) == (
        Symbol(0xFFFFFFFF81082E30, 85, "FUNC", "1", "vruntime_eligible"),
    )
    table = """\
OFFSET           TYPE              VALUE
0000000000000000 R_X86_64_PC32     .text+0x0000000000000301
0000000000000004 R_X86_64_PC32     .text+0x0000000000000333
0000000000000008 R_X86_64_PC64     sched_schedstats+0x0000000000000002
0000000000000010 R_X86_64_PC32     .init.text
"""
    assert parse_static_jumps(table, {".text": 0x1000}) == (StaticJump(0x1301, 0x1333),)


# mpol_misplaced() of Linux 6.12 by gcc 12.2 (shortened): line 2828 copies a register, and the copy
# was moved behind the branch of line 2830 that needs it.
SUNK_ROWS = """\
CU: ../mm/mempolicy.c:
File name                            Line number    Starting address    View    Stmt
mempolicy.c                                 2827              0x41ee               x
mempolicy.c                                 2828              0x41f0               x
mempolicy.c                                 2830              0x41f0       1       x
mempolicy.c                                 2830              0x41f0       5
mempolicy.c                                 2828              0x420a
mempolicy.c                                 2835              0x420d               x
mempolicy.c                                 2820              0x4210               x
mempolicy.c                                    -              0x4215
"""
SUNK = """\

Disassembly of section .text:

00000000000041ee <misplaced>:
misplaced():
/linux/build-0/../mm/mempolicy.c:2827
    41ee:\tje     420d <misplaced+0x1f>
/linux/build-0/../mm/mempolicy.c:2830
    41f0:\tmov    %gs:0x0(%rip),%rdi
    4201:\tcall   4206 <misplaced+0x18>
    4208:\tje     420d <misplaced+0x1f>
/linux/build-0/../mm/mempolicy.c:2828
    420a:\tmov    %r14d,%eax
/linux/build-0/../mm/mempolicy.c:2835
    420d:\tcmp    %r12d,%eax
    420e:\tret
/linux/build-0/../mm/mempolicy.c:2820
    4210:\tjmp    41f0 <misplaced+0x2>
"""


def test_a_line_whose_instruction_moved_into_a_later_branch_ran() -> None:
    rows = parse_rows(SUNK_ROWS, f"{TREE}/build-0", TREE)
    line = Code(rows, parse_instructions(SUNK, TREE), ()).line(("mm/mempolicy.c", 2828))
    assert line is not None
    counts = dict.fromkeys((0x41EE, 0x41F0, 0x4201, 0x4208), 7) | {0x420D: 9}
    assert executions(line, counts) == 7
    assert executions(line, {0x41EE: 3, 0x420D: 3}) == 0
    # Other code jumps to the statement; that before it ends with a jump, which went another way.
    assert executions(line, {0x4210: 5, 0x41F0: 5}) == 5


# select_idle_sibling() of Linux 6.12 by gcc 12.2 (shortened): line 8001 is a call that is inlined.
# Its own row is of a jump on the path of asymmetric CPUs, which no guest has.
CALLED_ROWS = """\
CU: ../kernel/sched/fair.c:
File name                            Line number    Starting address    View    Stmt
fair.c                                      8000              0x69c0               x

../arch/x86/include/asm/bitops.h:[++]
bitops.h                                     227              0x69fb       2

../kernel/sched/fair.c:
fair.c                                      8000              0x6a0a
fair.c                                      8002              0x6a10               x
fair.c                                      8001              0x6d52
fair.c                                         -              0x6d60
"""
CALLED = """\

Disassembly of section .text:

00000000000069c0 <sibling>:
sibling():
/linux/build-0/../kernel/sched/fair.c:8000
    69c0:\tcall   0 <idle>
test_bit():
/linux/build-0/../arch/x86/include/asm/bitops.h:227
inlined by /linux/build-0/../kernel/sched/fair.c:8001 (sibling)
    69fb:\tmov    0x3d8(%r14),%rax
inlined by /linux/build-0/../kernel/sched/fair.c:8001 (sibling)
    6a06:\tbt     %rdx,(%rax)
sibling():
/linux/build-0/../kernel/sched/fair.c:8000
    6a0a:\tjae    606c <sibling+0x35c>
/linux/build-0/../kernel/sched/fair.c:8002
    6a10:\tnopl   0x0(%rax,%rax,1)
/linux/build-0/../kernel/sched/fair.c:8001
    6d52:\tcmp    %rax,%rdx
    6d55:\tjae    606c <sibling+0x35c>
"""


def test_a_line_that_is_an_inlined_call_runs_with_the_function() -> None:
    rows = parse_rows(CALLED_ROWS, f"{TREE}/build-0", TREE)
    line = Code(rows, parse_instructions(CALLED, TREE), ()).line((FILE, 8001))
    assert line is not None
    assert executions(line, {0x69FB: 9, 0x6A06: 9, 0x6A0A: 9}) == 9
    assert executions(line, {0x69C0: 9, 0x69FB: 9}) == 0, "the load may be moved before the test"
    assert executions(line, {0x6D55: 2}) == 2


# Two functions that are inlined into a third one and end alike: gcc keeps one store for both
# (0x20, that of line 10), and leaves a jump of line 5 (0x30).
MERGED_ROWS = """\
CU: ../kernel/sched/fair.c:
File name                            Line number    Starting address    View    Stmt
fair.c                                        10  0x20               x
fair.c                                         5  0x20       1       x
fair.c                                         5  0x30               x
fair.c                                         -  0x38
"""
MERGED_LISTING = """\

Disassembly of section .text:

0000000000000010 <outer>:
outer():
/linux/build-0/../kernel/sched/fair.c:20
      10:\tjne    30 <outer+0x20>
second():
/linux/build-0/../kernel/sched/fair.c:10
inlined by /linux/build-0/../kernel/sched/fair.c:22 (outer)
      20:\tmov    %rax,(%rdi)
outer():
/linux/build-0/../kernel/sched/fair.c:24
      28:\tret
first():
/linux/build-0/../kernel/sched/fair.c:5
inlined by /linux/build-0/../kernel/sched/fair.c:21 (outer)
      30:\tjmp    20 <outer+0x10>
"""


def test_a_statement_in_the_code_of_another_function_is_shared() -> None:
    rows = parse_rows(MERGED_ROWS, f"{TREE}/build-0", TREE)
    merged = Code(rows, parse_instructions(MERGED_LISTING, TREE), ())
    first, second = merged.line((FILE, 5)), merged.line((FILE, 10))
    assert first is not None
    assert second is not None
    assert (first.parts, first.shared) == ((((0x30,),),), (0x20,))
    assert (second.parts, second.shared) == ((((0x20,),),), ())
    assert set(first.addresses) == {0x20, 0x30}
    moved = [code().line((FILE, line)) for line in (767, 769, 770, 772, 773, 776)]
    assert {line.shared for line in moved if line} == {()}, "within its own function"


def test_a_store_to_which_other_paths_go_is_shared() -> None:
    """Line 5 is left as a store at 0x20 and, as a beginning, at the jump of line 6 to it."""
    rows = parse_rows(MERGED_ROWS, f"{TREE}/build-0", TREE)
    listing = MERGED_LISTING.replace("fair.c:5", "fair.c:6").replace("fair.c:10", "fair.c:5")
    jumped = Code(rows[2:], parse_instructions(listing.replace(":22", ":21"), TREE), ())
    line = jumped.line((FILE, 5))
    assert line is not None
    assert (line.parts, line.shared) == ((((0x30,),),), (0x20,))


@pytest.mark.parametrize(
    ("text", "is_store"),
    [
        ("mov    %r10,0x10(%rcx)", True), ("movl   $0x0,0x7ef5(%rip)        # 0 <x>", True),
        ("mov    %rax,(%rdi,%rcx,8)", True), ("incl   0x4(%rdi)", True),
        ("lock xadd %eax,(%rdx)", True), ("mov    0x10(%rcx),%r10", False),
        ("cmp    %rax,0x8(%rdi)", False), ("call   *0x8(%rax)", False), ("add    %r8,%rcx", False),
    ],
)  # fmt: skip
def test_what_writes_memory(text: str, is_store: bool) -> None:
    assert bool(_STORE.match(text)) is is_store


def flow(texts: dict[int, str], line: dict[int, int], starts: tuple[int, ...]) -> Code:
    """Return code of one function: texts and lines by address, and where statements begin."""
    instructions = [
        Instruction(at, text, "wake.cold" if at >= 0x1000 else "wake", ((FILE, line.get(at, 1)),))
        for at, text in texts.items()
    ]
    rows = [Row(at, FILE, line.get(at, 1), True, is_empty=False) for at in starts]
    return Code(rows, instructions, ())


# record_wakee() of Linux 6.12 by gcc 12.2 (shortened): the second condition is there twice, for
# both ways of the first one.
TWICE = {
    0x10: "js     30 <wake+0x20>",
    0x12: "cmp    %rbx,(%rax)", 0x14: "je     20 <wake+0x10>",
    0x16: "mov    %rbx,(%rax)",
    0x20: "ret",
    0x30: "shr    (%rdx)", 0x32: "cmp    %rbx,(%rax)", 0x34: "jne    16 <wake+0x6>",
    0x36: "jmp    20 <wake+0x10>",
}  # fmt: skip
TEST = dict.fromkeys((0x12, 0x14, 0x32, 0x34), 2)


def test_duplicates_on_different_paths_add_up() -> None:
    counts = dict.fromkeys((0x12, 0x14), 31994) | dict.fromkeys((0x32, 0x34), 1571)
    line = line_code((FILE, 2), [flow(TWICE, TEST, (0x12, 0x32))])
    assert line is not None
    assert executions(line, counts) == 31994 + 1571
    assert executions(line, {0x12: 4, 0x14: 4}) == 4
    cold = {
        at + 0x1000 * (at >= 0x30): text.replace(" 30 ", " 1030 ") for at, text in TWICE.items()
    }
    far = dict.fromkeys((0x12, 0x14, 0x1032, 0x1034), 2)
    line = flow(cold, far, (0x12, 0x1032)).line((FILE, 2))
    assert line is not None
    assert executions(line, {0x12: 5, 0x1032: 2}) == 7


def test_a_jump_or_store_on_a_path_without_a_statement_adds_up() -> None:
    """What else is on such a path may have been moved there."""
    line = flow(TWICE, TEST, (0x12,)).line((FILE, 2))
    assert line is not None
    assert line.parts == (((0x34,), (0x12,)),)
    assert executions(line, {0x12: 5, 0x32: 2, 0x34: 2}) == 7


def test_what_follows_on_a_path_does_not_add_up() -> None:
    line = flow(TWICE, dict.fromkeys((0x10, 0x16, 0x32), 2), (0x10, 0x16, 0x32)).line((FILE, 2))
    assert line is not None
    assert executions(line, {0x10: 9, 0x32: 3, 0x16: 8}) == 9
    loop = {0x10: "test   %eax,%eax", 0x12: "call   50", 0x14: "jne    12 <wake+0x2>", 0x16: "ret"}
    line = flow(loop, dict.fromkeys((0x10, 0x14), 2), (0x10, 0x14)).line((FILE, 2))
    assert line is not None
    assert executions(line, {0x10: 1, 0x14: 6}) == 6


def test_a_jump_to_where_memory_says_leaves_the_order_unknown() -> None:
    texts = TWICE | {0x36: "jmp    *0x0(,%rax,8)"}
    line = flow(texts, TEST, (0x12, 0x32)).line((FILE, 2))
    assert line is not None
    assert executions(line, {0x12: 5, 0x32: 2}) == 5


def test_points_that_are_apart_add_up_however_deep_they_are() -> None:
    parts = (((1,), (2,), (3,)),)
    line = LineCode(parts, (), (), apart=frozenset({(1, 3), (2, 3)}))
    assert executions(line, {1: 1, 2: 100, 3: 100}) == 200
    assert executions(line, {1: 5, 2: 7, 3: 3}) == 10


@pytest.mark.parametrize("seed", range(60))
def test_a_line_has_no_more_executions_than_passes(seed: int) -> None:
    """On paths without a loop: at least those of each point, and all if no pass has two points."""
    rng = random.Random(seed)
    size = rng.randint(6, 40)
    texts, ways = dict[int, str](), dict[int, list[int]]()
    for at in range(1, size):
        kind, target = rng.choice(("test", "test", "jne", "jmp")), rng.randint(at + 1, size)
        texts[at] = "test   %eax,%eax" if kind == "test" else f"{kind}    {target:x} <wake>"
        ways[at] = {"test": [at + 1], "jmp": [target], "jne": [at + 1, target]}[kind]
    texts[size] = "ret"
    points = rng.sample(range(1, size + 1), rng.randint(2, 5))
    line = flow(texts, dict.fromkeys(points, 2), tuple(points)).line((FILE, 2))
    counts, passes, pairs = Counter[int](), 0, set[tuple[int, int]]()
    for _ in range(300):
        path = [1]
        while path[-1] != size:
            path.append(rng.choice(ways[path[-1]]))
        counts.update(path)
        passes += any(point in path for point in points)
        pairs |= set(combinations([at for at in path if at in points], 2))
    assert line is not None
    count = executions(line, counts)
    assert max(counts[point] for point in points) <= count <= passes
    assert pairs or count == passes
    assert count == max(
        sum(counts[at] for at in chosen)
        for size in range(1, len(points) + 1)
        for chosen in combinations([at for part in line.parts for at, *_ in part], size)
        if all(pair in line.apart for pair in combinations(chosen, 2))
    )
