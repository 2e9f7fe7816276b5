"""Stored files of an older numalab, made into today's, one format at a time."""

from collections.abc import Callable, Mapping
from typing import Any

from numalab.cpulist import MAX_CPUS, parse_cpulist
from numalab.guest.witness import Doubt
from numalab.results.stored import FORMAT

Json = dict[str, Any]
Step = Callable[[Json], Json]


def upgraded(table: Json, steps: Mapping[int, Step]) -> Json:
    """Return a table of a readable format in today's; `steps` lead from each format to the next.

    Raises KeyError, TypeError, AttributeError or ValueError where the table is not of the format
    that it names.
    """
    for number in range(table["format"], FORMAT):
        table = {**steps[number](table), "format": number + 1}
    return table


def _unchanged(table: Json) -> Json:
    """Return a table of a format that lacked no more than keys which need not be there."""
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


def _manifest_3(run: Json) -> Json:
    """Format 3 said in words what was not as planned, and what was against timing or disturbed it.

    Against it were the words of the plan, then those of the proof.
    """
    upgraded = dict(run)
    differs = []
    if proof := run.get("proof"):
        differs = proof.get("differs", [])
        upgraded["proof"] = {**proof, "differs": [_note(words) for words in differs]}
    if timing := run.get("timing"):
        doubts = [_doubt(words, differs) for words in timing["against"]]
        upgraded["timing"] = {
            **timing,
            "against": list(dict.fromkeys(doubts)),
            "disturbs": [_note(words) for words in timing["disturbs"]],
        }
    return upgraded


def _manifest_4(run: Json) -> Json:
    """Format 4 said only in words which vCPUs a thread of QEMU runs."""
    if not (proof := run.get("proof")):
        return run
    upgraded = {**proof, "threads": _with_vcpus(proof["threads"])}
    if usage := proof.get("usage"):
        upgraded["usage"] = {**usage, "threads": _with_vcpus(usage["threads"])}
    return {**run, "proof": upgraded}


def _with_vcpus(threads: list[Json]) -> list[Json]:
    upgraded, count = [], 0
    for thread in threads:
        cpus = thread["role"].removeprefix("vcpu ")
        vcpus = () if cpus == thread["role"] else parse_cpulist(cpus)
        count += len(vcpus)
        if count > MAX_CPUS:
            raise ValueError(f"threads of more than {MAX_CPUS} vCPUs")
        upgraded.append({**thread, "vcpus": vcpus})
    return upgraded


def _note(words: str) -> Json:
    return {"kind": "note", "subject": words}


def _doubt(words: str, differs: list[str]) -> str:
    if words in differs:
        return Doubt.MISPLACED
    return Doubt.MODE if words == "not in kvm mode" else Doubt.PLAN


PLAN: Mapping[int, Step] = {1: _plan_1, 2: _plan_2, 3: _unchanged, 4: _unchanged}
MANIFEST: Mapping[int, Step] = {1: _manifest_1, 2: _unchanged, 3: _manifest_3, 4: _manifest_4}
