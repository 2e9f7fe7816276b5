"""The variants of a cell, and the settings that all its guests share."""

import re
from collections.abc import Collection, Mapping, Sequence

from numalab.cpulist import format_cpulist
from numalab.report import document
from numalab.report.settings import GuestSettings
from numalab.results.manifest import Manifest
from numalab.results.reader import StoredRun, of_variant
from numalab.study.machine_table import GuestChange, MachineTable
from numalab.study.model import Study

_TUNABLES = re.compile("^(/proc/sys|/sys/kernel/debug/sched)/")
_CPU = re.compile("(?<=/cpu)([0-9]{1,4})(?=/)")


def describe_variants(
    study: Study, names: Sequence[str], runs: Sequence[StoredRun]
) -> tuple[document.VariantInfo, ...]:
    """Describe each variant as its first of these runs has it, with the tunables that differ."""
    firsts = {name: next(iter(of_variant(runs, name)), None) for name in names}
    shared = _shared([first.manifest for first in firsts.values() if first])
    return tuple(_variant(study, name, first, shared) for name, first in firsts.items())


def describe_settings(study: Study, label: str, runs: Sequence[StoredRun]) -> GuestSettings:
    """Describe what the guests of one use of a workload share, by its finished runs."""
    guests = (use.guest for use in study.workloads if use.label == label)
    first = runs[0].manifest
    return GuestSettings(
        tunables=_texts(_shared([run.manifest for run in runs])),
        cmdline=study.machine.cmdline + next(guests, GuestChange()).cmdline,
        pages="" if first.pages == MachineTable().pages else first.pages,
    )


def _shared(manifests: Sequence[Manifest]) -> dict[str, str | int]:
    """Return the tunables that all runs have alike."""
    first, *rest = (manifest.tunables for manifest in manifests)
    return {p: value for p, value in first.items() if all(own.get(p) == value for own in rest)}


def _texts(tunables: Mapping[str, str | int], but: Collection[str] = ()) -> tuple[str, ...]:
    """Write tunables as `PATH=VALUE`, equal ones of several CPUs as one with a cpulist."""
    cpus: dict[tuple[str, ...], list[int]] = {}
    for path, value in sorted(tunables.items()):
        if path not in but:
            before, *of_cpu = _CPU.split(f"{_TUNABLES.sub('', path)}={value}", maxsplit=1)
            cpus.setdefault((before, *of_cpu[1:]), []).extend(map(int, of_cpu[:1]))
    return tuple(format_cpulist(numbers).join(text) for text, numbers in cpus.items())


def _variant(
    study: Study, name: str, run: StoredRun | None, shared: Collection[str]
) -> document.VariantInfo:
    if run is None:
        return document.VariantInfo(name, study.variants[name].kernel, "no finished run", "", "")
    manifest = run.manifest
    kernel, scheduler = manifest.kernel, manifest.scheduler
    return document.VariantInfo(
        name=name,
        kernel=kernel.name,
        release=kernel.release,
        config_hash=kernel.config_hash,
        source_version=kernel.source_version,
        series=tuple(f"{s.name} ({_patches(s.patches)})" for s in kernel.series),
        compiler=kernel.compiler,
        scheduler=scheduler.title if scheduler else "",
        tunables=_texts(manifest.tunables, but=shared),
    )


def _patches(patches: Sequence[str]) -> str:
    return "1 patch" if len(patches) == 1 else f"{len(patches)} patches"
