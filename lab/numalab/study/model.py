"""The study file: a question, its matrix of runs, and the expected results."""

import hashlib
import json
import math
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, model_validator

from numalab.document import Document, check_document, read_document
from numalab.errors import UserError, did_you_mean
from numalab.guest.watch import Limits
from numalab.places import find_input, list_inputs, own_input
from numalab.study.axis import AxisValue, axis_labels, with_axes
from numalab.study.claims import MOST_PRIMARY, Claim, Name
from numalab.study.machine_table import GuestChange, MachineTable
from numalab.topology.file_format import TopologyFile

Finite = Annotated[float, Field(allow_inf_nan=False)]  # NaN differs from itself
Parameter = str | int | Finite
# A name, or the path of a build; kernels may also be packages and sources.
# A path of the user: any characters but control characters.
NameOrPath = Annotated[str, Field(pattern=r"^[^\x00-\x1f\x7f]+$", max_length=1000)]
Seed = Annotated[int, Field(ge=0, lt=1 << 32)]
MOST_COMBINATIONS = 1000  # of the values of all axes
# What a report says of the runs; no run depends on these keys.
_OF_REPORT = frozenset(
    {"question", "summary", "source", "claims", "primary_claims", "key_measures"}
)
FULL = "full"  # the preset that is the file itself unless it says otherwise


class Variant(Document):
    """One value on the axis that is compared."""

    kernel: NameOrPath
    """A name from `numalab kernel list`, or a source."""
    tunables: dict[str, str | int] = Field(default_factory=dict)
    """Files below /proc/sys or /sys, and the value written to each before the command."""
    # Not stored when unset: the digest of older results stays the same.
    scheduler: NameOrPath | None = Field(default=None, exclude_if=lambda name: name is None)
    """A sched_ext scheduler: a name from `numalab scheduler list`, CRATE@VERSION, or the path of a
    program or NAME.bpf.c, relative to the study. By default, tasks have EEVDF."""
    scheduler_arguments: tuple[str, ...] = Field(default=(), exclude_if=lambda words: not words)
    """Arguments of the scheduler's program."""
    scheduler_watchdog: Annotated[float, Field(ge=1, le=30)] | None = Field(
        default=None, exclude_if=lambda seconds: seconds is None
    )
    """Seconds that a task may wait before the scheduler is ejected."""

    @model_validator(mode="after")
    def _arguments_of_a_scheduler(self) -> "Variant":
        if self.scheduler_arguments and self.scheduler is None:
            raise ValueError("scheduler_arguments: needs `scheduler`")
        if self.scheduler_watchdog is not None and self.scheduler is None:
            raise ValueError("scheduler_watchdog: needs `scheduler`")
        return self


class WorkloadUse(Document):
    """A workload and its parameters in this study."""

    name: Name
    """A name from `numalab workload list`."""
    label: Name = ""
    """The name of this use; needed when one workload is used twice. By default the workload's
    name."""
    parameters: dict[str, Parameter] = Field(default_factory=dict)
    """Parameters that differ from the workload's defaults."""
    # Not stored when unset: the digest of older results stays the same.
    guest: GuestChange = Field(
        default=GuestChange(), exclude_if=lambda guest: guest == GuestChange()
    )
    """Settings of the guests of this use only."""

    @model_validator(mode="before")
    @classmethod
    def _labelled(cls, table: Any) -> Any:
        if isinstance(table, dict) and "label" not in table and "name" in table:
            return {**table, "label": table["name"]}
        return table


def _bounded(axes: dict[str, tuple[AxisValue, ...]]) -> dict[str, tuple[AxisValue, ...]]:
    if math.prod(map(len, axes.values())) > MOST_COMBINATIONS:
        raise ValueError(f"the values have more than {MOST_COMBINATIONS} combinations")
    return axes


_ShortValue = Annotated[str, Field(max_length=64)] | int | Finite
AxesTable = Annotated[
    dict[Name, Annotated[tuple[_ShortValue, ...], Field(min_length=1)]], AfterValidator(_bounded)
]


class Selection(Document):
    """A part of the matrix: the runs that match every axis named here."""

    topologies: tuple[str, ...] = ()
    """Topologies that match; all when empty."""
    workloads: tuple[Name, ...] = ()
    """Labels that match; all when empty."""
    variants: tuple[Name, ...] = ()
    """Variants that match; all when empty."""
    seeds: tuple[Seed, ...] = ()
    """Seeds that match; all when empty."""

    def matches(self, topology: str, label: str, variant: str, seed: int) -> bool:
        """Return whether a run belongs to this part."""
        return (
            (not self.topologies or topology in self.topologies)
            and (not self.workloads or label in self.workloads)
            and (not self.variants or variant in self.variants)
            and (not self.seeds or seed in self._seeds)
        )

    @cached_property
    def _seeds(self) -> frozenset[int]:
        return frozenset(self.seeds)


class Preset(Document):
    """Values that replace those of the file under `--preset NAME`."""

    topologies: tuple[str, ...] | None = None
    """Replaces the study's topologies."""
    workloads: tuple[Name, ...] | None = None
    """Labels to keep."""
    variants: tuple[Name, ...] | None = None
    """Variants to keep."""
    seeds: tuple[Seed, ...] | None = None
    """Replaces the study's seeds."""
    parameters: dict[Name, dict[str, Parameter]] = Field(default_factory=dict)
    """Parameters by label, over the study's."""
    axes: AxesTable | None = None
    """Replaces the study's axes."""
    include: tuple[Selection, ...] | None = None
    """Replaces the study's `include`."""
    exclude: tuple[Selection, ...] | None = None
    """Replaces the study's `exclude`."""


class LimitsTable(Document):
    """Wall-clock seconds until guests are lost; defaults except `run`: longer on slow hosts."""

    boot: float = Field(default=Limits.boot, gt=0, allow_inf_nan=False)
    """Until init reports (default: longer over 32 CPUs)."""
    silence: float = Field(default=Limits.silence, gt=0, allow_inf_nan=False)
    """Between two heartbeats."""
    run: float = Field(default=Limits.total, gt=0, allow_inf_nan=False)
    """Whole run."""


class CaseTable(Document):
    """A case of `numalab hunt`: a property and the kernels that violate it."""

    property: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.+/:-]*$", max_length=128)]
    """The hunt property that the case violates."""
    value: Finite
    """Its value."""
    most: Finite
    """The largest value that holds the property."""
    sentence: str
    """The violation as one sentence."""
    violated_by: tuple[NameOrPath, ...] = ()
    """Kernels on which the case violates the property."""
    holds_on: tuple[NameOrPath, ...] = ()
    """Kernels on which it holds."""


class Study(Document):
    """A question, the matrix of runs that answers it, and the expected results.

    `numalab.study.plan` checks the files that it names.
    """

    question: str
    """The question, as the report prints it first."""
    summary: str = ""
    """More about the question."""
    source: str = ""
    """The origin of the question, such as a mailing-list post."""
    topologies: tuple[str, ...] = Field(min_length=1)
    """Names from `numalab topology list`, or files."""
    image: NameOrPath = "base"
    """A name from `numalab image list`."""
    mode: Literal["auto", "kvm", "tcg", "icount", "timed"] = "auto"
    """How guests run; `auto` is kvm where a guest really runs in it, else icount."""
    seeds: tuple[Seed, ...] = Field(min_length=1)
    """One boot of each variant in each cell for each seed."""
    variants: dict[Name, Variant] = Field(min_length=1)
    """The kernels to compare; the first one is the baseline."""
    workloads: tuple[WorkloadUse, ...] = Field(min_length=1)
    """The loads; each use of a workload is a cell on each topology."""
    axes: AxesTable = Field(default_factory=dict)
    """Values of axes that plug-ins add; each value multiplies the uses of workloads."""
    include: tuple[Selection, ...] | None = None
    """Only runs that match one of these selections."""
    exclude: tuple[Selection, ...] = ()
    """No run that matches one of these selections."""
    presets: dict[Name, Preset] = Field(default_factory=dict)
    """Smaller or larger forms of the study; `full` is the file itself."""
    capture: dict[str, Any] = Field(default_factory=dict)
    """What a run records."""
    claims: tuple[Claim, ...] = ()
    """The expected results."""
    primary_claims: int | None = Field(default=None, ge=1, le=MOST_PRIMARY)
    """The number of primary claims of the post, where other studies have some of them."""
    key_measures: tuple[str, ...] = ()
    """Measures that the report shows first; by default those of the claims."""
    limits: LimitsTable = LimitsTable()
    """Deadlines."""
    machine: MachineTable = MachineTable()
    """Placement, memory and speed of the guests."""
    machines: dict[Name, TopologyFile] = Field(default_factory=dict)
    """Topologies of this study only, by the names in `topologies`."""
    case: CaseTable | None = None
    """Set in a case of `numalab hunt`."""

    @model_validator(mode="after")
    def _consistent(self) -> "Study":
        once = {
            "seeds": self.seeds,
            "topologies": self.topologies,
            "labels of workloads": self.labels,
            **{f"values of axes.{name}": values for name, values in self.axes.items()},
        }
        for axis, values in once.items():
            for value, times in Counter[Hashable](values).items():
                if times > 1:
                    raise ValueError(f"{axis}: {value!r} is a duplicate")
        for place, claim in enumerate(self.claims):
            _require_names(f"claims[{place}]", "variant", claim.variants, self.variants)
            _require_names(
                f"claims[{place}]", "workload", filter(None, [claim.workload]), self._named()
            )
        for key, axes, selections in self._selections():
            for place, selection in enumerate(selections):
                _require_names(
                    f"{key}[{place}]", "workload", selection.workloads, self._named(axes)
                )
                _require_names(f"{key}[{place}]", "variant", selection.variants, self.variants)
        for name, preset in self.presets.items():
            _require_names(f"presets.{name}", "workload", preset.workloads or (), self.labels)
            _require_names(f"presets.{name}", "workload", preset.parameters, self.labels)
            _require_names(f"presets.{name}", "variant", preset.variants or (), self.variants)
        return self

    def guest(self, label: str) -> GuestChange:
        """Return the settings of the guests of one use of a workload."""
        return next(use.guest for use in self.workloads if use.label == label)

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels of its workloads, in order."""
        return tuple(use.label for use in self.workloads)

    def _named(self, axes: AxesTable | None = None) -> tuple[str, ...]:
        """Return the labels of workloads, with the labels that axes make of them."""
        axes = self.axes if axes is None else axes
        made = (new for label in self.labels for new in axis_labels(label, axes))
        return tuple(dict.fromkeys([*self.labels, *made]))

    def _selections(self) -> Iterable[tuple[str, AxesTable | None, tuple[Selection, ...]]]:
        yield "include", None, self.include or ()
        yield "exclude", None, self.exclude
        for name, preset in self.presets.items():
            yield f"presets.{name}.include", preset.axes, preset.include or ()
            yield f"presets.{name}.exclude", preset.axes, preset.exclude or ()

    def has(self, topology: str, label: str, variant: str, seed: int) -> bool:
        """Return whether a run belongs to the matrix after `include` and `exclude`."""
        run = (topology, label, variant, seed)
        included = self.include is None or any(
            selection.matches(*run) for selection in self.include
        )
        return included and not any(selection.matches(*run) for selection in self.exclude)


def _require_names(key: str, what: str, names: Iterable[str], choices: Iterable[str]) -> None:
    valid = list(choices)
    for name in names:
        if name not in valid:
            hint = did_you_mean(name, valid)
            raise ValueError(f"{key}: no {what} {name!r}{hint} (valid: {', '.join(valid)})")


def find_study(name_or_path: str) -> Path:
    """Return the path of a study by path or by name. Raises UserError with valid names."""
    if (path := Path(name_or_path)).suffix == ".toml":
        return own_input(path)
    if entry := find_input("studies", f"{name_or_path}.toml"):
        return entry
    names = [path.stem for path in list_inputs("studies", "*.toml").values()]
    raise UserError(f"no study {name_or_path!r}", choices=names)


def load_study(path: Path, preset: str | None = None) -> Study:
    """Read and check a study file, and apply its axes and a preset.

    Raises UserError with file, key and valid choices.
    """
    study = read_document(path, Study)
    if preset is None or (preset == FULL and FULL not in study.presets):
        study = study.model_copy(update={"presets": {}})
    elif preset not in study.presets:
        names = dict.fromkeys([*study.presets, FULL])
        raise UserError(f"no preset {preset!r}", file=path, key="presets", choices=names)
    else:
        study = check_document(_with(study, study.presets[preset]), Study, path)
    if not study.axes:
        return study
    return check_document(with_axes(study_table(study), path), Study, path)


def study_table(study: Study) -> dict[str, Any]:
    """Return a study as the plain values of a file."""
    table = study.model_dump(mode="json", by_alias=True)
    # Keys newer than the first results; unset, they keep the digest of older results.
    newer = ("axes", "machines", "case", "primary_claims")
    return {key: value for key, value in table.items() if value or key not in newer}


def study_digest(table: Mapping[str, Any]) -> str:
    """Return the digest of what the runs of a study depend on, from its `study_table`.

    Results with another digest are not resumed. Claims, key measures and texts belong to the
    report: a change of them judges stored runs again, without a boot.
    """
    inputs = {key: value for key, value in table.items() if key not in _OF_REPORT}
    return hashlib.sha256(json.dumps(inputs, sort_keys=True).encode()).hexdigest()


def differing_inputs(old: Mapping[str, Any], new: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the keys that give two `study_table`s another digest, which 3 and 3.0 do."""
    keys = [key for key in dict.fromkeys((*new, *old)) if key not in _OF_REPORT]
    sides = [{key: json.dumps(side[key], sort_keys=True) for key in side} for side in (old, new)]
    return tuple(key for key in keys if sides[0].get(key) != sides[1].get(key))


def _with(study: Study, preset: Preset) -> dict[str, Any]:
    """Return the table of a study with the values of a preset."""
    table = study_table(study.model_copy(update={"presets": {}}))
    new = preset.model_dump(mode="json", by_alias=True)
    for key in ("topologies", "seeds", "axes", "include", "exclude"):
        if new[key] is not None:
            table[key] = new[key]
    if new["variants"] is not None:
        kept = {name: of for name, of in table["variants"].items() if name in new["variants"]}
        table["variants"] = kept  # in the file's order: its first one is the baseline
    keep = study.labels if preset.workloads is None else preset.workloads
    table["workloads"] = [
        {**use, "parameters": use["parameters"] | preset.parameters.get(use["label"], {})}
        for use in table["workloads"]
        if use["label"] in keep
    ]
    made = [new for label in keep for new in axis_labels(label, table.get("axes", {}))]
    remaining = {"workloads": [*keep, *made], "variants": [*table["variants"]]}
    table["claims"] = [claim for claim in table["claims"] if _applies(claim, remaining)]
    for key in ("include", "exclude"):
        if table[key] is not None:
            narrowed = (_narrowed(selection, remaining) for selection in table[key])
            table[key] = [selection for selection in narrowed if selection is not None]
    return table


def _applies(claim: Mapping[str, Any], remaining: Mapping[str, list[str]]) -> bool:
    """Return whether the variants and the workload of a claim remain in the study."""
    named = {claim[key] for key in ("variant", "from", "to")} - {None}
    labels = (None, *remaining["workloads"])
    return named <= set(remaining["variants"]) and claim["workload"] in labels


def _narrowed(
    selection: Mapping[str, Any], remaining: Mapping[str, list[str]]
) -> dict[str, Any] | None:
    """Limit a selection to the remaining values; None if it matches no run."""
    narrowed = dict(selection)
    for axis, values in remaining.items():
        narrowed[axis] = [value for value in selection[axis] if value in values]
        if selection[axis] and not narrowed[axis]:
            return None
    return narrowed
