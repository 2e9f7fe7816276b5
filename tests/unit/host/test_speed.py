"""Limits on time follow how slow a host is."""

from pathlib import Path

import pytest

from numalab.guest.watch import Limits
from numalab.host.read import slowness
from support.control_groups import write_group


@pytest.mark.parametrize(
    ("load", "work", "times"), [(0, 0.002, 1), (8, 0.002, 4), (0, 0.04, 10), (4, 0.04, 20)]
)
def test_slowness_is_of_the_cpu_and_of_the_crowd(
    monkeypatch: pytest.MonkeyPatch, load: float, work: float, times: float
) -> None:
    clock = iter((5.0, 5.0 + work, 6.0, 6.0 + work))
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1})
    monkeypatch.setattr("os.getloadavg", lambda: (load, 0, 0))
    monkeypatch.setattr("time.process_time", lambda: next(clock))
    assert slowness() == pytest.approx(times)
    assert slowness(load=False) == pytest.approx(times / max(1.0, load / 2))


def test_a_part_of_a_cpu_takes_longer(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    clock = iter((5.0, 5.001, 5.0, 5.001))
    monkeypatch.setattr("os.getloadavg", lambda: (0, 0, 0))
    monkeypatch.setattr("time.process_time", lambda: next(clock))
    write_group(tmp_path, {"cpu.max": "25000 100000"})
    assert slowness(tmp_path) == pytest.approx(4)
    write_group(tmp_path, {"cpu.max": "250000 100000"})
    assert slowness(tmp_path) == pytest.approx(1)


def test_limits_grow_up_to_an_hour() -> None:
    assert Limits().on_a_host(1.0) == Limits()
    assert Limits(boot=100, silence=200, total=9).on_a_host(3) == Limits(300, 600, 9)
    assert Limits(boot=100, silence=5000).on_a_host(90) == Limits(3600, 5000)


def test_a_guest_with_many_cpus_may_boot_longer() -> None:
    assert Limits().for_cpus(32) == Limits()
    assert Limits(boot=100, silence=200, total=9).for_cpus(128) == Limits(400, 200, 9)
