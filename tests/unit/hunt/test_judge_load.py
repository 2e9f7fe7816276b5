"""Every property judges any load, and one that fails loses nothing of the others."""

import random
import re
from collections.abc import Iterator

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from numalab.hunt.generate.families import draw_loads
from numalab.hunt.generate.machines import draw_machine
from numalab.hunt.loads.load import Load
from numalab.hunt.property import PROPERTIES, Observation, judge_load, register_property
from numalab.hunt.recording import MS, LoadRecording
from numalab.recording.events import typed
from numalab.recording.window import Window
from numalab.topology.topology import Topology
from unit.hunt.recordings import recording


def _without_events(machine: Topology, load: Load, late_ms: int) -> LoadRecording:
    """A load whose tasks never ran, and whose driver made each change so late after the start."""
    end = load.ms * MS
    changes = len(load.changes_ms(but_later=True)) + 1
    none = pl.DataFrame(schema={"time_ns": pl.Int64})
    return LoadRecording(
        table=typed(none).collect(),
        part=Window(0, end),
        topology=machine,
        number=0,
        load=load,
        done=(late_ms * MS,) * changes,
        stopped_ns=end + 10 * MS,
    )


@given(st.integers(0, 10**6), st.integers(0, 5000))
def test_every_property_judges_a_load_without_events(seed: int, late_ms: int) -> None:
    rng = random.Random(seed)
    machine = draw_machine(rng)
    (load,) = draw_loads(rng, machine, 1)
    run = _without_events(machine, load, late_ms)
    assert judge_load(run, PROPERTIES.built_in())[1] == {}


def test_a_built_in_property_that_fails_is_named_and_loses_no_finding(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(_: LoadRecording) -> int:
        raise ZeroDivisionError("division by zero")

    run = recording("time ms=1000;hog n=2 cpus=0-3", [(1, "hog0.0", 0, 0, 1000)])
    monkeypatch.setattr(LoadRecording, "memory_users", property(broken))
    findings, failures = judge_load(run, PROPERTIES.built_in())
    assert failures.keys() >= {"numa-moves", "numa-sticks"}
    assert "affinity" in {finding.prop for finding in findings}
    reason = r"the property 'numa-moves' is not judged: internal error in .*\.py:\d+: Zero.*"
    assert re.fullmatch(reason, failures["numa-moves"])


def test_a_violation_that_counts_alone_comes_before_a_worse_one_that_is_weak() -> None:
    @register_property("parts", most=1.0)
    def parts(_: LoadRecording) -> Iterator[Observation]:
        """Parts differ."""
        yield Observation(9.0, "may be by design", weak=True)
        yield Observation(2.0, "counts")
        yield Observation(0.5, "holds")

    try:
        plain, uneven = (
            recording(f"time ms=1000;hog n=2 cpus=0-3{more}", []) for more in ("", " later=1")
        )
        assert judge_load(plain, {"parts"})[0][0].text == "counts"
        assert not uneven.load.is_plain
        assert judge_load(uneven, {"parts"})[0][0].text == "may be by design"
    finally:
        PROPERTIES.remove(parts.__module__)
