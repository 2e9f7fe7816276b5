import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from numalab.errors import UserError
from numalab.kernel.config_fragment import (
    merge,
    parse_config,
    parse_fragment,
    refusals,
    render_request,
)
from numalab.kernel.kernel_config import added_options, request_config
from numalab.places import project_dir
from numalab.source.series import load_series

NAMES = st.from_regex(r"CONFIG_[A-Z][A-Z0-9_]{0,12}", fullmatch=True)
VALUES = st.one_of(
    st.sampled_from(["y", "n"]),
    st.integers(-(2**31), 2**31).map(str),
    st.integers(0, 2**32).map(hex),
    st.from_regex(r'"[a-zA-Z0-9 ,=#()]{0,20}"', fullmatch=True),
)
GUEST = "# For guests.\n\n# Why SMP.\nCONFIG_SMP=y\n"


@given(st.dictionaries(NAMES, VALUES, max_size=12))
def test_what_is_written_in_a_fragment_is_what_is_asked_for(options: dict[str, str]) -> None:
    text = "# Purpose.\n\n" + "".join(f"# Why {n}.\n{n}={v}\n" for n, v in options.items())
    fragment = parse_fragment("any", text)
    assert {entry.name: entry.value for entry in fragment.options} == options
    assert all(entry.reason == f"Why {entry.name}." for entry in fragment.options)
    assert fragment.summary == "Purpose."
    asked = render_request("", merge([fragment], "6.12"))
    assert parse_config(asked) == options
    assert refusals(fragment.options, parse_config(asked)) == ()


@given(st.text(max_size=200))
def test_any_text_parses_or_is_a_user_error(text: str) -> None:
    try:
        parse_fragment("any", text)
    except UserError as error:
        assert str(error).startswith("any.config")


def test_reason_may_span_lines_and_is_not_set_means_off() -> None:
    text = "# For\n# guests.\n\n# Why\n# not.\n# CONFIG_MODULES is not set\n"
    fragment = parse_fragment("guest", text)
    assert fragment.summary == "For guests."
    [option] = fragment.options
    assert (option.name, option.value, option.reason, option.line) == (
        "CONFIG_MODULES", "n", "Why not.", 6,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("CONFIG_SMP=y\n", "guest.config:1: CONFIG_SMP: has no reason: put a comment right above"),
        (GUEST + "CONFIG_A=y\n", "guest.config:5: CONFIG_A: has no reason"),
        (GUEST + "# far away\n\nCONFIG_A=y\n", "guest.config:7: CONFIG_A: has no reason"),
        (
            GUEST + "# again\nCONFIG_SMP=n\n",
            "guest.config:6: CONFIG_SMP: repeats line 4",
        ),
        (GUEST + "# module\nCONFIG_A=m\n", "guest.config:6: CONFIG_A: guests load no modules"),
        (GUEST + "SMP=y\n", "guest.config:5: 'SMP=y' is neither a comment nor CONFIG_NAME=value"),
        (GUEST + "CONFIG_A=yes\n", "'CONFIG_A=yes' is neither"),
        ("# only this line\n# CONFIG", "guest.config: must begin with a comment"),
        ("\n", "guest.config: must begin with a comment, its summary"),
    ],
)
def test_what_is_wrong_in_a_fragment_is_named_with_its_line(text: str, message: str) -> None:
    with pytest.raises(UserError, match=re.escape(message)):
        parse_fragment("guest", text)


def test_fragments_that_contradict_each_other_are_both_named() -> None:
    entry = parse_fragment("one", GUEST)
    same = parse_fragment("same", GUEST)
    other = parse_fragment("other", GUEST.replace("=y", "=n"))
    assert merge([entry, same], "6.12") == entry.options
    with pytest.raises(UserError) as caught:
        merge([entry, other], "6.12")
    assert str(caught.value) == "other.config:4: CONFIG_SMP: wants n, and one.config:4 wants y"


def test_fragments_of_two_eras_are_merged_for_a_version() -> None:
    new, every, old = (
        parse_fragment(name, f"# For.\n\n# {reason}\nCONFIG_A={value}\n")
        for name, reason, value in (
            ("new", "Since 6.7: why.", "y"),
            ("every", "Why.", "y"),
            ("old", "Until 6.6: why.", "n"),
        )
    )
    for order in ([new, every], [every, new]):
        assert [entry.value for entry in merge(order, "6.1.5")] == ["y"]
    values = [[entry.value for entry in merge([new, old], version)] for version in ("6.6", "6.7")]
    assert values == [["n"], ["y"]]


def test_request_leaves_out_what_fragments_decide() -> None:
    options = merge([parse_fragment("guest", GUEST)], "6.12")
    base = "# a comment\nCONFIG_EXPERT=y\n# CONFIG_SMP is not set\nCONFIG_X=y\n"
    assert render_request(base, options) == "CONFIG_EXPERT=y\nCONFIG_X=y\nCONFIG_SMP=y\n"


def test_refusals_tell_missing_from_different() -> None:
    text = "# For.\n\n# a\nCONFIG_A=y\n# b\nCONFIG_B=3\n# c\nCONFIG_C=n\n# d\nCONFIG_D=n\n"
    options = parse_fragment("f", text).options
    refused = refusals(options, parse_config("CONFIG_B=4\nCONFIG_D=y\n"))
    assert [(entry.option.name, entry.actual) for entry in refused] == [
        ("CONFIG_A", None), ("CONFIG_B", "4"), ("CONFIG_D", "y"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("reason", "version", "expected"),
    [
        ("Why.", "5.10.223", True),
        ("Since 5.13: why.", "5.10.223", False),
        ("Since 5.13: why.", "5.13", True),
        ("Since 5.13: why.", "6.1.192", True),
        ("Until 6.14: why.", "6.14.2", True),
        ("Until 6.14: why.", "6.15-rc1", False),
        ("Since 5.11 until 6.7: why.", "6.8", False),
        ("Since 5.11 until 6.7: why.", "6.7.12", True),
        ("Since when: why.", "6.7.12", True),
        ("Until 6.9: why.", "6.10", False),
    ],
)
def test_an_option_may_be_for_some_versions_only(reason: str, version: str, expected: bool) -> None:
    [option] = parse_fragment("guest", f"# For.\n\n# {reason}\nCONFIG_A=y\n").options
    assert option.is_for(version) is expected


@pytest.mark.parametrize("version", ["5.10.223", "6.1.192", "6.12.117", "7.2", "7.3.4"])
def test_every_kernel_is_asked_for_proc_sys(version: str) -> None:
    """7.3 gave its option another name, and NUMA balancing could not be turned off."""
    path = project_dir() / "kernel-configs/guest.config"
    options = parse_fragment("guest", path.read_text(encoding="utf-8")).options
    asked = [entry.name for entry in options if entry.is_for(version)]
    assert len({"CONFIG_PROC_SYSCTL", "CONFIG_SYSCTL"} & set(asked)) == 1


ADDS = """\
--- a/init/Kconfig
+++ b/init/Kconfig
@@ -1,3 +1,9 @@
 config A
-config MOVED
+config ON
+\tdefault y
+menuconfig OFF
+config SET
+config MOVED
+\tbool
+\t  config is a word
 \tbool
"""


@pytest.mark.parametrize(
    ("patches", "added"),
    [
        ([["+config NEW"], ["-config NEW", "+menuconfig NEW"]], ("CONFIG_NEW",)),
        ([["+config NEW"], ["-config NEW"], ["+config NEW"]], ("CONFIG_NEW",)),
        ([["+config NEW"], ["-config NEW"]], ()),
        ([["-config OLD"], ["+config OLD"]], ()),
        ([["+config NEW # until all users are gone"]], ("CONFIG_NEW",)),
        ([["-config OLD # why", "+menuconfig OLD\t# why not"]], ()),
        ([["-config OLD", "+config OLD"], ["+config OLD"]], ()),
    ],
)
def test_what_a_later_patch_of_a_series_moves_stays_added(
    tmp_path: Path, patches: list[list[str]], added: tuple[str, ...]
) -> None:
    for number, lines in enumerate(patches):
        counts = [sum(line[0] == sign for line in lines) + 1 for sign in "-+"]
        text = "".join(f"{line}\n" for line in lines)
        head = f"--- a/Kconfig\n+++ b/Kconfig\n@@ -1,{counts[0]} +1,{counts[1]} @@\n config A\n"
        (tmp_path / f"{number}.patch").write_text(head + text)
    assert added_options([load_series(tmp_path)]) == added


def test_an_option_of_a_file_that_is_deleted_is_moved(tmp_path: Path) -> None:
    (tmp_path / "x.patch").write_text(
        "--- a/Kconfig.old\n+++ /dev/null\n@@ -1 +0,0 @@\n-config OLD\n"
        "--- a/Kconfig\n+++ b/Kconfig\n@@ -1 +1,2 @@\n config A\n+config OLD\n"
    )
    assert added_options([load_series(tmp_path / "x.patch")]) == ()


def test_options_that_a_patch_adds_have_their_defaults(tmp_path: Path) -> None:
    (tmp_path / "x.patch").write_text(ADDS)
    added = added_options([load_series(tmp_path / "x.patch")])
    assert added == ("CONFIG_OFF", "CONFIG_ON", "CONFIG_SET")
    options = parse_fragment("f", "# For.\n\n# a\nCONFIG_SET=n\n").options
    path = tmp_path / ".config"
    off = "".join(f"# CONFIG_{name} is not set\n" for name in ("A", "OFF", "ON", "SET"))

    def make(words: list[str]) -> None:
        if "allnoconfig" in words:
            path.write_text(off)
            return
        assert words == ["olddefconfig"]
        kept = path.read_text()
        path.write_text(f"{kept}CONFIG_ON=y\n# CONFIG_OFF is not set\n")

    def config(*names: str) -> dict[str, str]:
        request_config(tmp_path, tmp_path, options, "6.12", make, added=names)
        return parse_config(path.read_text())

    assert set(config().values()) == {"n"}
    assert config(*added) == {
        "CONFIG_A": "n", "CONFIG_SET": "n", "CONFIG_ON": "y", "CONFIG_OFF": "n"
    }  # fmt: skip
