"""Lines that two kernels share in functions that a patch changes; gcc compiles them here."""

from dataclasses import replace
from pathlib import Path

import pytest

from numalab.hunt.calls.functions import SOURCES
from numalab.hunt.calls.lines import SharedLine, changed_names, line_names, lines_of, shared_lines
from numalab.process import run
from numalab.reach.fingerprint import fingerprint, parse_listing
from numalab.reach.kernel_code_artifact import KernelCode, ObjectText
from numalab.source.changes import Change, ChangedLine, FileChange

SOURCE = """\
extern void act(int), wait(int);
static inline int is_far(int cpu)
{
	if (cpu > 7)
		return 1;
	act(cpu);
	return 0;
}

int pick(int cpu)
{
	wait(1);
	if (is_far(cpu))
		act(8);
	wait(2);
	return cpu;
}

int rest(int cpu)
{
	if (cpu)
		act(3);
	return 0;
}
"""
COMMENT = "\t/* Far CPUs come later. */"
PATCHED = SOURCE.replace("\tif (cpu > 7)", f"{COMMENT}\n\tif (cpu > 3)")
FILE = "kernel/sched/fair.c"
CHANGE = FileChange(
    FILE,
    FILE,
    SOURCE,
    PATCHED,
    (
        Change(
            4,
            4,
            (ChangedLine(4, "\tif (cpu > 7)"),),
            (ChangedLine(4, COMMENT), ChangedLine(5, "\tif (cpu > 3)")),
        ),
    ),
)


def compiled(folder: Path, text: str, name: str, file: str = FILE) -> KernelCode:
    source, made = folder / file, folder / f"{name}.o"
    source.parent.mkdir(parents=True, exist_ok=True)
    source.write_text(text, encoding="utf-8")
    run(["gcc", "-O2", "-g", "-c", "-fcf-protection=none", "-o", made, source])
    option = ["objdump", "--disassemble", "--line-numbers", "--inlines", "--no-show-raw-insn"]
    listing, with_places = (run([*option, *more, made]).stdout for more in ([], ["--reloc"]))
    marks = fingerprint(parse_listing(with_places), {}, "")
    item = ObjectText("sched.o", "", listing, "", {}, marks, str(folder), str(folder))
    return KernelCode((item,), 0, 0)


def shared(folder: Path, patched: str = PATCHED, file: str = FILE) -> dict[str, SharedLine]:
    after, before = (
        compiled(folder, text, name, file)
        for name, text in (("after", patched), ("before", SOURCE))
    )
    change = replace(CHANGE, old=file, new=file)
    return {line.name: line for line in shared_lines(after, before, [change], lambda _: None)}


def test_lines_are_named_by_their_function_and_words() -> None:
    names = line_names(SOURCE)
    assert names[5] == "is_far:return-1" and names[13] == "pick:if-is_far-cpu"
    assert 3 not in names, "a brace is no word"
    assert 9 not in names, "between functions"
    alike = line_names("int f(void)\n{\n\treturn 0;\n\treturn 0;\n}\n")
    assert [alike[3], alike[4]] == ["f:return-0", "f:return-0.2"]


def test_lines_of_changed_code_are_shared_wherever_they_moved(tmp_path: Path) -> None:
    lines = shared(tmp_path)
    assert {"is_far:act-cpu", "pick:act-8", "pick:wait-2"} <= lines.keys()
    assert not any(name.startswith("rest:") for name in lines), "its code is the same"
    assert not any(name.startswith("is_far:if-cpu") for name in lines), "the patch changes it"
    assert lines["pick:act-8"].place == f"{FILE}:15", "one line later than before"
    assert changed_names([CHANGE]) == {"is_far"}


def test_lines_that_a_boot_could_not_look_for_again_are_not_shared(tmp_path: Path) -> None:
    assert not shared(tmp_path, file="kernel/time/hrtimer.c")


@pytest.mark.parametrize(
    "name", ["wait", "wait_bit", "swait", "completion", "psi", "membarrier", "stop_task", "clock"]
)
def test_lines_of_every_file_of_the_scheduler_are_looked_for_again(name: str) -> None:
    assert f"kernel/sched/{name}.c" in SOURCES


def test_a_line_is_found_again_in_the_code_of_one_kernel(tmp_path: Path) -> None:
    line = shared(tmp_path)["pick:act-8"]
    code = compiled(tmp_path, SOURCE, "before")
    assert lines_of(code, {FILE: SOURCE}, ["pick:act-8", "gone:wait"]) == {
        "pick:act-8": line.theirs
    }


def test_a_line_whose_code_differs_in_shape_is_not_compared(tmp_path: Path) -> None:
    doubled = PATCHED.replace("\tif (is_far(cpu))", "\tact(9); if (is_far(cpu) && cpu != 9)")
    before = shared(tmp_path)
    after = shared(
        tmp_path, doubled.replace("\twait(2);", "\tif (cpu) wait(2); else wait(2 + cpu);")
    )
    assert "pick:wait-2" in before and "pick:wait-2" not in after
