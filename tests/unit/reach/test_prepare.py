"""Objects compiled again with gcc and binutils of this host, and the change that a patch makes."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from numalab.artifact.builder import Work
from numalab.kernel.kernel_artifact import BuiltKernel
from numalab.kernel.kernel_build import BuildFolder
from numalab.kernel.kernel_specs import KernelSpec
from numalab.process import run
from numalab.progress import no_progress
from numalab.reach import kernel_code_artifact, prepare
from numalab.reach.counts import Counts, SiteCount
from numalab.reach.fingerprint import (
    Fingerprint,
    changed_data,
    changed_functions,
    changed_variables,
)
from numalab.reach.kernel_code_artifact import KernelCode
from numalab.reach.line_table import LineTable, TableLine, run_reach
from numalab.reach.merge import merged
from numalab.reach.model import CodeChange, LineState, Reached
from numalab.source.changes import Change, ChangedLine, FileChange

HEADER = """\
#define LIMIT 3
static inline int twice(int value)
{
	return value * value + 2;
}
"""
SOURCE = """\
#include "a.h"
extern void act(int);
unsigned long jiffies_64;
/* Decides. */
int decide(int a, int b)
{
	if (a > LIMIT)
		act(a);
#ifdef CONFIG_EXTRA
	act(b);
#endif
	if (b) {
		act(twice(b));
		return 1;
	}
	return twice(a);
}
int start = 5;
"""
BASE = 0xFFFFFFFF81000000


@dataclass(frozen=True)
class Tree:
    """A tree with one object, built as kbuild does it, and its linked kernel."""

    path: Path
    flags: str = ""

    @property
    def out(self) -> Path:
        return self.path / "build-0"

    def build(self) -> Path:
        """Compile the object, and link it at BASE; return the kernel."""
        name = "kernel/a.o"
        (self.out / "kernel").mkdir(parents=True, exist_ok=True)
        (self.out / ".config").write_text("CONFIG_DEBUG_BUGVERBOSE=y\n", encoding="utf-8")
        command = (
            f"gcc -Wp,-MMD,kernel/.a.o.d -O2 -fno-pic -mcmodel=kernel {self.flags} -c -o {name}"
            " ../kernel/a.c ; true"
        )
        deps = "deps_kernel/a.o := \\\n  ../kernel/a.c \\\n  ../kernel/a.h \\\n"
        text = f"savedcmd_{name} := {command.replace('$', '$$')}\n\n{deps}\n"
        (self.out / "kernel/.a.o.cmd").write_text(text, encoding="utf-8")
        run(["sh", "-c", command], cwd=self.out)
        kernel = self.out / "vmlinux"
        words = ["--unresolved-symbols=ignore-all", "--noinhibit-exec", "-e", "0"]
        run(["ld", *words, f"-Ttext={BASE:#x}", "-o", kernel, self.out / name], check=False)
        return kernel


def code_of(
    folder: Path, source: str, header: str, flags: str = "", *, absent: str = ""
) -> KernelCode:
    """Return the code of both files; `absent` is not in kbuild's list before the object is made."""
    (folder / "kernel").mkdir(parents=True)
    (folder / "kernel/a.c").write_text(source, encoding="utf-8")
    (folder / "kernel/a.h").write_text(header, encoding="utf-8")
    symbols = Tree(folder, flags).build()
    command = folder / "build-0/kernel/.a.o.cmd"
    current = command.read_text(encoding="utf-8")
    command.write_text(current.replace(absent or "\0", ""), encoding="utf-8")

    def make(_targets: Sequence[str]) -> None:
        command.write_text(current, encoding="utf-8")

    @contextmanager
    def opened(_spec: KernelSpec, _kernel: BuiltKernel, work: Work) -> Iterator[BuildFolder]:
        yield BuildFolder(folder, folder / "build-0", make)

    work = Work("test", folder / "entry", folder / "log", no_progress)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernel_code_artifact, "opened_build", opened)
        spec = cast(KernelSpec, None)
        kernel = cast(BuiltKernel, SimpleNamespace(symbols=symbols))
        sources = ["kernel/a.c", "kernel/a.h"]
        kernel_code_artifact._make(spec, kernel, sources, [], work)
    code = kernel_code_artifact._read(work.entry)
    assert code is not None
    return code


def changes(before: tuple[str, str], after: tuple[str, str]) -> Sequence[FileChange]:
    """Return the changes of both files, which have as many lines before as after."""
    files = []
    for name, old, new in zip(("kernel/a.c", "kernel/a.h"), before, after, strict=True):
        pairs = zip(old.splitlines(), new.splitlines(), strict=True)
        parts = [
            Change(at, at, (ChangedLine(at, left),), (ChangedLine(at, right),))
            for at, (left, right) in enumerate(pairs, 1)
            if left != right
        ]
        if parts:
            files.append(FileChange(name, name, old, new, tuple(parts)))
    return files


def prepared(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    after: tuple[str, str],
    before: tuple[str, str] = (SOURCE, HEADER),
    *,
    whole_functions: bool = False,
    other: str = "",
    same_image: bool = False,
) -> tuple[CodeChange, LineTable]:
    """Return the change between two versions, and the patched kernel's lines.

    With `other`, that file changes as well.
    """
    codes = {"base": code_of(tmp_path / "base", *before), "new": code_of(tmp_path / "new", *after)}
    config = tmp_path / "config"
    config.write_text("CONFIG_HZ=1000\n", encoding="utf-8")

    def built(digest: str) -> tuple[KernelSpec, BuiltKernel]:
        image = "" if same_image else digest
        kernel = BuiltKernel(digest, Path(), "6.12", config, "", digest, (), "", 0, "", image)
        return KernelSpec(digest, "", "source", (), ()), kernel

    monkeypatch.setattr(prepare, "kernel_code", lambda spec, *_: codes[spec.name])
    plan = prepare.prepare_reach(
        "x",
        [*changes(before, after), *([FileChange(other, other, "a\n", "b\n", ())] if other else [])],
        built("base"),
        built("new"),
        whole_functions=whole_functions,
    )
    assert {table.hz for table in plan.tables.values()} == {1000}
    return plan.code, plan.tables["new"]


def test_lines_have_the_addresses_of_the_linked_kernel(tmp_path: Path) -> None:
    code = code_of(tmp_path / "tree", SOURCE, HEADER)
    (item,) = code.objects
    assert (item.name, item.reason, dict(item.bases)) == ("kernel/a.o", "", {".text": BASE})
    first = item.code.line(("kernel/a.c", 6))
    assert first is not None
    assert first.parts == (((BASE,),),)
    twice = item.code.line(("kernel/a.h", 4))
    assert twice is not None
    assert len(twice.parts) == 2  # two inlined copies
    assert twice.functions == ("decide",)
    (jump,) = item.code.line(("kernel/a.c", 7)).jumps  # type: ignore[union-attr]
    assert {jump.next_line, jump.target_line} == {8, 12}
    assert code.jiffies


def test_the_lists_of_kbuild_are_those_of_the_objects_that_were_made(tmp_path: Path) -> None:
    """Another kernel, without the header, may have been built in the folder in between."""
    code = code_of(tmp_path / "tree", SOURCE, HEADER, absent="  ../kernel/a.h \\\n")
    assert ([item.name for item in code.objects], code.outside) == (["kernel/a.o"], {})


def test_an_object_that_g_changes_is_not_trusted(tmp_path: Path) -> None:
    code = code_of(tmp_path / "tree", SOURCE, HEADER, flags="'-DLIMIT_=1'")
    assert code.objects[0].reason == ""
    other = code_of(tmp_path / "other", SOURCE, HEADER, flags="$(test -e vmlinux && echo -O0)")
    assert other.objects[0].reason.startswith("gcc -g makes other code")


def test_the_lines_of_an_object_that_cannot_be_linked_alone_are_unknown(tmp_path: Path) -> None:
    """The vDSO has symbols that only its own linker script defines."""
    hidden = '#ifdef HIDDEN\n__attribute__((visibility("hidden")))\n#endif\nextern int page;'
    source = SOURCE.replace("act(twice(b));", "act(twice(b) + page);")
    source = source.replace("/* Decides. */", hidden)
    flags = "$(test -e vmlinux && echo -DHIDDEN)"
    (item,) = code_of(tmp_path / "tree", source, HEADER, flags=flags).objects
    assert item.reason == "it cannot be linked alone"
    assert "decide" in item.fingerprint.functions


def test_a_changed_line_with_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    after = SOURCE.replace("if (b) {", "if (b > 9) {")
    change, table = prepared(tmp_path, monkeypatch, (after, HEADER))
    assert change is CodeChange.LINES
    states = {line.number: line.state for line in table.lines}
    assert list(states) == [9, 10, 11, 12, 13, 14, 15]
    assert states[12] is LineState.NOT_REACHED
    assert states[10] is LineState.COMPILED_OUT
    assert table.functions == ()


def test_a_line_is_in_its_function_of_the_source_and_where_that_is_inlined(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = HEADER.split("\n")[3]
    after = HEADER.replace(line, line.replace("2", "3"))
    assert after != HEADER
    _, table = prepared(tmp_path, monkeypatch, (SOURCE, after))
    (added,) = [line for line in table.lines if line.kind == "added"]
    assert added.functions == ("twice", "decide")


def test_the_other_lines_of_a_changed_function(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    after = SOURCE.replace("if (b) {", "if (b > 9) {")
    _, table = prepared(tmp_path, monkeypatch, (after, HEADER), whole_functions=True)
    kinds = {line.number: line.kind for line in table.lines}
    assert list(kinds) == list(range(5, 18)), "the function without the variable below it"
    assert [number for number, kind in kinds.items() if kind == "added"] == [12]
    assert {kinds[number] for number in (9, 10, 11, 13, 14, 15)} == {"context"}
    assert {kinds[number] for number in (5, 6, 7, 8, 16, 17)} == {"function"}
    ways = {line for jump in table.jumps for line in (jump.next_line, jump.target_line)}
    assert 8 in ways, "a branch far from the change"


def test_tables_of_other_lines_have_another_digest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    after = SOURCE.replace("if (b) {", "if (b > 9) {")
    _, near = prepared(tmp_path / "near", monkeypatch, (after, HEADER))
    _, whole = prepared(tmp_path / "whole", monkeypatch, (after, HEADER), whole_functions=True)
    _, again = prepared(tmp_path / "again", monkeypatch, (after, HEADER), whole_functions=True)
    assert near.digest != whole.digest == again.digest


def test_a_changed_comment_is_no_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    after = SOURCE.replace("Decides.", "Decides it.")
    change, table = prepared(tmp_path, monkeypatch, (after, HEADER))
    assert change is CodeChange.NONE
    assert [line.reason for line in table.lines if line.kind == "added"] == ["comment"]


@pytest.mark.parametrize("name", ["kernel/sched/Makefile", "arch/x86/kernel/vmlinux.lds.S.in"])
def test_a_file_that_is_no_c_code_may_change_any_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    same = (SOURCE, HEADER)
    change, table = prepared(tmp_path / "a", monkeypatch, same, other=name)
    assert (change, table.data) == (CodeChange.FUNCTIONS, True)
    assert table.notes[-1] == f"{name} may change code anywhere, which is not counted"
    assert prepared(tmp_path / "b", monkeypatch, same, other="init/Kconfig")[0] is CodeChange.NONE
    assert prepared(tmp_path / "c", monkeypatch, same, other="a.rst")[0] is CodeChange.NONE


def test_a_changed_macro_changes_its_functions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    after = HEADER.replace("LIMIT 3", "LIMIT 4")
    change, table = prepared(tmp_path, monkeypatch, (SOURCE, after))
    assert change is CodeChange.FUNCTIONS
    assert [(item.name, item.address) for item in table.functions] == [("decide", BASE)]


@pytest.mark.parametrize(
    ("old", "new", "names"),
    [
        ("LIMIT 3", "LIMIT 4", ["decide"]),
        ("int member", "long member", ["decide"]),
        ("Decides.", "Decides it.", []),
    ],
)
def test_a_changed_line_without_code_may_change_the_function_of_another_changed_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, old: str, new: str, names: list[str]
) -> None:
    before = SOURCE, f"{HEADER}struct pair {{\n\tint member;\n}};\n"
    source, header = (text.replace(old, new) for text in before)
    after = source.replace("act(twice(b));", "act(twice(b) + 1);"), header
    change, table = prepared(tmp_path, monkeypatch, after, before)
    assert change is CodeChange.LINES
    assert [item.name for item in table.functions] == names
    (line,) = [line for line in table.lines if line.is_changed and line.code]
    counts = {item.address: SiteCount((3,), 0) for item in table.functions}
    reach = merged([("", run_reach(table, Counts(counts, {})))])
    assert line.functions == ("decide",)
    assert reach.verdict is (Reached.PARTLY if names else Reached.NOT)


MADE = """\
#include "a.h"
#define CALL_DEFINE(name, type, argument) int do_##name(type argument)
#define MAKE_EVENT(name, print, field) \\
	int probe_##name(int value) { return value field; }
extern void act(int), use(struct pair *);
unsigned long jiffies_64;
CALL_DEFINE(first, int, a)
{
	if (a > LIMIT)
		act(a);
	return a;
}
MAKE_EVENT(told,
	TP_printk(1, 2),
	+ 5
)
int second(int a)
{
	int b;
	struct pair pair = {
		.left = 1,
		.right = 2,
	};
	b = a + 7;
	use(&pair);
	return b;
}
"""
PAIR = f"{HEADER}struct pair {{\n\tint left, right;\n}};\n"


@pytest.mark.parametrize(
    ("old", "new", "names", "reason"),
    [
        (".right = 2", ".right = 3", [], "part of the statement in line 20"),
        ("int b;", "char b;", ["second"], "no instructions of its own"),
        ("+ 5", "+ 6", ["probe_told"], "its code belongs to line 13, which calls the macro"),
    ],
)
def test_a_changed_line_changes_only_functions_with_code_of_its_own(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    old: str,
    new: str,
    names: list[str],
    reason: str,
) -> None:
    """Another function with a changed line differs by that one alone."""
    after = MADE.replace(old, new).replace("act(a);", "act(a + 1);")
    _, table = prepared(tmp_path, monkeypatch, (after, PAIR), (MADE, PAIR))
    assert [item.name for item in table.functions] == names
    lines = {line.text.strip(): line for line in table.lines if line.is_changed}
    assert lines["act(a + 1);"].functions == ("CALL_DEFINE(first)", "do_first")
    (other,) = [line for text, line in lines.items() if new in text]
    assert other.reason == reason
    assert (other.state is LineState.NOT_REACHED) is (not names)


def test_objects_are_chosen_by_the_names_of_functions_and_events(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    text = "TRACE_EVENT(told,\n\tTP_ARGS(a)\n);\nstatic inline int f(void)\n{\n\treturn 1;\n}\n"
    lines = [ChangedLine(at, text.split("\n")[at - 1]) for at in (2, 6)]
    parts = tuple(Change(line.number, line.number, (), (line,)) for line in lines)
    change = FileChange("a.h", "a.h", text, text, parts)
    chosen: list[Sequence[str]] = []
    monkeypatch.setattr(prepare, "kernel_code", lambda _spec, _kernel, *names: chosen.extend(names))
    spec, kernel = cast(KernelSpec, None), cast(BuiltKernel, None)
    prepare.changed_code([change], prepare.PatchSide("patched", spec, kernel))
    assert chosen[:2] == [["a.h"], ["f", "told"]]


def test_a_changed_prototype_changes_no_other_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, header = (f"{HEADER}int {name}(int value);\n" for name in ("old", "new"))
    after = SOURCE.replace("act(twice(b));", "act(twice(b) + 1);"), header
    _, table = prepared(tmp_path, monkeypatch, after, (SOURCE, before))
    assert not table.functions


def test_a_changed_initial_value_is_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    change, _ = prepared(tmp_path, monkeypatch, (SOURCE.replace("= 5", "= 6"), HEADER))
    assert change is CodeChange.DATA


STATIC = """\
#include "a.h"
static int first(int a) { return a * 3; }
static int second(int a) { return a - 7; }
static int (*table[])(int) = { first };
int (*chosen)(int) = second;
extern void use(void *);
extern void print(const char *);
void tell(void) { use(table); print("one"); print("two"); }
unsigned long jiffies_64;
"""


def test_other_static_functions_in_a_table_are_other_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    after = STATIC.replace("{ first }", "{ second }").replace("= second", "= first")
    change, _ = prepared(tmp_path, monkeypatch, (after, HEADER), (STATIC, HEADER))
    assert change is CodeChange.DATA
    moved = STATIC.replace("extern", "static int moves(int a) { return a; }\nextern", 1)
    moved = moved.replace("void tell", "int (*more)(int) = moves;\nvoid tell")
    same = [code_of(tmp_path / name, text, HEADER) for name, text in (("a", STATIC), ("b", moved))]
    before, later = (code.objects[0].fingerprint for code in same)
    assert changed_variables(before, later) == ()


def test_other_strings_are_other_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    after = STATIC.replace('"one"', '"2"').replace('"two"', '"one"').replace('"2"', '"two"')
    change, _ = prepared(tmp_path, monkeypatch, (after, HEADER), (STATIC, HEADER))
    assert change is CodeChange.LINES


def test_objects_that_were_not_compared_may_differ(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = code_of
    monkeypatch.setitem(globals(), "code_of", lambda *words: replace(read(*words), left_out=3))
    change, table = prepared(tmp_path, monkeypatch, (SOURCE.replace("Decides.", "It."), HEADER))
    assert (change, table.data) == (CodeChange.FUNCTIONS, True), "so all loads are compared"
    assert any("3 more objects" in note for note in table.notes)
    after = SOURCE.replace("if (b) {", "if (b > 9) {")
    change, table = prepared(tmp_path / "line", monkeypatch, (after, HEADER))
    reach = merged([("", run_reach(table, Counts({}, {})))])
    assert (change, reach.verdict) == (CodeChange.LINES, Reached.UNKNOWN)


GUARDED = """\
#include "a.h"
extern void act(int);
unsigned long jiffies_64;
int guarded(int a, int b)
{
	if (a > 3 &&
		b)
		return 1;
	act(a);
	if (b < 7)
		return 0;
	act(b);
	return 1;
}
"""


@pytest.mark.parametrize("behind", ["act(a);", 'asm("" ::: "memory");\n\tact(a);'])
def test_the_body_of_a_condition_is_counted_by_its_jumps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, behind: str
) -> None:
    """gcc makes one block of both `return 0`: its count would be that of both.

    The way around may lead to the second statement behind it: the first has no instruction.
    """
    before = GUARDED.replace("act(a);", behind)
    after = before.replace("return 1;", "return 0;", 1)
    change, table = prepared(tmp_path, monkeypatch, (after, HEADER), (before, HEADER))
    assert change is CodeChange.LINES
    (body,) = [line for line in table.lines if line.is_changed]
    assert body.state is LineState.NOT_REACHED and body.functions == ("guarded",)
    ((jump, taken),) = body.ways
    assert jump.address in set(table.addresses)
    assert table.functions == (), "the function has a changed line"
    for count in (0, 7):
        ways = {jump.address: (count, 90) if taken else (90, count)}
        lines = run_reach(table, Counts({}, ways)).lines
        assert [line.executions for line in lines if line.is_changed] == [count]
    other = GUARDED.replace("return 0;\n\tact(b);", "b = 0;\n\tact(b);")
    _, plain = prepared(tmp_path / "other", monkeypatch, (other, HEADER), (GUARDED, HEADER))
    assert not any(line.ways for line in plain.lines if line.is_changed)


OPERANDS = """\
#include "a.h"
struct task { int node, seq, pid; };
extern _Bool match(int);
unsigned long jiffies_64;
static inline int pid_of(int last) { return (last >> 8) & 255; }
static inline _Bool unset(int last) { return pid_of(last) == 255; }
_Bool operands(struct task *p, int last)
{
	if ((p->node == -1 || p->seq <= 4) &&
		(unset(last) || (p->pid & 255) == (last & 255)))
		return 1;
	if (match(p->seq) ||
		match(p->pid))
		return 1;
	return match(last) * 2;
}
"""


def test_an_operand_that_gcc_counts_for_the_line_before_may_have_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """gcc gives the comparison of unset() the line of the first half of its condition."""
    files = (OPERANDS, HEADER), (OPERANDS.replace("* 2", "* 4"), HEADER)
    _, table = prepared(tmp_path, monkeypatch, *files, whole_functions=True)
    codes = {line.text.strip(): line.code for line in table.lines}

    def state(text: str, ran: str) -> LineState:
        code = codes[ran]
        assert code
        counts = {jump.address: SiteCount((3,), 0) for jump in code.jumps}
        lines = run_reach(table, Counts(counts, {})).lines
        return next(line.state for line in lines if line.text.strip().startswith(text))

    first, second = "if ((p->node == -1 || p->seq <= 4) &&", "if (match(p->seq) ||"
    own = next(text for text in codes if text.startswith("(unset"))
    assert state("(unset", ran=first) is LineState.UNKNOWN
    assert state("(unset", ran=own) is LineState.REACHED
    assert state("(unset", ran=second) is LineState.NOT_REACHED
    assert state("match(p->pid))", ran=second) is LineState.NOT_REACHED, "it has one operand"


MERGED = """\
#include "a.h"
extern int act(int);
unsigned long jiffies_64;
static inline __attribute__((always_inline)) void inner(int a, int *p)
{
	if (a < 3)
		return;
	if (a & 64) {
		*p += 100;
		return;
	}
	act(a);
}
int outer(int a,
		int *p)
{
	static int turn = 0;
	int b, c;

	if (turn++ & 1)
		return -11;
	b = 4;
	c = act(a);
	inner(c, p);
	return c + b;
}
"""


def merged_lines(folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, TableLine]:
    """Return the lines of both functions; of equal ones, the last."""
    before = MERGED.replace("a < 3", "a < 4").replace("turn++ & 1", "turn++ & 3")
    files = (MERGED, HEADER), (before, HEADER)
    _, table = prepared(folder, monkeypatch, *files, whole_functions=True)
    return {line.text.strip(): line for line in table.lines}


def test_a_line_that_leaves_runs_as_often_as_the_statement_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """gcc makes one end of all `return` of an inlined function, which ran for the others."""
    lines = merged_lines(tmp_path, monkeypatch)
    store, end = lines["*p += 100;"], lines["return;"]
    assert store.code and end.code
    assert end.code.parts == store.code.parts


def test_lines_without_instructions_do_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """gcc marks declarations at the instruction of the next statement."""
    lines = merged_lines(tmp_path, monkeypatch)
    silent = {text for text, line in lines.items() if line.state is LineState.NO_CODE}
    assert silent >= {"int *p)", "{", "static int turn = 0;", "int b, c;"}
    assert lines["int outer(int a,"].functions == ("outer",)


def test_a_line_that_the_configuration_leaves_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    after = SOURCE.replace("act(b)", "act(b + 1)")
    change, table = prepared(tmp_path, monkeypatch, (after, HEADER))
    assert change is CodeChange.NONE
    assert [(line.state, line.reason) for line in table.lines if line.kind == "added"] == [
        (LineState.COMPILED_OUT, "CONFIG_EXTRA is not set")
    ]


TABLES = """\
#include "a.h"
unsigned long jiffies_64;
static char old_key[4], new_key[4];
void *keys[] = {{ old_key, new_key }};
{more}
int first(int a) {{ return a * 3; }}
int tell(int a)
{{
    asm("1: ud2\\n"
        ".pushsection __bug_table, \\"aw\\"\\n"
        ".long 1b - .\\n .long 3f - .\\n .word {line}, {flags}\\n .popsection\\n"
        ".pushsection .rodata.str1.1, \\"aMS\\", @progbits, 1\\n 3: .string \\"a.c\\"\\n"
        ".popsection");
    asm("1: nop\\n 2:\\n"
        ".pushsection .altinstructions, \\"a\\"\\n"
        ".long 1b - .\\n .long 3f - .\\n .long {feature}\\n .byte 2b - 1b, 4f - 3f\\n"
        ".popsection\\n"
        ".pushsection .altinstr_replacement, \\"ax\\"\\n 3: ret\\n 4: .popsection");
    asm("1: mov %0, %0\\n 2:\\n"
        ".pushsection __ex_table, \\"a\\"\\n"
        ".long 1b - .\\n .long 2b - .\\n .long {kind}\\n .popsection" : "+r"(a));
    asm goto("1: nop\\n"
         ".pushsection __jump_table, \\"aw\\"\\n"
         ".long 1b - ., %l[out] - .\\n .quad %c0 + {branch} - .\\n .popsection"
         :: "i"({key}) :: out);
    return 7;
out:
    return a;
}}
"""
FIELDS = {"line": 90, "flags": 3, "feature": 40, "kind": 3, "key": "old_key", "branch": 0}


def fields_of(folder: Path, fields: dict[str, str | int], more: str = "") -> Fingerprint:
    source = TABLES.format(more=more, **(FIELDS | fields))
    return code_of(folder, source, HEADER).objects[0].fingerprint


@pytest.mark.parametrize(
    "fields", [{"flags": 2}, {"feature": 41}, {"kind": 4}, {"key": "new_key"}, {"branch": 1}]
)
def test_what_tables_say_of_an_instruction_is_code_of_its_function(
    tmp_path: Path, fields: dict[str, str | int]
) -> None:
    before, after = fields_of(tmp_path / "a", {}), fields_of(tmp_path / "b", fields)
    assert changed_functions(before, after) == ("tell",)
    assert changed_data(before, after) == ()


def test_lines_and_places_in_tables_do_not_count(tmp_path: Path) -> None:
    more = "static char top_key[64];\nvoid *top = top_key;\nint zeroth(int a) { return a / 7; }"
    before, after = fields_of(tmp_path / "a", {}), fields_of(tmp_path / "b", {"line": 93}, more)
    assert changed_functions(before, after) == ("zeroth",)
    assert set(changed_data(before, after)) <= {".bss", ".data"}


STATICS = """\
#include "a.h"
unsigned long jiffies_64;
static volatile int locked = 1, lock;
static volatile char state;
int take(int a) {{ lock = 0; state = 3; locked = a; return lock + state + locked; }}
{more}
"""


def test_places_of_static_variables_do_not_count(tmp_path: Path) -> None:
    more = "static volatile long calls, ticks = 1;\nlong ask(void) { return ++calls + ++ticks; }"
    sources = [STATICS.format(more=text) for text in ("", more)]
    sources.append(sources[0].replace("lock = 0", "locked = 0"))
    before, after, other = (
        code_of(tmp_path / str(at), source, HEADER).objects[0].fingerprint
        for at, source in enumerate(sources)
    )
    assert changed_functions(before, after) == ("ask",)
    assert changed_functions(before, other) == ("take",)


def test_equal_images_have_the_same_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So objects that were not compared, and files that are not in them, are the same, too."""
    read = code_of
    outside = {"kernel/b.h": "kernel/vmlinux.lds"}
    monkeypatch.setitem(
        globals(), "code_of", lambda *words: replace(read(*words), left_out=3, outside=outside)
    )
    after = (SOURCE, f"{HEADER[:-1]} /* more */\n")
    change, table = prepared(tmp_path, monkeypatch, after, same_image=True)
    assert change is CodeChange.NONE
    assert not any(line.functions for line in table.lines if line.is_changed)


def test_a_file_outside_of_all_objects_is_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outside = {"kernel/a.h": "kernel/vmlinux.lds"}
    empty = KernelCode((), 0, 1, outside=outside)
    monkeypatch.setitem(globals(), "code_of", lambda *_: empty)
    change, table = prepared(tmp_path, monkeypatch, (SOURCE, HEADER.replace("LIMIT 3", "LIMIT 4")))
    assert (change, table.data) == (CodeChange.FUNCTIONS, True)
    assert {(line.state, line.reason) for line in table.lines if line.is_changed} == {
        (LineState.UNKNOWN, "it is part of kernel/vmlinux.lds, not of the kernel")
    }


@pytest.mark.parametrize("same_image", [False, True])
def test_kernels_that_differ_contain_a_file_that_seems_to_be_in_no_object(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, same_image: bool
) -> None:
    empty = KernelCode((), 0, 1, outside={"kernel/a.h": ""})
    monkeypatch.setitem(globals(), "code_of", lambda *_: empty)
    after = SOURCE, HEADER.replace("LIMIT 3", "LIMIT 4")
    change, table = prepared(tmp_path, monkeypatch, after, same_image=same_image)
    (line,) = [line for line in table.lines if line.is_changed]
    if same_image:
        assert (change, line.state) == (CodeChange.NONE, LineState.COMPILED_OUT)
        assert line.reason == "no object of this configuration contains kernel/a.h"
    else:
        assert (change, line.state, table.data) == (CodeChange.FUNCTIONS, LineState.UNKNOWN, True)
        assert (
            table.notes
            == (line.reason,)
            == ("the kernels differ, although no object seems to contain kernel/a.h",)
        )


def test_objects_of_a_source(tmp_path: Path) -> None:
    """A file of the linker script or the decompressor is in no object of vmlinux."""
    tools = tmp_path / "tools/objtool"
    files = {
        "arch/x86/boot/compressed/.misc.o.cmd": ("arch/x86/boot/compressed/misc.c", "l.h"),
        "arch/x86/kernel/.vmlinux.lds.cmd": ("arch/x86/kernel/vmlinux.lds.S", "l.h", "both.h"),
        "arch/x86/realmode/.init.o.cmd": ("arch/x86/realmode/init.c",),
        "arch/x86/tools/.relocs.o.cmd": ("arch/x86/tools/relocs.c",),
        "kernel/.a.o.cmd": ("kernel/a.c", "both.h"),
        "lib/.page.o.cmd": ("lib/page.S",),
        "lib/.time.o.cmd": ("arch/x86/../../vdso/time.c", "kernel/a/../../io/wq.h"),
        "tools/objtool/.check.o.cmd": ("elf.c", f"{tools}/elf.h"),
        "tools/objtool/.elf.o.cmd": (),
    }
    for name, sources in files.items():
        path = tmp_path / "build-0" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(f"  {Path('..', source)} \\\n" for source in sources))
    folder = BuildFolder(tmp_path, tmp_path / "build-0", lambda _targets: None)
    objects = {
        "arch/x86/realmode/init.c": "arch/x86/realmode/init.o",
        "both.h": "kernel/a.o",
        "io/wq.h": "lib/time.o",
        "kernel/a.c": "kernel/a.o",
        "lib/page.S": "lib/page.o",
        "vdso/time.c": "lib/time.o",
    }
    outside = {
        "arch/x86/boot/compressed/misc.c": "arch/x86/boot/compressed/misc.o",
        "arch/x86/tools/relocs.c": "arch/x86/tools/relocs.o",
        "drivers/x.c": "",
        "l.h": "arch/x86/kernel/vmlinux.lds",
        "tools/objtool/elf.c": "tools/objtool/elf.o",
        "tools/objtool/elf.h": "tools/objtool/check.o",
        "wq.h": "",
    }
    for source, name in objects.items():
        assert kernel_code_artifact._objects(folder, [source], []) == ([name], 0, {})
    every = kernel_code_artifact._objects(folder, [*objects, *outside], [])
    assert (sorted(every[0]), *every[1:]) == (sorted({*objects.values()}), 0, outside)


def test_an_option_that_the_patch_adds_is_of_its_own_lines_only(tmp_path: Path) -> None:
    change = FileChange("init/Kconfig", "init/Kconfig", "config A\n", "config A\nconfig B\n", ())

    def kernel(config: str) -> BuiltKernel:
        path = tmp_path / str(len(config))
        path.write_text(config)
        return BuiltKernel("k", Path(), "6.12", path, "", "k", (), "", 0, "", config)

    off, own = kernel("CONFIG_A=y\n"), kernel("CONFIG_A=y\nCONFIG_B=y\n")
    assert prepare._uncounted([change], off, own) == ()
    more = kernel("CONFIG_A=y\nCONFIG_B=y\nCONFIG_C=y\n")
    assert prepare._uncounted([change], off, more)[0].startswith("init/Kconfig may change code")


@pytest.mark.parametrize(
    ("name", "is_counted"),
    [
        ("tools/testing/selftests/sched/Makefile", True),
        ("tools/testing/selftests/sched/run.sh", True),
        ("tools/perf/Build", True),
        ("tools/objtool/Makefile", False),
        ("tools/Makefile", False),
        ("arch/x86/lib/x86-opcode-map.txt", False),
        ("Documentation/scheduler/sched-ext.txt", True),
        ("samples/bpf/Makefile", True),
        ("Documentation/Makefile", True),
        ("scripts/checkpatch.pl", True),
        ("scripts/link-vmlinux.sh", False),
        (".mailmap", True),
        ("kernel/sched/.mailmap.c_shipped", False),
        ("arch/arm64/Makefile", True),
        ("arch/riscv/kernel/Makefile", True),
        ("arch/arm64/boot/dts/qcom/sm8550.dtsi", True),
        ("arch/arm64/Kconfig", True),
        ("arch/x86/Makefile", False),
        ("scripts/kernel-doc", True),
        ("scripts/decode_stacktrace.sh", True),
        ("README", True),
        ("COPYING", True),
        ("README.c_shipped", False),
    ],
)
def test_what_no_kernel_is_built_from_changes_no_code(name: str, is_counted: bool) -> None:
    before, after = (
        BuiltKernel("k", Path(), "6.12", None, "", "k", (), "", 0, "", image) for image in "ab"
    )
    change = FileChange(name, name, "", "", ())
    assert (prepare._uncounted([change], before, after) == ()) is is_counted
