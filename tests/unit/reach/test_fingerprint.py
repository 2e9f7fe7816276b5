"""Two builds of a function: the same except for lines, places and strings."""

from numalab.reach.fingerprint import (
    Fingerprint,
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
