"""One message for each way in which a TOML file can be wrong: file, key, what is valid."""

import os
import time
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from numalab.document import MAX_BYTES, read_document, read_toml
from numalab.errors import UserError
from numalab.study.model import Study, find_study, load_study

GOOD = """
question = "?"
topologies = ["ring-4"]
seeds = [1]
[variants.before]
kernel = "a"
[[workloads]]
name = "bound-hogs"
"""

CLAIM = "[[claims]]\ntext='t'\nmeasure='m'\n"
BAD = {
    "sedes = [1]": r"sedes: unknown key; did you mean seeds\? \(valid: question, summary",
    "[variants.after]\nkernal = 'b'": r"variants\.after\.kernal: unknown key.*valid: kernel, tunab",
    "[variants.after]": r"variants\.after\.kernel: this key is missing",
    "[variants.'../x']\nkernel = 'b'": r"variants.*pattern",
    "mode = 'xen'": r"mode: input should be 'auto', 'kvm', 'tcg', 'icount' or 'timed', found 'xen'",
    "image = 7": r"image: input should be a valid string, found 7",
    "[limits]\nboot = -1": r"limits\.boot: .*greater than 0",
    f"{CLAIM}variant='before'": r"claims\[0\]: a claim needs at_least, at_most",
    f"{CLAIM}variant='x'\nat_most=1": r"no variant 'x' \(valid: before\)",
    "= 1": r"not TOML: ",
    "a = 1\na  = 2": r"not TOML: line 2 gives a a second time",
    "[variants.after]\nkernel = 'b'\ntunables = { '/proc/sys/x' = true }": (
        r"tunables\./proc/sys/x: input should be a valid string, or a valid integer, found True"
    ),
}


@pytest.mark.parametrize("extra", BAD)
def test_what_is_wrong_is_said(tmp_path: Path, extra: str) -> None:
    path = tmp_path / "s.toml"
    top_level = not extra.startswith("[")
    path.write_text(f"{extra}\n{GOOD}" if top_level else f"{GOOD}\n{extra}\n")
    with pytest.raises(UserError, match=BAD[extra]) as caught:
        load_study(path)
    assert str(path) in str(caught.value)


def test_a_good_study_loads(tmp_path: Path) -> None:
    path = tmp_path / "s.toml"
    path.write_text(GOOD)
    assert load_study(path).variants["before"].kernel == "a"


def test_unreadable_files(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot read: No such file"):
        read_document(tmp_path / "none.toml", Study)
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(UserError, match="not TOML"):
        read_document(tmp_path / "binary.toml", Study)
    (tmp_path / "big.toml").write_bytes(b"#" * (MAX_BYTES + 1))
    with pytest.raises(UserError, match="larger than"):
        read_document(tmp_path / "big.toml", Study)


def test_an_unknown_study_lists_those_there_are() -> None:
    with pytest.raises(UserError, match=r"no study 'nope' \(valid: .*group-construction"):
        find_study("nope")


@given(st.text(max_size=200))
def test_no_text_gives_a_traceback(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    path = tmp_path_factory.getbasetemp() / "fuzz.toml"
    path.write_text(text, encoding="utf-8", errors="replace")
    with pytest.raises(UserError):
        load_study(path)


def test_shipped_studies_load() -> None:
    study = load_study(find_study("group-construction"))
    assert list(study.variants) == ["before", "after"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f"seeds = [{'9' * 5000}]", "not TOML"),
        (f"{'.'.join('a' * 2000)} = 1", "tables in each other"),
        (f"a = {'[' * 2000}{']' * 2000}", "not TOML|tables in each other"),
        ('"a\\u001b[31m\\u0007" = 1', r"a\\x1b\[31m\\x07: unknown key"),
    ],
)
def test_hostile_texts_are_one_message(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "study.toml"
    path.write_text(text)
    with pytest.raises(UserError, match=message) as caught:
        load_study(path)
    assert "\x1b" not in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "{} = 1",
        "[{}]",
        "[[{}]]",
        "x = {{{} = 1}}",
        '[x]\n\'y\'."z\\"" . {} = 1',
        'x = """"a""""" # "\n{} = 1',
        "x = ''''a'''''\n{} = 1",
        "# it's\n{} = 1",
    ],
)
def test_a_key_of_many_parts_takes_no_memory(tmp_path: Path, text: str) -> None:
    path = tmp_path / "a.toml"
    path.write_text(text.format(".".join("a" * 4000)))
    tracemalloc.start()
    with pytest.raises(UserError, match="more than 32 tables in each other"):
        read_toml(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4 << 20


def test_dots_that_are_in_no_key_are_read(tmp_path: Path) -> None:
    path = tmp_path / "a.toml"
    dots = ".".join("a" * 40)
    path.write_text(
        f'# {dots}\na = \'{dots}\' # {dots}\nb = "\\"{dots}"\nc = """\n{dots}"""\n'
        f"d = '''{dots}'{dots}'''\ne = [{'0.5, ' * 40}]\n{'.'.join('f' * 32)} = 1\n"
    )
    assert list(read_toml(path)) == ["a", "b", "c", "d", "e", "f"]


def test_only_files_are_read(tmp_path: Path) -> None:
    """A device may have no end, a pipe nobody who writes to it."""
    os.mkfifo(tmp_path / "pipe.toml")
    for path in (Path("/dev/zero"), tmp_path / "pipe.toml", tmp_path):
        with pytest.raises(UserError, match=r"is not a file|cannot read"):
            load_study(path)
    with pytest.raises(UserError, match="cannot read"):
        load_study(Path("a\0b"))


def test_a_byte_order_mark_is_no_text(tmp_path: Path) -> None:
    path = tmp_path / "a.toml"
    path.write_text("x = 1\n", encoding="utf-8-sig")
    assert read_toml(path) == {"x": 1}


def test_a_hundred_thousand_seeds(tmp_path: Path) -> None:
    """In CPU time that grows with their number, not with its square: that would be an hour."""
    path = tmp_path / "study.toml"
    seeds = ", ".join(map(str, range(100_000)))
    path.write_text(
        f"question = '?'\ntopologies = ['ring-2']\nseeds = [{seeds}]\n"
        "[variants.a]\nkernel = 'debian-6.12'\n[[workloads]]\nname = 'bound-hogs'\n"
    )
    began = time.process_time()
    assert len(load_study(path).seeds) == 100_000
    assert time.process_time() - began < 30


@pytest.mark.parametrize("text", ["a = [" + "{}," * 300_000 + "]", "[[a]]\n" * 150_000])
def test_a_document_of_very_many_tables(tmp_path: Path, text: str) -> None:
    """Each table that lacks keys would take a kilobyte for every key."""
    (tmp_path / "a.toml").write_text(text)
    with pytest.raises(UserError, match="tables and lists"):
        read_toml(tmp_path / "a.toml")
