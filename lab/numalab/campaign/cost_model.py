"""The wall time of a run: the median of earlier runs on this host, else an estimate."""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Annotated

from pydantic import Field

from numalab.document import read_record
from numalab.files import write_json
from numalab.locks import locked
from numalab.machine.model import DETERMINISTIC, Mode
from numalab.places import cache_dir
from numalab.study.machine_table import MachineTable
from numalab.topology.load import topology_to_dict
from numalab.topology.topology import Topology
from numalab.workload.workload import BoundWorkload

KEPT = 9  # the latest runs of a kind that are stored

_TCG_SLOWDOWN = 2.0
_ORDINARY = MachineTable()

_Speed = tuple[int, int | None, int, str | None]

_Seconds = Annotated[float, Field(ge=0, le=1e9)]


@dataclass(frozen=True)
class _Pace:
    """Wall seconds: of boot and collection, the same for each vCPU, and of a busy vCPU-second."""

    fixed: float
    per_cpu: float
    per_busy_second: float


# icount: from runs of bound-hogs on ring-4 and mesh-8 (2 CPUs, icount shift 3).
_PACE = _Pace(3.5, 0.15, 0.16)
# timed: from the runs in reports/examples. Most of it is the memory model; a busy second takes
# 0.2 to 4.4 s, depending on the memory accesses of the workload.
_PACE_TIMED = _Pace(10, 0.4, 1.3)


@dataclass(frozen=True)
class Cost:
    """Wall seconds of a run: the median of `learned_from` runs; an estimate if that is 0."""

    seconds: float
    learned_from: int = 0


class Costs:
    """The costs of runs on this host, by workload, machine, mode and speed of the guest."""

    def __init__(self) -> None:
        self._known = _read(_path())
        self._keys: dict[tuple[int, int, Mode, _Speed], str] = {}

    def of(
        self,
        topology: Topology,
        workload: BoundWorkload,
        mode: Mode,
        machine: MachineTable = _ORDINARY,
    ) -> Cost:
        """Return the cost of a run, which does not depend on its kernel."""
        learned = self._known.get(self._key(topology, workload, mode, machine), [])
        if learned:
            return Cost(median(learned), len(learned))
        return Cost(estimate(topology, workload, mode, machine.slow_motion))

    def learn(
        self,
        topology: Topology,
        workload: BoundWorkload,
        mode: Mode,
        seconds: float,
        machine: MachineTable = _ORDINARY,
    ) -> None:
        """Store the wall time of a run, for this process and later ones."""
        key = self._key(topology, workload, mode, machine)
        with locked(cache_dir("costs") / "lock"):
            self._known = _read(_path())
            self._known[key] = [*self._known.get(key, []), round(seconds, 2)][-KEPT:]
            write_json(_path(), self._known)

    def _key(
        self, topology: Topology, workload: BoundWorkload, mode: Mode, machine: MachineTable
    ) -> str:
        # A matrix looks up the same few objects 100,000 times.
        place = (id(topology), id(workload), mode, _speed(machine))
        if place not in self._keys:
            self._keys[place] = _key(topology, workload, mode, machine)
        return self._keys[place]


def estimate(
    topology: Topology, workload: BoundWorkload, mode: Mode, slow_motion: int = 1
) -> float:
    """Estimate the wall seconds of a run without an earlier one."""
    cpus = topology.cpu_count
    pace = _PACE_TIMED if mode == "timed" else _PACE
    fixed = pace.fixed + pace.per_cpu * cpus
    if mode in DETERMINISTIC:
        times = slow_motion if mode == "timed" else 1
        busy = len(workload.allowed_cpus)
        return fixed + pace.per_busy_second * busy * workload.seconds / times
    return fixed + workload.seconds * (_TCG_SLOWDOWN if mode == "tcg" else 1)


def _speed(machine: MachineTable) -> _Speed:
    return machine.slow_motion, machine.instruction_ns, machine.quantum_ns, machine.emulator


def _key(topology: Topology, workload: BoundWorkload, mode: Mode, machine: MachineTable) -> str:
    parts: list[object] = [topology_to_dict(topology), list(workload.argv), mode]
    if (speed := _speed(machine)) != _speed(_ORDINARY):
        parts.append(speed)
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:24]


def _path() -> Path:
    return cache_dir("costs") / "runs.json"


def _read(path: Path) -> dict[str, list[float]]:
    """Read the costs of earlier runs; none if the file is damaged."""
    return read_record(path, dict[str, list[_Seconds]]) or {}
