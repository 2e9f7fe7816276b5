"""What a plan says of claims that no run can show, and that it is so."""

from pathlib import Path

import pytest

from numalab.analysis.measures.family import compute_measures, families
from numalab.campaign.outlook import look_at_claims
from numalab.capture.spec import load_capture
from numalab.measure import SourceKind
from numalab.places import project_dir
from numalab.recording.recording import Recording
from numalab.results.reader import load_events
from numalab.run_dir import RunDir
from numalab.study.plan import plan_study
from numalab.topology.load import load_topology

STUDY = """question = "q?"
topologies = ["ring-4"]
seeds = [1, 2]
[variants]
old = {{ kernel = "debian-6.12" }}
new = {{ kernel = "debian-6.12-undo-group-construction" }}
[[workloads]]
name = "bound-hogs"
[capture]
{capture}
[[claims]]
text = "t"
measure = "{measure}"
{claim}
"""
CHANGE = 'from = "old"\nto = "new"\ndirection = "lower"'
BOUND = 'variant = "new"\nabove = 0'
RUN = "reports/examples/group-construction/runs/ring-4_bound-hogs_before_1"


def refuted(folder: Path, measure: str, mode: str, capture: str = "", claim: str = CHANGE) -> str:
    path = folder / "s.toml"
    path.write_text(STUDY.format(measure=measure, capture=capture, claim=claim), encoding="utf-8")
    (outlook,) = look_at_claims(plan_study(path), mode, folder)
    return outlook.refuted


@pytest.mark.parametrize(
    ("measure", "mode", "capture", "reason"),
    [
        ("sched_move_numa", "kvm", 'sets = ["sched"]', "capture does not record sched_move_numa"),
        ("node_moves_numa", "kvm", 'sets = ["balance"]', ""),
        ("sched_move_numa", "kvm", 'sets = []\nevents = ["sched"]', ""),
        ("tasks_final_node1", "kvm", 'sets = ["numa"]', ""),
        (
            "tasks_final_node1",
            "kvm",
            'sets = []\nevents = ["sched:sched_stat_wait"]',
            "capture does not record sched_switch and sched_wakeup and sched_migrate_task",
        ),
        (
            "task_migrations",
            "icount",
            'filters = { "sched:sched_migrate_task" = "dest_cpu == 3" }',
            "capture filters sched_migrate_task",
        ),
        ("tasks_final_node1", "kvm", 'filters = { "sched:sched_switch" = "prev_pid == 1" }', ""),
        (
            "sched_move_numa",
            "kvm",
            'sets = []\nevents = ["sched"]\nfilters = { sched = "pid == 1" }',
            "capture filters sched_move_numa",
        ),
        ("perf_cycles", "kvm", "", "capture.perf_stat does not count it"),
        ("perf_cycles", "kvm", 'perf_stat = ["cycles"]', ""),
        ("perf_context_switches", "icount", 'perf_stat = ["numa"]', ""),
        ("perf_sched_move_numa", "icount", 'perf_stat = ["numa"]', ""),
        (
            "perf_task_clock",
            "icount",
            'perf_stat = ["task-clock"]',
            "times of mode icount are not those of hardware",
        ),
        ("numastat_numa_hit_node0", "kvm", "", "it needs capture.numastat = true"),
        ("allocations_local", "kvm", "numastat = true", ""),
        ("task_faults_shared", "kvm", 'sample = ["vmstat"]', 'it needs capture.sample = ["tasks"]'),
        ("task_faults_shared", "kvm", 'sample = ["tasks"]', ""),
        ("memory_lines", "icount", "", "only mode timed gives memory_lines"),
        ("memory_lines", "timed", "", ""),
        ("elapsed_time", "tcg", "", "times of mode tcg are not those of hardware"),
        ("elapsed_time", "timed", "", ""),
        ("throughput", "icount", "", "times of mode icount are not those of hardware"),
        ("throughput", "kvm", "", ""),
        ("vmstat_numa_hint_faults", "icount", "", ""),
    ],
)
def test_what_cannot_be_seen(
    tmp_path: Path, measure: str, mode: str, capture: str, reason: str
) -> None:
    said = refuted(tmp_path, measure, mode, capture)
    assert said == f"cannot be seen: {reason}" if reason else said.startswith("where ")


def test_a_bound_on_a_time_of_an_emulated_mode_is_judged(tmp_path: Path) -> None:
    said = refuted(tmp_path, "elapsed_time", "icount", claim=BOUND)
    assert said.startswith("FAILS with one run of new ")
    assert said.endswith("; times of mode icount are not those of hardware")
    assert "hardware" not in refuted(tmp_path, "elapsed_time", "kvm", claim=BOUND)
    said = refuted(tmp_path, "user_time", "icount", claim=BOUND)
    assert said == "cannot be seen: mode icount does not give user_time"


def test_a_mechanism_that_is_not_recorded_is_said(tmp_path: Path) -> None:
    same = f'{CHANGE.replace("lower", "same")}\nmechanism = "sched_move_numa"'
    said = refuted(tmp_path, "task_migrations", "kvm", 'sets = ["sched"]', same)
    assert said == (
        "cannot be seen: where nothing changes, as capture does not record sched_move_numa"
    )
    said = refuted(tmp_path, "task_migrations", "kvm", 'sets = ["sched", "numa"]', same)
    assert said.startswith("where new differs")


def test_a_measure_has_no_value_without_each_event_that_it_names() -> None:
    """A plan says so, unless one of the events is enough."""
    events = load_events(RunDir(project_dir() / RUN))
    every = {
        event.name for event in load_capture({"sets": ["sched", "numa"]}, Path("study")).events
    }
    of_trace = {
        family: [name for source in family.sources for name in source.what.split(", ")]
        for family in families()
        if [source.kind for source in family.sources] == [SourceKind.TRACE]
    }
    topology = load_topology("ring-4")
    for event in ("sched_switch", "sched_wakeup", "sched_migrate_task", "sched_move_numa"):
        recorded = every - {f"sched:{event}"}
        run = Recording(events, topology, tasks=("hog",), recorded=recorded)
        values = {measure.name: measure.value for measure in compute_measures(run)[0]}
        for family, needed in of_trace.items():
            named = [name for name in values if family.explain(name)]
            if event in needed:
                empty = all(values[name] is None for name in named)
                assert empty != family.any_event, (event, family.name)
