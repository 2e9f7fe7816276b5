"""The verdict on a patch that changes no instruction."""

from dataclasses import replace

from numalab.kernel.kernel_specs import fragment_path, load_kernels
from numalab.patch.equal_code import word_of_equal_code
from numalab.reach.line_table import LineTable, TableLine
from numalab.reach.lines import LineCode
from numalab.reach.model import CodeChange, LineState
from numalab.reach.prepare import ReachPlan

WHY = "no object of this configuration contains kernel/sched/psi.c"


def plan(state: LineState, reason: str, code: LineCode | None = None) -> ReachPlan:
    line = TableLine("kernel/sched/psi.c", 9, "added", "x();", code, reason, state)
    table = LineTable("s", "k", "patched", CodeChange.NONE, (line,), (), 0, 250)
    return ReachPlan("s", CodeChange.NONE, {"k": table})


def test_code_that_is_not_compiled_names_other_configurations_of_the_source() -> None:
    kernels = load_kernels()
    base = kernels["debian-6.12"]
    word, remarks = word_of_equal_code(plan(LineState.COMPILED_OUT, WHY), base, ())
    assert (word, remarks[0]) == ("not compiled", WHY)
    names = remarks[-1].removeprefix("other configurations of this source for --base: ").split(", ")
    assert "debian-6.12-distribution" in names
    assert "debian-6.12" not in names
    assert "debian-6.1" not in names, "another source"
    assert not any(kernels[name].series for name in names)
    assert "CONFIG_PSI=y" in _fragments(kernels["debian-6.12-distribution"].fragments)
    assert "CONFIG_PSI=y" not in _fragments(base.fragments)
    # A line that compiles to the same code hides none that is not compiled.
    own = plan(LineState.NOT_REACHED, "", LineCode((), (), ("psi_init",))).tables["k"]
    out = plan(LineState.COMPILED_OUT, WHY).tables["k"]
    both = ReachPlan("s", CodeChange.NONE, {"k": replace(own, lines=(*own.lines, *out.lines))})
    left_out = (f"1 changed line left out: {WHY}", *remarks[1:])
    assert word_of_equal_code(both, base, ()) == ("same code", left_out)


def test_a_macro_has_no_code() -> None:
    base = load_kernels()["debian-6.12"]
    assert word_of_equal_code(plan(LineState.NO_CODE, "a macro"), base, ()) == ("no code", ())


def _fragments(names: tuple[str, ...]) -> str:
    return "".join(fragment_path(name).read_text(encoding="utf-8") for name in names)
