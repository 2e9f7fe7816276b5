"""Stored files of an older numalab, made into today's, one format at a time."""

from collections.abc import Callable, Mapping
from typing import Any

from numalab.results.stored import FORMAT

Json = dict[str, Any]
Step = Callable[[Json], Json]


def upgraded(table: Json, steps: Mapping[int, Step]) -> Json:
    """Return a table of a readable format in today's; `steps` lead from each format to the next.

    Raises KeyError, TypeError or AttributeError where the table is not of the format that it names.
    """
    for number in range(table["format"], FORMAT):
        table = {**steps[number](table), "format": number + 1}
    return table


def _plan_1(plan: Json) -> Json:
    """Format 1 named the workload of a run by its place in the study, and had no preset."""
    names = [use["name"] for use in plan["file"]["workloads"]]
    runs = [{**run, "workload": names[run["workload"]]} for run in plan["runs"]]
    path = plan.get("path", f"studies/{plan['study']}.toml")
    return {**plan, "path": path, "preset": "", "remarks": [], "runs": runs}


def _plan_2(plan: Json) -> Json:
    """Format 2 had remarks in words."""
    return {**plan, "remarks": [{"kind": "note", "text": text} for text in plan["remarks"]]}


def _manifest_1(run: Json) -> Json:
    """Format 1 knew one use of a workload, which had the workload's name."""
    return {**run, "workload": {"label": run["workload"]["name"], **run["workload"]}}


def _manifest_2(run: Json) -> Json:
    """Format 2 lacked only keys."""
    return run


PLAN: Mapping[int, Step] = {1: _plan_1, 2: _plan_2}
MANIFEST: Mapping[int, Step] = {1: _manifest_1, 2: _manifest_2}
