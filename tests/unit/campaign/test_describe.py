"""What a manifest says of what went in and how it came out."""

import hashlib
import platform
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from numalab.campaign import build
from numalab.campaign.build import BuiltStudy
from numalab.campaign.measure import describe_recording
from numalab.campaign.run_task import describe_host
from numalab.campaign.task import describe_inputs, describe_memory, make_tasks
from numalab.capture.counters import BufferStats
from numalab.capture.decode import Decoded
from numalab.guest.kvm import Choice
from numalab.kernel.kernel_artifact import BuiltKernel
from numalab.kernel.kernel_specs import KernelSpec
from numalab.topology.load import load_topology
from numalab.workload import workload_files
from support.fake_executor import kernel, ready


@pytest.fixture
def study(tmp_path: Path) -> BuiltStudy:
    return ready(tmp_path)


def test_inputs_name_all_that_makes_another_run(study: BuiltStudy) -> None:
    first, *_, last = study.plan.runs
    inputs, other = (
        describe_inputs(study.plan, run, study.builds, study.setting.choice)
        for run in (first, last)
    )
    assert (inputs.run, inputs.seed, inputs.variant) == (first.id, first.seed, first.variant)
    built = study.builds.kernels[study.plan.study.variants[first.variant].kernel]
    assert (inputs.kernel.digest, inputs.kernel.release) == (built.digest, built.release)
    files = study.builds.files[inputs.workload.name]
    assert inputs.workload.files == {
        name: hashlib.sha256(data).hexdigest() for name, data in files.items()
    }
    assert inputs.variant != other.variant and inputs.differs_from(other).startswith("kernel ({")
    assert inputs.status is None and inputs.started == ""


def test_each_variant_runs_the_kernel_that_its_text_names(
    study: BuiltStudy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Of `linux-source-6.1/bookworm+fix` the kernel is called `bookworm+fix`, and of another source
    # it may be, too.
    texts = {name: f"/{name}/linux+fix" for name in study.plan.study.variants}
    variants = {
        name: variant.model_copy(update={"kernel": texts[name]})
        for name, variant in study.plan.study.variants.items()
    }
    (spec, _) = study.plan.kernels.values()
    plan = replace(
        study.plan,
        study=study.plan.study.model_copy(update={"variants": variants}),
        kernels={text: replace(spec, name="linux+fix", source=text) for text in texts.values()},
    )

    def ensure_kernel(spec: KernelSpec, **_: object) -> BuiltKernel:
        return replace(kernel(spec.name, tmp_path / "bzImage"), source_version=spec.source)

    monkeypatch.setattr(build, "ensure_kernel", ensure_kernel)
    monkeypatch.setattr(build, "ensure_image", lambda *_, **__: study.builds.image)
    monkeypatch.setattr(workload_files, "build_workload", lambda *_: {"program": b"a"})
    tasks = make_tasks(replace(study, plan=plan, builds=build.build_plan(plan)))
    assert {task.run.variant: task.built.source_version for task in tasks} == texts
    assert {task.manifest.kernel.name for task in tasks} == {"linux+fix"}


@pytest.mark.parametrize("change", [{"parser": "other"}, {"metrics": ()}])
def test_metrics_that_are_read_otherwise_make_another_run(
    study: BuiltStudy, change: dict[str, Any]
) -> None:
    plan, first, choice = study.plan, study.plan.runs[0], study.setting.choice
    workloads = {cell: replace(bound, **change) for cell, bound in plan.workloads.items()}
    inputs = describe_inputs(plan, first, study.builds, choice)
    other = describe_inputs(replace(plan, workloads=workloads), first, study.builds, choice)
    assert plan.workload_of(first).metrics
    assert inputs.differs_from(other).startswith("metrics of the workload (")


def test_the_seed_alone_makes_no_other_variant(study: BuiltStudy) -> None:
    first = study.plan.runs[0]
    again = next(
        run for run in study.plan.runs if run.variant == first.variant and run.seed != first.seed
    )
    inputs, other = (
        describe_inputs(study.plan, run, study.builds, study.setting.choice)
        for run in (first, again)
    )
    assert inputs.differs_from(other) == ""


def test_of_mode_timed_it_says_what_times_are_made_of(study: BuiltStudy) -> None:
    choice = Choice("timed", "host", "asked for")
    inputs = describe_inputs(study.plan, study.plan.runs[0], study.builds, choice)
    table = study.plan.study.machine
    assert table.instruction_ns is None
    assert inputs.mode_reason == (
        f"asked for; quantum of {table.quantum_ns / 1000:g} us,"
        " a vCPU executes 250 million instructions a second"
    )
    topology = study.plan.topologies[study.plan.runs[0].topology]
    assert inputs.memory == describe_memory(topology)
    changed = inputs.memory.model_copy(update={"llc_groups": 99})
    what = 'memory model ({"llc_groups": 4}, {"llc_groups": 99})'
    assert inputs.differs_from(inputs.but(memory=changed)) == what


def test_slow_motion_is_told_with_what_it_comes_to(study: BuiltStudy) -> None:
    machine = study.plan.study.machine.model_copy(update={"slow_motion": 8})
    plan = replace(study.plan, study=study.plan.study.model_copy(update={"machine": machine}))
    choice = Choice("timed", "host", "asked for")
    inputs = describe_inputs(plan, plan.runs[0], study.builds, choice)
    assert inputs.mode_reason == (
        "asked for; quantum of 80 us, a vCPU executes 31.25 million instructions a second,"
        " in slow motion (8 times)"
    )


def test_the_memory_model_of_a_machine() -> None:
    model = describe_memory(load_topology("ring-4"))
    assert model.latency_ns == ((90, 180, 270, 180), (180, 90, 180, 270),
                                (270, 180, 90, 180), (180, 270, 180, 90))  # fmt: skip
    assert model.llc_groups == 4
    near, far = model.bandwidth_mb_s[0][0], model.bandwidth_mb_s[0][2]
    assert near > far > 0
    assert model.l1.hit_ns < model.l2.hit_ns < model.llc.hit_ns


def test_a_host_is_described_without_its_name() -> None:
    host = describe_host()
    assert host.cpus and host.memory_mib > 0
    assert platform.node() not in host.kernel + host.processor


def stats(cpu: int, overrun: int) -> BufferStats:
    return BufferStats(cpu, entries=10, overrun=overrun, commit_overrun=0, dropped=0)


@pytest.mark.parametrize(
    ("decoded", "overruns", "lost", "whole"),
    [
        (Decoded(events=20), (0, 0), 0, True),
        (Decoded(events=20, lost=5, gaps=1), (0, 0), 5, False),
        (Decoded(events=20, lost=0, gaps=1), (30, 12), 42, False),  # the buffers know better
        (Decoded(events=20), (7, 0), 7, False),
        (Decoded(events=20, unsound=1), (0, 0), 0, False),
    ],
)
def test_what_is_missing_of_a_recording(
    decoded: Decoded, overruns: tuple[int, ...], lost: int, *, whole: bool
) -> None:
    recording = describe_recording(decoded, [stats(cpu, n) for cpu, n in enumerate(overruns)])
    assert (recording.events, recording.lost, recording.whole) == (20, lost, whole)
