"""A run waits while guests of another numalab have the host, and not for ever."""

from types import SimpleNamespace
from typing import cast

import pytest

from numalab.campaign.run_task import boot_when_free
from numalab.campaign.task import Task
from numalab.errors import HostBusy
from numalab.guest.run import Outcome
from numalab.machine.model import Machine

MACHINE = cast(Machine, None)
OUTCOME = cast(Outcome, "the outcome")


def task(limit: float) -> Task:
    return cast(Task, SimpleNamespace(study=SimpleNamespace(limits=SimpleNamespace(run=limit))))


def test_a_run_starts_when_the_others_have_ended() -> None:
    refusals = [HostBusy("host CPUs 0-3 run a guest", hint="wait"), HostBusy("host CPU 3 runs one")]

    def boot(*_: object) -> Outcome:
        if refusals:
            raise refusals.pop(0)
        return OUTCOME

    phases: list[str] = []
    assert boot_when_free(task(1e6), MACHINE, phases.append, boot, pause=0.0) is OUTCOME
    assert phases == ["waiting, host CPUs 0-3 run a guest", "waiting, host CPU 3 runs one"]


def test_a_run_does_not_wait_longer_than_it_may_take() -> None:
    def boot(*_: object) -> Outcome:
        raise HostBusy("host CPUs 0-3 run a guest")

    with pytest.raises(HostBusy):
        boot_when_free(task(0.0), MACHINE, lambda _: None, boot)
