"""The mode of the runs in a report, and what its figures are valid for."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from pydantic import computed_field

from numalab.measure import MeasureKind

# `recording`: a trace.dat that numalab measured without a guest.
Mode = Literal["kvm", "tcg", "icount", "timed", "recording"]

MODE_NOTES: Mapping[Mode, str] = {
    "kvm": "hardware virtualisation",
    "tcg": "emulation",
    "icount": "deterministic emulation",
    "timed": "deterministic emulation, CPUs side by side",
    "recording": "a trace.dat, measured without a guest",
}
_PLACEMENT = "placement: which CPU or node was used, and how often; "
_PLACEMENT_NOTES: Mapping[Mode, str] = {
    "kvm": f"{_PLACEMENT}where it depends on time, valid as timing is",
    "tcg": f"{_PLACEMENT}where it depends on time, not valid for hardware",
    "icount": f"{_PLACEMENT}valid for a machine where idle CPUs and far memory cost no time",
    "timed": f"{_PLACEMENT}where it depends on time, as valid as the simulated time",
    "recording": f"{_PLACEMENT}on the machine that was recorded",
}
_VIRTUAL = "counted in guest instructions; repeatable, but not the speed of any hardware"
_TIMING_NOTES: Mapping[Mode, str] = {
    "kvm": "timing: host time; valid only if all variants had the same placement on the host",
    "tcg": "timing: host time of emulated CPUs; not valid for hardware, do not quote",
    "icount": f"timing: virtual time, {_VIRTUAL}",
    "timed": f"timing: virtual time of CPUs that run side by side, {_VIRTUAL}",
    "recording": "timing: the trace clock of the machine that was recorded",
}
IDENTIFIER_NOTE = "identifier: a name such as a CPU number; not compared"
MODELLED_NOTE = (
    "modelled: simulated from instructions, caches, distances and queues (mode timed); "
    "repeatable, but not the time of any hardware"
)


@dataclass(frozen=True)
class RunMode:
    """The mode of the runs, why it was chosen, and what figures of each kind are valid for.

    `model` describes the memory model of mode `timed` in lines of text; it is empty in other modes.
    """

    name: Mode
    reason: str = ""
    model: tuple[str, ...] = ()

    @computed_field
    @property
    def placement(self) -> str:
        """What placement figures are valid for."""
        return _PLACEMENT_NOTES[self.name]

    @computed_field
    @property
    def timing(self) -> str:
        """What timing figures are valid for."""
        return _TIMING_NOTES[self.name]

    @computed_field
    @property
    def modelled(self) -> str:
        """What modelled figures are valid for; empty without a memory model."""
        return MODELLED_NOTE if self.model else ""

    @property
    def is_recording(self) -> bool:
        """Whether numalab booted nothing: no seed, no time and no host of a run is known."""
        return self.name == "recording"

    @property
    def title(self) -> str:
        """The mode and what it is: `icount, deterministic emulation`."""
        return f"{self.name}, {MODE_NOTES[self.name]}"

    def note(self, kind: MeasureKind) -> str:
        """Return what figures of one kind are valid for, in one line."""
        match kind:
            case MeasureKind.PLACEMENT:
                return self.placement
            case MeasureKind.MODELLED:
                return MODELLED_NOTE
            case MeasureKind.IDENTIFIER:
                return IDENTIFIER_NOTE
        return self.timing
