"""Blocks that two kernels share, of objects that gcc compiles here."""

from pathlib import Path

from numalab.hunt.calls.blocks import shared_blocks
from numalab.process import run
from numalab.reach.fingerprint import fingerprint, parse_listing
from numalab.reach.kernel_code_artifact import KernelCode, ObjectText

# `pick` changes; `caller` calls it, it calls `weigh`, `outer` calls `caller`; `rest` is apart.
SOURCE = """\
extern void act(int), wait(int);
__attribute__((noinline, noclone)) static int weigh(int cpu)
{
	if (cpu > 7)
		act(cpu);
	return cpu * 3;
}

__attribute__((noinline, noclone)) static int pick(int cpu)
{
	return weigh(cpu) > %s;
}

__attribute__((noinline, noclone)) static int caller(int cpu)
{
	wait(1);
	if (pick(cpu))
		act(1);
	wait(2);
	return cpu;
}

int outer(int cpu)
{
	if (caller(cpu + 1) > 4)
		act(4);
	wait(5);
	return 0;
}

int rest(int cpu)
{
	if (cpu)
		act(3);
	wait(3);
	return 0;
}
"""


def compiled(folder: Path, limit: str, caller: str = "caller") -> KernelCode:
    source, made = folder / "sched.c", folder / f"{limit}.o"
    source.write_text((SOURCE % limit).replace("caller", caller), encoding="utf-8")
    run(["gcc", "-O2", "-g", "-c", "-fno-inline", "-fcf-protection=none", "-o", made, source])
    option = ["objdump", "--disassemble", "--line-numbers", "--inlines", "--no-show-raw-insn"]
    listing, with_places = (run([*option, *more, made]).stdout for more in ([], ["--reloc"]))
    marks = fingerprint(parse_listing(with_places), {}, "")
    return KernelCode(
        (ObjectText(f"{caller}.o", "", listing, "", {}, marks, str(folder), str(folder)),), 0, 0
    )


def functions(near: object) -> list[str]:
    assert isinstance(near, dict)
    return list(dict.fromkeys(name.partition("+")[0] for name in near))


def test_blocks_are_those_of_callers_and_callees_by_distance(tmp_path: Path) -> None:
    after, before = compiled(tmp_path, "20"), compiled(tmp_path, "30")
    near = shared_blocks(after, before)
    assert functions(near) == ["caller", "weigh", "outer", "rest"]
    lines = SOURCE.splitlines()
    texts = {
        name: {
            lines[int(place.rpartition(":")[2]) - 1].strip()
            for block, place in near.items()
            if block.startswith(f"{name}+")
        }
        for name in functions(near)
    }
    assert "act(1);" in texts["caller"] and "wait(2);" in texts["caller"]
    assert "act(cpu);" in texts["weigh"] and "act(4);" in texts["outer"]
    assert all(place.startswith("sched.c:") for place in near.values())
    assert functions(shared_blocks(after, before, most=2)) == ["caller"], "the nearest remain"


def test_objects_take_turns(tmp_path: Path) -> None:
    after, before = (
        KernelCode((*first.objects, *second.objects), 0, 0)
        for first, second in (
            (compiled(tmp_path, limit), compiled(tmp_path, limit, "beside"))
            for limit in ("20", "30")
        )
    )
    assert functions(shared_blocks(after, before, most=4)) == ["caller", "beside"]


def test_equal_objects_have_no_change_to_be_near_to(tmp_path: Path) -> None:
    code = compiled(tmp_path, "20")
    assert shared_blocks(code, code) == {}


def test_an_object_without_lines_or_of_one_kernel_only_is_left_out(tmp_path: Path) -> None:
    after, before = compiled(tmp_path, "20"), compiled(tmp_path, "30")
    (item,) = after.objects
    unknown = ObjectText(**{**vars(item), "reason": "gcc -g makes other code"})
    assert shared_blocks(KernelCode((unknown,), 0, 0), before) == {}
    assert shared_blocks(after, KernelCode((), 0, 0)) == {}
