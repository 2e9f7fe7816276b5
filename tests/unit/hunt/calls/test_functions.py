"""Which functions are counted, and in which two kernels can be compared."""

from pathlib import Path

import pytest

from numalab.errors import HostError
from numalab.hunt.calls.benches import for_properties
from numalab.hunt.calls.functions import (
    KernelFunctions,
    comparable,
    read_code,
    read_symbols,
)
from numalab.process import run
from numalab.source.c_functions import functions_in
from numalab.source.plain_files import SourceFile

FAIR, CORE = "kernel/sched/fair.c", "kernel/sched/core.c"
SOURCE = """
#define each(x) \\
    for (x = 0; x < 3; x++)

static int pick(int cpu);

static inline int helper(int cpu)
{
    return cpu + 1;
}

SYSCALL_DEFINE1(none, int, x)
{
    return helper(x);
}

/* One of a pair. */
static struct task *pick(struct rq *rq,
             int cpu)
{
    if (cpu)
        helper(cpu);
    return NULL;
}
"""


def code(sizes: dict[str, int], fair: str = "", core: str = "") -> KernelFunctions:
    """Return the code of a kernel: functions at addresses of their own, and two files."""
    bodies = {FAIR: dict(functions_in(fair)), CORE: dict(functions_in(core))}
    return KernelFunctions(sizes, {name: 16 * n for n, name in enumerate(sizes, 1)}, 8, bodies)


def body(name: str, *calls: str) -> str:
    """Return the text of a function that calls others."""
    return f"int {name}(void)\n{{\n{''.join(f'    {call}();{chr(10)}' for call in calls)}}}\n"


def test_functions_are_those_that_a_file_defines() -> None:
    functions = dict(functions_in(SOURCE))
    assert list(functions) == ["helper", "SYSCALL_DEFINE1", "pick"]
    assert functions["pick"].startswith("static struct task *pick(struct rq *rq,")
    assert functions["pick"].endswith("return NULL;\n}")


def test_functions_near_a_change_of_code_are_not_compared() -> None:
    fair = body("changed", "called", "far_called") + body("called") + body("alone")
    core = body("far_called") + body("elsewhere")
    sizes = dict.fromkeys(("changed", "called", "alone", "far_called", "elsewhere", "not_ours"), 40)
    theirs = code(sizes, fair, core)
    assert comparable(theirs, theirs) == sorted(sizes.keys() - {"not_ours"})
    mine = code(sizes | {"changed": 44}, fair, core)
    assert comparable(mine, theirs) == ["alone", "elsewhere", "far_called"]
    gone = code({name: size for name, size in sizes.items() if name != "alone"}, fair, core)
    assert "alone" not in comparable(gone, theirs)


def test_a_block_is_counted_in_functions_of_its_size_only() -> None:
    kernel = code({"pick": 0x30, "push": 0x40})
    counted = kernel.counted(["push+0x8/0x40", "pick", "push+0x9/0x44", "pull+0x1/0x8"])
    assert counted.names == ("pick", "push+0x8/0x40")
    assert counted.addresses == (16, 32 + 8)


@pytest.mark.parametrize(
    ("file", "compared", "left_out"),
    [
        ("mm/memory.c", ["do_numa_page", "migrate_misplaced_folio"], "copy_page"),
        ("kernel/sched/core.c", ["___cond_resched", "move_queued_task"], "__cond_resched"),
    ],
)
def test_functions_that_run_whatever_the_load_is_are_not_compared(
    file: str, compared: list[str], left_out: str
) -> None:
    sizes = dict.fromkeys((*compared, left_out), 8)
    bodies = {file: dict(functions_in("".join(map(body, sizes))))}
    kernel = KernelFunctions(sizes, sizes, 8, bodies)
    assert comparable(kernel, kernel) == compared


def test_functions_near_a_change_in_another_file_of_their_object_are_not_compared() -> None:
    files = {"kernel/sched/wait.c": body("wake", "swap"), "kernel/sched/psi.c": body("swap")}
    bodies = {file: dict(functions_in(text)) for file, text in files.items()}
    codes = [
        KernelFunctions(sizes, sizes, 8, bodies)
        for sizes in ({"wake": 8, "swap": 8}, {"wake": 9, "swap": 8})
    ]
    assert comparable(codes[0], codes[0]) == ["swap", "wake"]
    assert comparable(*codes) == []


def test_symbols_are_those_of_the_linked_program(tmp_path: Path) -> None:
    source = tmp_path / "program.c"
    source.write_text(
        "int tracing_mark_write(void) { return 1; }\n"
        "__attribute__((noinline)) int twice(int x) { return x * 2; }\n"
        "int main(int argc, char **argv) { return twice(argc) + tracing_mark_write(); }\n"
    )
    program = tmp_path / "program"
    run(["gcc", "-O1", "-no-pie", "-o", program, source])
    listed = {
        words[-1]: (int(words[0], 16), int(words[1], 16))
        for line in run(["nm", "-S", program]).stdout.splitlines()
        if len(words := line.split()) == 4
    }
    symbols = read_symbols(program)
    for name in ("twice", "main"):
        assert (symbols.addresses[name], symbols.sizes[name]) == listed[name]
    assert symbols.mark == listed["tracing_mark_write"][0]
    counted = symbols.counted(["main", "twice", "absent"])
    assert dict(zip(counted.names, counted.addresses, strict=True)) == {
        name: listed[name][0] for name in ("main", "twice")
    }
    assert list(counted.addresses) == sorted(counted.addresses)
    assert counted.key != symbols.counted(["main", "twice"], judged=True).key
    text = SourceFile(body("twice"))
    read = read_code(program, lambda name: text if name == FAIR else None)
    assert list(read.bodies) == [FAIR]
    assert comparable(read, read) == ["twice"]


def test_symbols_that_cannot_be_read_are_an_error(tmp_path: Path) -> None:
    with pytest.raises(HostError, match="cannot read the symbols"):
        read_symbols(tmp_path / "absent")
    (tmp_path / "other").write_text("no program")
    assert read_symbols(tmp_path / "other").addresses == {}
    assert for_properties(None, ["lost-time"]) is None  # type: ignore[arg-type]
