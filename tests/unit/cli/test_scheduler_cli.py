"""`numalab scheduler`: lists, and a table of checks with an exit code."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from typer.testing import CliRunner

from numalab.cli.inputs import scheduler
from numalab.errors import UserError
from numalab.programs.check_scheduler import SchedulerCheck


def test_the_list_has_tools_of_the_kernel_and_crates() -> None:
    done = CliRunner().invoke(scheduler.app, ["list", "--json"])
    origins = {row["name"]: row["origin"] for row in json.loads(done.stdout)}
    assert (origins["scx_simple"], origins["scx_rusty"]) == ("kernel", "crate")


def test_an_unknown_scheduler_is_refused() -> None:
    done = CliRunner().invoke(scheduler.app, ["check", "scx_simpel"])
    assert isinstance(done.exception, UserError)
    assert "did you mean scx_simple" in str(done.exception)


def test_a_check_that_fails_has_its_messages_and_exit_code_9(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def check_scheduler(_spec: object, *_: object, **__: Any) -> Iterator[SchedulerCheck]:
        yield SchedulerCheck(
            "ring-2", "debian-6.12-sched-ext", "simple", differences=("nodes: [0]",)
        )
        yield SchedulerCheck(
            "ring-4", "debian-6.12-sched-ext", reason="did not start\n  | libbpf: no"
        )

    monkeypatch.setattr(scheduler, "check_scheduler", check_scheduler)
    done = CliRunner().invoke(scheduler.app, ["check", "scx_simple"])
    assert done.exit_code == 9
    assert "loaded and scheduled the load" in done.stdout
    assert "ring-2: nodes: [0]" in done.stdout
    assert "ring-4: did not start\n  | libbpf: no" in done.stdout
    done = CliRunner().invoke(scheduler.app, ["check", "scx_simple", "--json"])
    assert [row["ok"] for row in json.loads(done.stdout)] == [True, False]


def test_several_kernels_are_named_with_what_they_did(monkeypatch: pytest.MonkeyPatch) -> None:
    kernels = ("debian-6.12", "debian-6.12-sched-ext")

    def check_scheduler(_spec: object, *_: object, **__: Any) -> Iterator[SchedulerCheck]:
        for kernel in kernels:
            yield SchedulerCheck("ring-2", kernel, "simple", differences=("nodes: [0]",))
        yield SchedulerCheck("ring-4", kernels[0], reason="refused\n  | R1 \x1b[31m")

    monkeypatch.setattr(scheduler, "check_scheduler", check_scheduler)
    words = ["check", "scx_simple", *(f"--kernel={kernel}" for kernel in kernels)]
    printed = CliRunner().invoke(scheduler.app, words).stdout
    assert f"\n{kernels[0]} on ring-4: refused\n  | R1 " in printed
    for kernel in kernels:
        assert f"\n{kernel} on ring-2: nodes: [0]\n" in printed
    assert "\x1b" not in printed


@pytest.mark.parametrize(
    ("cpus", "reason"),
    [
        ("0-1", "CPU 0 stays online"),
        ("2,99", "ring-2 has no CPU 99"),
        ("3-1", "backwards"),
        ("a", "not a cpulist"),
    ],
)
def test_cpus_that_no_machine_can_do_without_are_refused_before_a_build(
    cpus: str, reason: str
) -> None:
    words = ["check", "scx_simple", "--topology", "ring-2", "--offline", cpus]
    done = CliRunner().invoke(scheduler.app, words)
    assert isinstance(done.exception, UserError)
    assert reason in str(done.exception)
    assert done.exception.key == "--offline"
