"""`numalab patch`: its options, output and exit codes."""

import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from numalab.cli.study import patch as patch_command
from numalab.errors import HostError, UserError
from numalab.patch.judge import Judged, Request
from numalab.patch.verdict import PatchVerdict, Word
from numalab.results.layout import Results
from support.one_command import invoke

SERIES = "undo-slow-scan"


@dataclass
class Bench:
    """Receives requests instead of booting guests."""

    verdict: PatchVerdict
    requests: list[Request] = field(default_factory=list)

    def prepare(self, request: Request, _: Any) -> Any:
        """Keep a request."""
        self.requests.append(request)
        return SimpleNamespace(results=Results(Path("reports/patch-x/1")))

    def judge(self, _: Request, study: Any, __: Any) -> Judged:
        """Return the verdict."""
        return Judged(self.verdict, study.results)


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Bench:
    whole = PatchVerdict(
        "x", ("sched/fair: Do it",), "debian-6.12", "debian-6.12+x", "6.12.1", "icount", "regressed"
    )
    bench = Bench(whole)
    for name, value in (
        ("prepare", bench.prepare),
        ("judge", bench.judge),
        ("connect", lambda _: None),
    ):
        monkeypatch.setattr(patch_command, name, value)
    return bench


def test_regression_ends_with_1_and_begins_with_the_verdict(bench: Bench) -> None:
    result = invoke(patch_command.command, SERIES, "--base", "debian-6.12")
    assert result.exit_code == 1
    assert result.stdout.startswith("verdict    regression found\npatch      sched/fair: Do it\n")


def test_json_has_the_verdict(bench: Bench) -> None:
    result = invoke(patch_command.command, SERIES, "--base", "debian-6.12", "--json")
    assert json.loads(result.stdout)["word"] == "regressed"


def test_options_choose_the_experiment(bench: Bench) -> None:
    words = ("--topologies", "ring-2, ring-4", "--workloads", "hogs", "--seeds", "5")
    invoke(patch_command.command, SERIES, "--base", "debian-6.12", "--budget", "90s", *words)
    (request,) = bench.requests
    assert request.seconds == 90
    assert request.experiment.machines == ("ring-2", "ring-4")
    assert request.experiment.loads == ("hogs",)
    assert request.experiment.screened == 5
    assert request.experiment.patched.base == request.experiment.baseline


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("no-such.mbox",), r"no-such\.mbox"),
        ((SERIES, "--budget", "soon"), "--budget: not a time: 'soon'"),
        ((SERIES, "--base", "debian-9"), "debian-9"),
        ((SERIES, "--base", "debian-6.12", "--workloads", ","), "--workloads: is empty"),
        ((SERIES, "--base", "debian-6.12", "--topologies", ""), "--topologies: is empty"),
    ],
)
def test_wrong_input_is_refused(bench: Bench, words: tuple[str, ...], message: str) -> None:
    with pytest.raises(UserError, match=message):
        invoke(patch_command.command, *words)
    assert bench.requests == []


@pytest.mark.parametrize(("word", "exit_code"), [("regressed", 1), ("improved", 3)])
def test_a_file_that_cannot_be_written_hides_neither_verdict_nor_other_files(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, word: Word, exit_code: int
) -> None:
    mail, junit = tmp_path / "mail", tmp_path / "junit.xml"

    def full(path: Path, text: str) -> None:
        if path == mail:
            raise HostError(f"cannot write {path}: No space left on device")
        path.write_text(text)

    monkeypatch.setattr(patch_command, "write_text", full)
    bench.verdict = replace(bench.verdict, word=word)
    app = typer.Typer()
    app.command()(patch_command.command)
    words = [SERIES, "--base", "debian-6.12", "--reply", str(mail), "--junit", str(junit)]
    result = CliRunner().invoke(app, words)
    assert result.stdout.startswith("verdict    ")
    assert "<testsuite" in junit.read_text()
    if exit_code == 1:
        assert result.exit_code == 1
        assert f"cannot write {mail}" in result.stderr
    else:
        assert isinstance(result.exception, HostError)
        assert result.exception.exit_code == exit_code
