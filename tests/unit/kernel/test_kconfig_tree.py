import pytest
from hypothesis import given
from hypothesis import strategies as st

from numalab.kernel.config_fragment import Option, Refusal
from numalab.kernel.kconfig_tree import is_met, read_kconfig, unmet
from numalab.kernel.kernel_config import explain_config, explain_refusal

FILES = {
    "Kconfig": """\
mainmenu "a kernel"
if-success = $(shell,{ $(1); } && echo "$(2)")
source "arch/$(SRCARCH)/Kconfig"
source "lib/Kconfig"
""",
    "arch/x86/Kconfig": """\
config X86
\tdef_bool y
\tselect HAVE_A # a comment
\tselect HAVE_B if B && \\
\t\tC

config HAVE_A
\tbool
""",
    "lib/Kconfig": """\
menu "Testing"
\tdepends on DEBUG

menuconfig TESTS
\tbool "Tests"
\tdefault y
\thelp
\t  if this help were read,
\t  config WRONG
\t  would be an option.

if TESTS
config LKDTM
\ttristate "Crash \\"on\\" request" if EXPERT
\tdepends on DEBUG_FS
endif

choice
\tprompt "Which"
config ONE
\tbool "one"
config TWO
\tbool "two"
endchoice
endmenu

config TEXT
\tstring "a text"
config NUMBER
\tdepends on X86
config NUMBER
\tint "a number"
config ADDRESS
\thex "an address"
config EARLY
\tdef_tristate y

config AFTER
\tbool "after"
config AFTER
\tbool
\tdepends on X86
""",
}
TREE = read_kconfig(FILES.get)


def why(name: str, config: dict[str, str], wanted: str = "y", tree: str | None = None) -> str:
    option = Option(f"CONFIG_{name}", wanted, "why", "f", 1)
    full = {f"CONFIG_{key}": value for key, value in config.items()}
    return explain_refusal(Refusal(option, tree), full, TREE, "6.12.1")


def test_definitions_have_what_is_around_them() -> None:
    assert set(TREE.definitions) == {
        "X86", "HAVE_A", "TESTS", "LKDTM", "ONE", "TWO", "AFTER", "TEXT", "NUMBER", "ADDRESS",
        "EARLY",
    }  # fmt: skip
    [lkdtm] = TREE.definitions["LKDTM"]
    assert lkdtm.depends == ("DEBUG_FS", "TESTS", "DEBUG")
    assert (lkdtm.place, lkdtm.prompt, lkdtm.shown) == ("lib/Kconfig:13", True, "EXPERT")
    assert [row.prompt for row in TREE.definitions["AFTER"]] == [True, False]
    assert [row.depends for row in TREE.definitions["AFTER"]] == [(), ("X86",)]
    assert TREE.definitions["ONE"][0].choice == "lib/Kconfig:18"
    assert TREE.selected_by == {
        "HAVE_A": (("X86", None),),
        "HAVE_B": (("X86", "B && \t\tC"),),
    }


def test_the_reason_of_a_refusal_names_what_is_off() -> None:
    on = {"DEBUG": "y", "DEBUG_FS": "y", "TESTS": "y", "EXPERT": "y"}
    assert why("LKDTM", on | {"TESTS": "n"}) == (
        "the configuration refused it: it depends on TESTS, with TESTS=n (lib/Kconfig:13)"
    )
    assert "it depends on EXPERT, with EXPERT=n" in why("LKDTM", on | {"EXPERT": "n"})
    assert "for no reason that its files show" in why("LKDTM", on)
    assert why("NOSUCH", on).startswith("Linux 6.12.1 has no such option; if others have it")
    assert why("HAVE_A", on).endswith("only X86 can set it (arch/x86/Kconfig:7)")
    assert why("HAVE_A", {"X86": "y"}, "n", "y") == (
        "the configuration has y instead, selected by X86"
    )
    assert why("ONE", on).endswith("another option of the choice in lib/Kconfig:18 is selected")


def test_the_option_that_a_choice_has_instead_is_named_with_its_line() -> None:
    refusal = Refusal(Option("CONFIG_ONE", "y", "why", "guest", 1), "n")
    on = {"CONFIG_DEBUG": "y", "CONFIG_TWO": "y"}
    mine = Option("CONFIG_TWO", "y", "why", "mine", 4)
    selected = " of the choice in lib/Kconfig:18 is selected"
    assert explain_refusal(refusal, on, TREE, "6.12", [mine]).endswith(
        f": TWO (mine.config:4){selected}"
    )
    assert explain_refusal(refusal, on, TREE, "6.12").endswith(f": TWO{selected}")


@pytest.mark.parametrize(
    ("name", "wanted", "actual", "expected"),
    [
        ("ONE", "5", None, "5 is no value of an option of type bool (valid: y, n)"),
        ("EARLY", '"y"', "y", '"y" is no value of an option of type tristate (valid: y, n)'),
        ("TEXT", "y", '""', 'y is no value of an option of type string (valid: a text such as "x"'),
        ("NUMBER", "0x5", "7", "0x5 is no value of an option of type int (valid: a number such as"),
        ("ADDRESS", "y", None, "y is no value of an option of type hex (valid: a number such as 0"),
        ("NUMBER", "-5", "7", "the configuration has 7 instead"),
        ("ADDRESS", "20", "0x7", "the configuration has 0x7 instead"),
    ],
)
def test_a_value_of_another_type_is_named_with_what_is_valid(
    name: str, wanted: str, actual: str | None, expected: str
) -> None:
    assert why(name, {"DEBUG": "y"}, wanted, actual).startswith(expected)


def test_where_a_line_comes_from() -> None:
    config = {"CONFIG_X86": "y", "CONFIG_HAVE_A": "y", "CONFIG_ONE": "y", "CONFIG_TESTS": "n",
              "CONFIG_AFTER": "n", "CONFIG_EMPTY": '""'}  # fmt: skip
    asked = [Option("CONFIG_AFTER", "n", "Why not.", "guest", 3)]
    lines = explain_config(config, asked, {"CONFIG_ONE": "tiny.config"}, TREE)
    assert [(row.name[7:], row.origin, row.reason) for row in lines] == [
        ("X86", "default of arch/x86/Kconfig:1", ""),
        ("HAVE_A", "selected by X86", ""),
        ("ONE", "tiny.config", ""),
        ("AFTER", "guest.config:3", "Why not."),
        ("EMPTY", "default of kbuild", ""),
    ]


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("A", True), ("B", False), ("!B", True), ("A && B", False), ("A || B", True),
        ("B || A && !B", True), ("(B || A) && C", False), ("A = y", True), ("A != m", True),
        ("B = n", True), ("N > 4", True), ("N <= 4", False), ('S = "x"', True),
        ("$(cc-option,-mfoo)", True), ("A && $(success,test (1)) && !B", True),
        ("!A || !(B && A)", True),
    ],
)  # fmt: skip
def test_dependencies_are_evaluated_as_kconfig_does(expression: str, expected: bool) -> None:
    assert is_met(expression, {"A": "y", "N": "5", "S": "x"}) is expected


def test_what_would_mend_a_dependency() -> None:
    assert unmet("A && B", {"A": "y"}) == ("B",)
    assert unmet("!A", {"A": "y"}) == ("A",)
    assert unmet("A && (B || C)", {"A": "y"}) == ("B", "C")
    assert unmet("A && B", {}) == ("A", "B")


@given(st.text('AB()!&|=<>$" yn', max_size=30))
def test_any_expression_has_a_value(text: str) -> None:
    assert is_met(text, {"A": "y"}) in (True, False)


@given(st.text(max_size=300))
def test_any_file_can_be_read(text: str) -> None:
    assert read_kconfig({"Kconfig": text}.get).definitions is not None
