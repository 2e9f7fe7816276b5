"""Two builds of a function: the same except for lines, places and strings."""

import pytest

from numalab.reach.fingerprint import (
    Fingerprint,
    Targets,
    Variable,
    changed_data,
    changed_functions,
    changed_variables,
    fingerprint,
    parse_listing,
)

LISTING = """\
0000000000000{place}0 <check>:
check():
/linux/kernel/a.c:{line}
       {place}0:\tmov    $0x{line:x},%esi
\t\t\t{place}1: R_X86_64_32S\t.rodata.str1.1+0x{string:x}
       {place}5:\tje     {place}9 <check+0x9>
       {place}7:\tadd    ${add:#x},%eax
       {place}9:\tcall   7c0 <schedule>
       {place}e:\tret
{padding}"""


def digests(
    *, place: int = 1, line: int = 70, string: int = 4, add: int = 9, padding: str = ""
) -> Fingerprint:
    text = LISTING.format(place=place, line=line, string=string, add=add, padding=padding)
    return fingerprint(parse_listing(text), {".data": b"1", "__bug_table": bytes([line])}, "")


def test_line_numbers_places_strings_and_padding_do_not_count() -> None:
    other = digests(place=2, line=75, string=90, padding="      2f:\tnopl   0x0(%rax)\n")
    assert changed_functions(digests(), other) == ()
    assert changed_data(digests(), other) == ()


def test_a_constant_counts() -> None:
    assert changed_functions(digests(), digests(add=10)) == ("check",)


def test_a_variable_counts_where_its_value_differs() -> None:
    def value(*variables: tuple[str, int]) -> Fingerprint:
        data = b"".join(number.to_bytes(4, "little") for _, number in variables)
        named = [Variable(name, ".data", 4 * at, 4) for at, (name, _) in enumerate(variables)]
        return fingerprint({}, {".data": data}, "", named)

    before = value(("slice", 3), ("flag.1", 0))
    assert changed_variables(before, value(("new", 1), ("slice", 3), ("flag.7", 0))) == ()
    assert changed_variables(before, value(("slice", 4), ("flag.1", 0))) == ("slice",)


def test_data_counts_with_its_relocations() -> None:
    moved = "RELOCATION RECORDS FOR [.data]:\n0000000000000000 R_X86_64_64 {}\n"
    before, after = (fingerprint({}, {".data": b"\0" * 8}, moved.format(name)) for name in "ab")
    assert changed_data(before, after) == (".data",)


STATIC = """\
0000000000000000 <build>:
       0:\tmov    $0x0,%rax
\t\t\t0: R_X86_64_32S\t.text+0x{smt:x}
       7:\tlea    0x0(%rip),%rdi
\t\t\ta: R_X86_64_PC32\t.rodata.str1.1+0x{text:x}
       e:\tcall   0 <build>
\t\t\tf: R_X86_64_PLT32\t.text-0x4
      13:\tret
"""
STRINGS = {".rodata.str1.1": b"one\0two\0"}


def table(first: int, *, moved: int = 0, smt: int = 0x40, text: int = 0) -> Fingerprint:
    """Return an object with two static functions, a table of one, and code that names the other."""
    functions = [
        Variable("build", ".text", 0, 0x14),
        Variable("smt_flags", ".text", 0x40 + moved, 16),
        Variable("core_flags", ".text", 0x60 + moved, 16),
    ]
    targets = Targets(functions, STRINGS)
    places = f"RELOCATION RECORDS FOR [.data]:\n00000000 R_X86_64_64 .text+{first + moved:#x}\n"
    listing = STATIC.format(smt=smt + moved, text=(text - 4) % 2**64)
    listing = listing.replace("+0xfffffffffffffffc", "-0x4")
    rows = [Variable("topology", ".data", 0, 8)]
    return fingerprint(parse_listing(listing, targets), {".data": b""}, places, rows, targets)


def test_static_functions_and_strings_are_told_apart() -> None:
    """gas writes them as a section and an offset, which moves when other code does."""
    plain = table(0x40)
    for other in (table(0x40, moved=0x20), table(0x40)):
        assert changed_functions(plain, other) == changed_data(plain, other) == ()
    swapped = table(0x60)
    assert changed_functions(plain, swapped) == ()
    assert changed_data(plain, swapped) == (".data",)
    assert changed_variables(plain, swapped) == ("topology",)
    assert changed_functions(plain, table(0x40, smt=0x60)) == ("build",)
    assert changed_functions(plain, table(0x40, text=4)) == ("build",)


@pytest.mark.parametrize("section", ["__tracepoints_strings", ".init.data"])
def test_another_event_does_not_change_the_names_of_the_others(section: str) -> None:
    """A tracepoint has its name as a place in a section, whose name may have no dot."""

    def event(*names: str, first: str = "old") -> Fingerprint:
        texts = [Variable(f"text_{name}", section, 4 * at, 4) for at, name in enumerate(names)]
        data = {section: "".join(f"{name}\0" for name in names).encode(), ".data": b"\0" * 8}
        places = (
            "RELOCATION RECORDS FOR [.data]:\n"
            f"00000000 R_X86_64_64 {section}+{4 * names.index(first):#x}\n"
        )
        rows = [Variable("event", ".data", 0, 8)]
        return fingerprint({}, data, places, rows, Targets(texts, data))

    assert changed_variables(event("old"), event("new", "old")) == ()
    assert changed_variables(event("old", "new"), event("old", "new", first="new")) == ("event",)
