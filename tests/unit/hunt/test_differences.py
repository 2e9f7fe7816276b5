"""Quantities that are compared with the reference kernel, on recordings made up row by row."""

from dataclasses import replace

import pytest

from numalab.errors import UserError
from numalab.hunt.compare.outcomes import suspicion
from numalab.hunt.compare.quantity import Quantity, register_difference
from numalab.hunt.loads.driver_output import Printed
from numalab.hunt.property import (
    PROPERTIES,
    absolute_property_names,
    describe_property,
    judge_load,
    property_names,
)
from numalab.hunt.recording import LoadRecording
from unit.hunt.recordings import recording

HOGS = [(11, "hog0.0", 0, 0, 1000), (12, "hog0.1", 0, 0, 500), (12, "-hog0.1", 0, 500, 1000)]


def text_of(run: LoadRecording, name: str) -> str:
    ((finding,), failures) = judge_load(run, {name})
    assert not failures
    assert finding.differential and finding.weak and not finding.violated
    return finding.text


@pytest.fixture
def hogs() -> LoadRecording:
    return recording("time ms=1000;hog n=2 cpus=0-3", HOGS)


def with_counters(run: LoadRecording, **grown: int) -> LoadRecording:
    began = dict.fromkeys(grown, 100)
    ended = {name: 100 + more for name, more in grown.items()}
    return replace(run, printed=Printed(counters={"begin": began, "end": ended}))


def test_time_and_cpus(hogs: LoadRecording) -> None:
    assert text_of(hogs, "less-time-ready-and-run") == "time-ready-and-run: 75 %"
    assert text_of(hogs, "more-cpus-used") == "cpus-used: 1 CPUs"
    assert text_of(hogs, "more-spread-of-equal-tasks") == "spread-of-equal-tasks: 33.33 %"
    assert text_of(hogs, "more-idle-beside-waiting") == "idle-beside-waiting: 50 %"
    assert text_of(hogs, "less-least-run-time") == "least-run-time: 500 ms a second when ready"


def test_a_task_that_never_runs_is_the_furthest_below_the_others() -> None:
    rows = [*HOGS[:1], (12, "-hog0.1", 1, 0, 1000)]
    run = recording("time ms=1000;hog n=2 cpus=0-3", rows)
    assert text_of(run, "more-spread-of-equal-tasks") == "spread-of-equal-tasks: 100 %"


def test_few_waits_count_if_they_are_long() -> None:
    rows = [(1, "-sleeper0.0", 0, 0, 400), (1, "sleeper0.0", 0, 400, 401)]
    run = recording("time ms=1000;sleeper n=1 cpus=0 run=1000 sleep=20000", rows)
    assert text_of(run, "more-mean-wait") == "mean-wait: 400 ms"
    rows = [(1, "-sleeper0.0", 0, 0, 10), (1, "sleeper0.0", 0, 10, 11)]
    run = recording("time ms=1000;sleeper n=1 cpus=0 run=1000 sleep=20000", rows)
    assert judge_load(run, {"more-mean-wait"}) == ((), {})


def test_settings_that_the_kernel_refuses_are_counted(hogs: LoadRecording) -> None:
    run = replace(hogs, printed=Printed(counters={"begin": {"refused": 0}, "end": {"refused": 2}}))
    assert text_of(run, "more-refused-settings") == "refused-settings: 2 calls"
    assert judge_load(hogs, {"more-refused-settings"}) == ((), {}), "an older driver"


def test_moves_are_counted_within_and_between_nodes() -> None:
    rows = [(11, "hog0.0", cpu, 100 * n, 100 * n + 100) for n, cpu in enumerate((0, 1, 2, 0, 0))]
    run = recording("time ms=1000;hog n=1 cpus=0-3", rows)
    assert text_of(run, "more-moves-within-nodes") == "moves-within-nodes: 1 a second"
    assert text_of(run, "more-moves-between-nodes") == "moves-between-nodes: 2 a second"


def test_counters_of_the_driver(hogs: LoadRecording) -> None:
    run = with_counters(
        hogs, lb_attempts_0=50, lb_attempts_1=7, lb_attempts_2=8, lb_attempts_3=9, irq_call=3,
        irq_timer_0=250, irq_timer_1=2, irq_timer_2=4, irq_timer_3=0,
    )  # fmt: skip
    assert text_of(run, "more-balancing-in-lowest-domain").endswith(": 50 a second")
    assert text_of(run, "more-balancing-in-higher-domains").endswith(": 24 a second")
    assert text_of(run, "less-function-call-interrupts").endswith(": 3 a second")
    assert text_of(run, "more-timer-interrupts-of-idle-cpus").endswith(": 2 a second and CPU")
    assert text_of(run, "more-timer-interrupts-of-busy-cpus").endswith(": 250 a second and CPU")
    assert judge_load(hogs, {"more-pulled-tasks"}) == ((), {}), "nothing was printed"
    reset = with_counters(hogs, lb_pulled=-1)
    assert judge_load(reset, {"more-pulled-tasks"}) == ((), {}), "domains were built again"
    assert judge_load(run, {"more-numa-faults"}) == ((), {}), "there is no memory user"


def test_the_compared_number_grows_with_the_change() -> None:
    rate, share = Quantity("a", "a second", 50.0), Quantity("b", "%", 10.0)
    assert rate.compared(150.0, "more") == 2 * rate.compared(50.0, "more")
    assert rate.compared(50.0, "less") == 2 * rate.compared(150.0, "less")
    assert rate.compared(0.0, "less") == 1000.0
    assert share.compared(10.0, "more") == 20.0
    assert share.compared(10.0, "less") == 100.0


def test_differences_are_described_and_no_properties_of_one_kernel() -> None:
    assert describe_property("less-pulled-tasks") == (
        "pulled-tasks is not less than with the reference kernel: Tasks that load balancing pulled."
    )
    assert "less-pulled-tasks" in property_names()
    assert not [
        name
        for name in absolute_property_names()
        if name in ("less-pulled-tasks", "topology-facts")
    ]


@pytest.mark.usefixtures("without_plugins")
def test_an_outcome_has_what_was_measured_and_not_what_was_compared(hogs: LoadRecording) -> None:
    ((finding,), _) = judge_load(hogs, {"less-time-ready-and-run"})
    outcome = suspicion(finding, [finding], [replace(finding, measured=85.0)], confirmed=True)
    means = "mean 75 % in 1 sample; reference kernel: mean 85 % in 1 sample"
    assert outcome.outcome == f"confirmed: {means}"
    assert (finding.value, outcome.value, outcome.reference) == (30.0, 75.0, 85.0)


def test_a_plugin_can_add_a_quantity() -> None:
    def events(_: LoadRecording) -> float | None:
        """Events of a kind."""
        return 1.0

    events.__module__ = "plugin"
    register_difference(Quantity("events", "a second", 1.0, ("more",)))(events)
    assert describe_property("more-events").endswith("Events of a kind.")
    with pytest.raises(UserError, match="there is a property called 'more-events' already"):
        register_difference(Quantity("events", "a second", 1.0))(events)
    PROPERTIES.remove("plugin")
