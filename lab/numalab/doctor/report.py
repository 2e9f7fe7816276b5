"""The report on mode kvm on this host: facts, verdict, plans, and a guest's proof."""

import os
import platform
import re
import resource
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from numalab.doctor.checks import Check, components
from numalab.doctor.private import PrivateNames, without_private
from numalab.errors import LabError
from numalab.guest.proof import Proof
from numalab.guest.verdicts import Verdict
from numalab.guest.witness import Timing
from numalab.host.facts import Host, host_to_dict
from numalab.limits.cgroup import usable_cpus
from numalab.placement.admission import guest_cpus, may_lock_memory, plan_guest
from numalab.topology.topology import Topology

FORMAT = 1
_MOST_TEXT = 4000
# CPU flags on which KVM, pinned timing and clocks depend.
_FLAGS = frozenset(
    (
        "hypervisor", "vmx", "svm", "npt", "ept", "vnmi", "avic", "x2apic", "tsc",
        "constant_tsc", "nonstop_tsc", "tsc_adjust", "tsc_deadline_timer", "tsc_scale",
        "arch_capabilities", "la57", "xsave", "pdpe1gb", "arch_perfmon",
    )
)  # fmt: skip
_PARAMETERS = frozenset(
    (
        "nested", "npt", "ept", "avic", "enable_apicv", "halt_poll_ns", "nx_huge_pages",
        "tdp_mmu", "preemption_timer",
    )
)  # fmt: skip


@dataclass(frozen=True)
class ProbeResult:
    """The result of one guest in mode kvm: its command's status, times in seconds, and its proof.

    `failed` is the reason, in words, why no guest ran; all else is then empty. `differs`:
    differences from the prediction.
    """

    topology: str
    pages: str
    failed: str = ""
    status: int | None = None
    wall_seconds: Mapping[str, float] | None = None
    guest_seconds: float = 0.0
    timing: Timing | None = None
    proof: Proof | None = None
    notes: tuple[str, ...] = ()
    differs: tuple[str, ...] = ()


@dataclass(frozen=True)
class PlannedGuest:
    """The placement that `plan` returns for a topology, or the reason why it fails."""

    topology: str
    host_nodes: tuple[int, ...] = ()
    vcpus: tuple[int, ...] = ()
    emulator: tuple[int, ...] = ()
    timing: bool = False
    distorts: tuple[str, ...] = ()
    failed: str = ""


def render_report(
    host: Host,
    checks: Iterable[Check],
    verdict: Verdict | None,
    topologies: Iterable[Topology],
    probe: ProbeResult,
    *,
    version: str,
    names: PrivateNames,
    root: Path = Path("/"),
) -> dict[str, object]:
    """Return the report as plain values for JSON, without `names` and paths.

    `version` is numalab's; `root` holds the host's /proc, /sys and /etc. Facts that the host lacks
    are empty.
    """
    value = {
        "report": FORMAT,
        "numalab": version,
        "versions": {"linux": platform.release(), **dict(components()), **_distribution(root)},
        "cpu": _cpu(root),
        "kvm": {
            "verdict": None if verdict is None else asdict(verdict),
            "parameters": _parameters(root),
            "clocksource": _line(
                root / "sys/devices/system/clocksource/clocksource0/current_clocksource"
            ),
        },
        "rights": {
            "root": os.getuid() == 0,
            "may_lock_memory": may_lock_memory(),
            "memlock_bytes": resource.getrlimit(resource.RLIMIT_MEMLOCK)[0],
            "cpus": usable_cpus(),
        },
        "host": host_to_dict(host),
        "checks": [
            {
                "name": check.name,
                "ok": check.ok,
                "needed": check.needed,
                "found": check.found[:_MOST_TEXT],
            }
            for check in checks
        ],
        "plans": [asdict(_planned(topology, host)) for topology in topologies],
        "probe": asdict(probe),
    }
    cleaned = without_private(value, names)
    assert isinstance(cleaned, dict)
    return cleaned


def _planned(topology: Topology, host: Host) -> PlannedGuest:
    try:
        made = plan_guest(topology, host, "kvm", guest_cpus(host))
    except LabError as error:
        return PlannedGuest(topology.name, failed=str(error)[:_MOST_TEXT])
    return PlannedGuest(
        topology.name, made.host_nodes, made.vcpus, made.emulator, made.timing, made.distorts
    )


def _distribution(root: Path) -> dict[str, str]:
    text = _text(root / "etc/os-release")
    release = dict(re.findall(r'^(ID|VERSION_ID)="?([\w.-]{1,40})"?$', text, re.MULTILINE))
    return {
        "distribution": " ".join(release[key] for key in ("ID", "VERSION_ID") if key in release)
    }


def _cpu(root: Path) -> dict[str, object]:
    """Return the first processor of /proc/cpuinfo, which holds no serial number."""
    first = _text(root / "proc/cpuinfo").partition("\n\n")[0]
    fields = dict(line.split(":", 1) for line in first.splitlines() if ":" in line)
    cpuinfo = {name.strip(): value.strip() for name, value in fields.items()}
    names = ("vendor_id", "cpu family", "model", "model name", "stepping", "microcode")
    facts: dict[str, object] = {name: cpuinfo[name] for name in names if name in cpuinfo}
    facts["flags"] = sorted(_FLAGS & set(cpuinfo.get("flags", "").split()))
    return facts


def _parameters(root: Path) -> dict[str, str]:
    parameters = {}
    for path in sorted(root.glob("sys/module/kvm*/parameters/*")):
        if path.name in _PARAMETERS:
            parameters[f"{path.parts[-3]}.{path.name}"] = _line(path)
    return parameters


def _line(path: Path) -> str:
    return _text(path).partition("\n")[0][:80]


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(1 << 16).decode("utf-8", "replace")
    except OSError:
        return ""
