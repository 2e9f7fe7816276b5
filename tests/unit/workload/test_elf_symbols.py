"""Variables and functions of ELF files, beside what binutils say."""

import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from numalab.process import run
from numalab.workload.elf_symbols import ElfFile, code_of, plain_name, read_elf, symbols_of

SOURCE = """
#include <pthread.h>
static long counters[4] __attribute__((aligned(64)));
char table[1 << 20] = {1};
const int limits[100] = {1};
pthread_barrier_t barrier;
int main(void) { counters[1]++; pthread_barrier_wait(&barrier); return table[3] + limits[4]; }
"""
KINDS = {
    "pie": ["-pie"],
    "plain": ["-no-pie"],
    "static": ["-static"],
    "static-pie": ["-static-pie"],
}


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("programs")
    source = folder / "program.c"
    source.write_text(SOURCE)
    for kind, flags in KINDS.items():
        run(["gcc", "-O1", *flags, "-o", folder / kind, source, "-lpthread"])
    return {kind: folder / kind for kind in KINDS}


def elf_of(path: Path) -> ElfFile:
    elf = read_elf(path.read_bytes())
    assert elf is not None
    return elf


@pytest.mark.parametrize("kind", KINDS)
def test_variables_are_those_of_nm(programs: dict[str, Path], kind: str) -> None:
    listed = run(["nm", "-S", programs[kind]]).stdout
    for name in ("counters", "table", "limits", "barrier"):
        match = re.search(rf"^(\w+) (\w+) \w {name}$", listed, re.M)
        assert match is not None
        vaddr, size = (int(text, 16) for text in match.groups())
        (variable,) = (v for v in elf_of(programs[kind]).variables if v.name == name)
        assert (variable.vaddr, variable.size) == (vaddr, size)
        last = elf_of(programs[kind]).variables_within(vaddr + size - 1, vaddr + size)
        assert variable in list(last)


def test_a_barrier_is_found_by_its_code(programs: dict[str, Path]) -> None:
    data = programs["static"].read_bytes()
    vaddr, code = code_of(data, {"pthread_barrier_wait"}, 24)["pthread_barrier_wait"]
    listed = run(
        ["objdump", "-d", f"--start-address={vaddr}", f"--stop-address={vaddr + 24}",
         "--insn-width=16", programs["static"]]
    ).stdout  # fmt: skip
    shown = "".join(re.findall(r"^ +\w+:\t((?:[0-9a-f]{2} )+)", listed, re.M)).replace(" ", "")
    assert shown.startswith(code.hex()[:16])
    assert symbols_of(data, {"pthread_barrier_wait"})["pthread_barrier_wait"].vaddr == vaddr


def test_a_page_that_is_mapped_for_two_segments_does_not_mislead(
    programs: dict[str, Path],
) -> None:
    elf, bias = elf_of(programs["pie"]), 0x5555_0000_0000
    mappings = [
        ((segment.vaddr & -4096) + bias, segment.offset & -4096) for segment in elf.segments
    ]
    relro = elf.segments[-1]
    assert elf.bias([*mappings, ((relro.vaddr & -4096) + bias, relro.offset & -4096)]) == bias
    assert elf.bias([]) is None


def test_a_stripped_program_has_segments_only(programs: dict[str, Path], tmp_path: Path) -> None:
    stripped = tmp_path / "stripped"
    run(["strip", "-o", stripped, programs["static"]])
    assert elf_of(stripped).segments
    assert elf_of(stripped).variables == ()


@pytest.mark.parametrize(
    ("name", "plain"),
    [
        ("counters", "counters"),
        ("_ZL8counters", "counters"),
        ("_ZN4pool8countersE", "pool::counters"),
        ("_ZN12_GLOBAL__N_18countersE", "(anonymous)::counters"),
        ("_ZN4prog5TABLE17h0123456789abcdefE", "prog::TABLE"),
        ("_ZN4poolIiE8countersE", "_ZN4poolIiE8countersE"),
        ("_ZL99counters", "_ZL99counters"),
        ("_ZTV4pool", "_ZTV4pool"),
    ],
)
def test_variables_of_other_languages_are_as_in_their_source(name: str, plain: str) -> None:
    assert plain_name(name) == plain


@pytest.mark.timeout(20)
@pytest.mark.parametrize("part", ["1a", "L1a", "11", "1"])
def test_a_name_that_looks_like_many_parts_takes_no_time(part: str) -> None:
    for end in ("!", "E", "E!", ""):  # of all ways to divide it, none may be tried
        name = f"_ZN{part * 190}{end}"
        assert set(plain_name(name)) <= set(name) | {":"}


@pytest.mark.parametrize("last_byte", [39, 47])  # of the offsets of segments and of sections
def test_an_offset_beyond_all_files_gives_nothing(
    programs: dict[str, Path], last_byte: int
) -> None:
    data = bytearray(programs["pie"].read_bytes())
    data[last_byte] = 0x80
    assert read_elf(bytes(data)) is None


@settings(max_examples=60, deadline=None)
@given(changes=st.lists(st.tuples(st.integers(0, 4000), st.integers(0, 255)), max_size=40))
def test_a_damaged_file_gives_something_or_nothing(
    programs: dict[str, Path], changes: list[tuple[int, int]]
) -> None:
    data = bytearray(programs["pie"].read_bytes())
    for place, value in changes:
        data[place] = value
    elf = read_elf(bytes(data))
    assert elf is None or all(variable.size for variable in elf.variables)
    cut = read_elf(bytes(data[: len(changes) * 100]))
    assert cut is None or cut.variables == ()
