"""Reads the runs of results that exist, and explains what is wrong with them."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from lab.errors import UserError
from lab.store import READABLE, Results, RunDir, read_json
from lab.study.plan import Cell

Json = dict[str, Any]


@dataclass(frozen=True)
class StoredRun:
    """A finished run, as it was stored; `measures` by name."""

    directory: RunDir
    manifest: Json
    measures: Mapping[str, Json]

    @property
    def cell(self) -> Cell:
        """The cell of the matrix that it belongs to."""
        workload = self.manifest["workload"]
        return Cell(self.manifest["topology"], workload.get("label", workload["name"]))

    def value(self, measure: str) -> float | int | None:
        """Return what the run measured, None where it could not or does not know the measure."""
        found = self.measures.get(measure)
        return None if found is None else found["value"]


@contextmanager
def damage_explained(path: Path) -> Iterator[None]:
    """Turn what reading a damaged file of results raises into a UserError that names `path`."""
    try:
        yield
    except (
        KeyError,
        TypeError,
        AttributeError,
        ValueError,
        OSError,
        pl.exceptions.PolarsError,
    ) as error:
        reason = f"{type(error).__name__}: {str(error)[:200]}"
        raise UserError(f"a file of these results is damaged ({reason})", file=path) from error


def load_runs(results: Results) -> tuple[Json, tuple[StoredRun, ...]]:
    """Load the plan and all finished runs, in the order of the plan.

    Raises UserError when there are none or another numalab wrote them, and anything that
    `damage_explained` knows when they are damaged.
    """
    plan = load_plan(results)
    order = {run["id"]: place for place, run in enumerate(plan["runs"])}
    runs = [load_run(directory) for directory in results.finished().values()]
    runs.sort(key=lambda run: order.get(run.manifest["run"], len(order)))
    if not runs:
        raise UserError("no run has finished", file=results.path)
    return plan, tuple(runs)


def load_plan(results: Results) -> Json:
    """Load what was planned, in today's format.

    Raises UserError when another numalab wrote it. Format 1 named the workload of a run by its
    place in the study.
    """
    plan: Json = read_json(results.plan)
    found = plan.get("format")
    if found not in READABLE:
        formats = " and ".join(map(str, READABLE))
        raise UserError(
            f"written by another numalab: format {found}, this one reads {formats}",
            file=results.plan,
        )
    if found == 1:
        names = [use["name"] for use in plan["file"]["workloads"]]
        runs = [{**run, "workload": names[run["workload"]]} for run in plan["runs"]]
        plan = {**plan, "preset": "", "remarks": [], "runs": runs}
    return plan


def failed_runs(results: Results, plan: Json, cell: Cell) -> tuple[Json, ...]:
    """Return the manifests of the planned runs of a cell that failed and were not done since."""
    finished = results.finished()
    names = [run["id"] for run in plan["runs"] if Cell(run["topology"], run["workload"]) == cell]
    paths = (results.failed(name).manifest for name in names if name not in finished)
    return tuple(read_json(path) for path in paths if path.exists())


def load_run(directory: RunDir) -> StoredRun:
    """Load one finished run; raises what `damage_explained` knows."""
    stored = read_json(directory.measures)
    if not isinstance(stored, list):
        raise TypeError(f"{directory.measures.name} is not a list")
    measures = {each["name"]: each for each in stored}
    return StoredRun(directory, read_json(directory.manifest), measures)
