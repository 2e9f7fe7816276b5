"""Folders and files whose names are no UTF-8, hold control characters, or cannot be used."""

import lzma
import os
from pathlib import Path

import pytest

from numalab.errors import UserError
from numalab.files import utf8_path
from numalab.run_dir import check_guest_path
from support.example_results import copy_example
from support.forked import numalab_bytes as numalab

ODD = os.fsdecode(b"w\xffeird\n\x1b[31mx")


@pytest.fixture
def odd(tmp_path: Path) -> Path:
    """Return results in a folder whose name is no UTF-8 and holds control characters."""
    return copy_example(tmp_path / ODD)


@pytest.mark.parametrize(
    "words",
    ["report", "report --json", "report --format perfetto", "status", "status --json",
     "query SQL", "query EVENTS", "compare THIS"],
)  # fmt: skip
def test_results_in_a_folder_of_any_name(odd: Path, words: str) -> None:
    command, *rest = words.split()
    query = {"SQL": "SELECT * FROM runs", "EVENTS": "SELECT count(*) FROM events"}
    last = [odd if word == "THIS" else query.get(word, word) for word in rest]
    done = numalab(command, odd, *last)
    assert (done.returncode, done.stderr) == (0, b"")


def test_an_archive_and_results_of_any_name(odd: Path, tmp_path: Path) -> None:
    archive, target = tmp_path / f"{ODD}.tar.zst", tmp_path / f"there{ODD}"
    done = numalab("export", odd, archive)
    assert done.returncode == 0
    assert b"\x1b" not in done.stderr and rb"w\xffeird\n\x1b[31mx.tar.zst: " in done.stderr
    done = numalab("import", archive, "--output", target)
    assert (done.returncode, done.stdout) == (0, os.fsencode(target) + b"\n")
    assert (target / "plan.json").is_file()


def test_a_recording_is_measured_into_a_folder_of_any_name(tmp_path: Path) -> None:
    data = Path(__file__).parents[2] / "data" / "capture" / "ring-4-numa.dat.xz"
    recording = tmp_path / f"{ODD}.dat"
    recording.write_bytes(lzma.decompress(data.read_bytes()))
    done = numalab("trace", recording, "--topology", "ring-4", "--output", tmp_path / ODD)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / ODD / "events.parquet").is_file()
    assert (tmp_path / ODD / "index.html").is_file()


@pytest.mark.parametrize(
    "words",
    ["report @", "status @", "query @ SELECT", "export @ x", "import @", "trace @", "plan @.toml",
     "topology show @.toml", "topology import @", "image show @/x", "verify @",
     "kernel show @/x", "boot ring-2 --overlay @ -- true", "place ring-2 --host @"],
)  # fmt: skip
@pytest.mark.parametrize("name", [ODD, "x" * 300, "a/" * 3000, "~no-such-user/x"])
def test_a_name_that_leads_nowhere_is_one_message(tmp_path: Path, words: str, name: str) -> None:
    path = name if name.startswith("~") else f"{tmp_path}/{name}"
    done = numalab(*(word.replace("@", path) for word in words.split()))
    assert done.returncode == 2, done.stderr
    assert done.stderr.startswith(b"numalab: ") and b"\x1b" not in done.stderr


@pytest.mark.parametrize("name", [os.fsdecode(b"\xff"), "a\x1b", "a\0"])
def test_a_guest_has_its_files_where_libvirt_can_name_them(name: str) -> None:
    with pytest.raises(UserError, match="a guest cannot use it"):
        check_guest_path(Path(f"/tmp/{name}/x"))
    for good in ("caf\u00e9", "a b", "a\nb", "\U0001f427"):
        check_guest_path(Path(f"/tmp/{good}"))


def test_the_boot_and_the_run_refuse_such_a_folder_before_anything_is_built(
    tmp_path: Path,
) -> None:
    for words in (("boot", "ring-2", "--keep", tmp_path / ODD, "--", "true"),
                  ("run", "group-construction", "--output", tmp_path / ODD)):  # fmt: skip
        done = numalab(*words)
        assert done.returncode == 2, done.stderr
        assert b"a guest cannot use it" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_path_of_the_same_file_that_is_utf_8(odd: Path) -> None:
    plain = utf8_path(odd / "plan.json")
    assert str(plain).isascii()
    assert plain.read_bytes() == (odd / "plan.json").read_bytes()
    assert utf8_path(odd / "runs" / "x").parent.samefile(odd / "runs")
    assert utf8_path(plain) == plain
