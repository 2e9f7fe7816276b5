"""Wrong words of a command are refused before anything is built, booted or written."""

from collections.abc import Callable
from pathlib import Path

import pytest

from numalab.cli.guest import boot, compare_programs, doctor, place, shell
from numalab.cli.hunt import hunt
from numalab.cli.inputs import kernel, topology
from numalab.cli.options import file_to_write, folder_to_write
from numalab.cli.results import export, report, trace, verify
from numalab.cli.study import patch, run
from numalab.errors import UserError
from numalab.files import check_free
from support.one_command import invoke

Command = Callable[..., None]
AT_ONCE = ("ring-4", "--mode", "icount")


@pytest.mark.parametrize(
    ("command", "words", "option"),
    [
        (boot.command, (*AT_ONCE, "--locality", "command", "true"), "--page"),
        (patch.command, ("series",), "--reply"),
        (patch.command, ("series",), "--junit"),
        (run.command, ("group-construction",), "--junit"),
        (report.command, ("results",), "--overview"),
        (hunt.command, ("--replay",), "--junit"),
        (doctor.command, (), "--report"),
        (topology.import_command, ("-",), "--output"),
    ],
)
def test_a_folder_in_place_of_a_file(
    command: Command, words: tuple[str, ...], option: str, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match="is a folder; name a file") as refused:
        invoke(command, option, tmp_path, *words)
    assert (refused.value.key, refused.value.file) == (option, tmp_path)


@pytest.mark.parametrize(
    ("command", "words", "option"),
    [
        (boot.command, (*AT_ONCE, "true"), "--out"),
        (patch.command, ("series",), "--output"),
        (run.command, ("group-construction",), "--artifacts"),
        (trace.command, ("trace.dat",), "--output"),
        (verify.command, ("results",), "--output"),
    ],
)
def test_a_file_in_place_of_a_folder(
    command: Command, words: tuple[str, ...], option: str, tmp_path: Path
) -> None:
    file = tmp_path / "file"
    file.touch()
    for path in (file, file / "below"):
        with pytest.raises(UserError, match="is there, and is no folder") as refused:
            invoke(command, option, path, *words)
        assert (refused.value.key, refused.value.file) == (option, file)


def test_a_place_that_can_be_written(tmp_path: Path) -> None:
    file_to_write(None, "--junit")
    file_to_write(tmp_path / "new" / "junit.xml", "--junit")
    folder_to_write(tmp_path, "--out")
    folder_to_write(tmp_path / "new" / "newer", "--out")
    check_free(tmp_path, "--out")
    check_free(tmp_path / "new" / "newer", "--out")
    (tmp_path / "Makefile").touch()
    with pytest.raises(UserError, match="--out: is there, and is not an empty folder"):
        check_free(tmp_path, "--out")
    with pytest.raises(UserError, match="--junit: is a device"):
        file_to_write(Path("/dev/null"), "--junit")
    with pytest.raises(UserError, match="/proc: --junit: cannot write to this folder"):
        file_to_write(Path("/proc/junit.xml"), "--junit")
    with pytest.raises(UserError, match="cannot read: File name too long"):
        file_to_write(tmp_path / ("x" * 300), "--junit")


@pytest.mark.parametrize(
    ("command", "words"), [(boot.command, ("true",)), (shell.command, ()), (doctor.command, ())]
)
def test_a_word_of_the_kernel(command: Command, words: tuple[str, ...]) -> None:
    machine = () if command is doctor.command else ("ring-4",)
    with pytest.raises(UserError, match="--cmdline: '' is not one word"):
        invoke(command, *machine, "--cmdline", "", *words)


@pytest.mark.parametrize(
    ("command", "words", "message"),
    [
        (boot.command, ("ring-4", ""), "CMD: the first word of the command is empty"),
        (boot.command, ("ring-4", "--overlay", "nope", "true"), "nope: --overlay: no such folder"),
        (boot.command, ("ring-4", "--pin", "", "true"), "--pin: is empty"),
        (place.command, ("ring-4", "--nodes", ""), "--nodes: is empty"),
        (hunt.command, ("--watchdog", "7"), "--watchdog: has no effect without --scheduler"),
        (run.command, ("group-construction", "--cluster", ""), "--cluster: '' is not HOST:PORT"),
        (run.command, ("group-construction", "--cluster", "x"), "--cluster: 'x' is not HOST:PORT"),
        (run.command, ("group-construction", "--cluster", "http://h:22"), "'http://h:22' is not"),
        (run.command, ("group-construction", "--executor", "cluster"), "--executor: '' is not"),
        (
            run.command,
            ("group-construction", "--resume", "--output", "not-there"),
            "not-there: --output: there are no results",
        ),
        (
            compare_programs.command,
            ("ring-4", "--before", "a", "--after", "b", "--measure", "nope"),
            "no measure is called 'nope'",
        ),
        (report.command, ("not-there",), "not-there: these are no results of a study"),
        (export.command, ("results", "out.zip"), "out.zip: TARGET: the archive is a tar"),
        (kernel.refresh, ("no-such-series",), "'no-such-series' is no series"),
    ],
)
def test_what_cannot_be_meant(command: Command, words: tuple[str, ...], message: str) -> None:
    with pytest.raises(UserError, match=message):
        invoke(command, *words)


def test_a_topology_is_checked_by_its_name() -> None:
    assert "ring-4.toml: ok" in invoke(topology.check, "ring-4").stdout
    with pytest.raises(UserError, match="no topology is called 'rng-4'; did you mean ring-4"):
        invoke(topology.check, "rng-4")
