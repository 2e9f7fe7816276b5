"""The study of stored results; it is not trusted, so its names never become paths."""

from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from numalab.document import check_document
from numalab.errors import UserError
from numalab.results.layout import Results
from numalab.results.manifest import Manifest
from numalab.results.plan import StoredPlan
from numalab.study.model import Study
from numalab.study.plan import Plan, machine_of, make_plan, plan_study, require_lab_names
from numalab.topology.load import list_topologies, read_topology_table, topology_to_dict
from numalab.topology.topology import Topology


def stored_study(stored: StoredPlan, results: Results) -> Study:
    """Return the study of some results. Raises UserError if this numalab cannot read it."""
    return check_document(stored.file, Study, results.plan)


def plan_stored(stored: StoredPlan, results: Results, own: Path | None = None) -> Plan:
    """Return the plan that repeats stored runs.

    Kernels, topologies, workloads and images come from the user's lab, by their stored names. `own`
    is the user's file of the study, which may also name paths and packages. Raises UserError for a
    name that the lab lacks, and for a stored run that the study lacks.
    """
    study = stored_study(stored, results)
    if own is None:
        require_lab_names(study, results.plan)
        plan = replace(make_plan(study, results.plan, stored.preset), name=stored.study)
    else:
        table = study.machine
        preset = stored.preset or None
        plan = plan_study(own, preset, pages=table.pages, emulator=table.emulator)
    for run in stored.runs:
        if run.variant not in plan.study.variants or run.cell not in plan.workloads:
            raise UserError(f"{run.id} is no run of this study", file=own or results.plan)
    return plan


def stored_topology(study: Study, run: Manifest, file: Path) -> Topology:
    """Return the topology of a stored run from its manifest `file`.

    An equal topology of the same name in the lab is preferred: it has a shape to draw. Raises
    UserError if the manifest describes no topology.
    """
    if run.topology in (*study.machines, *list_topologies()):
        with suppress(UserError):
            topology = machine_of(study, run.topology, file)
            if topology_to_dict(topology) == run.machine:
                return topology
    return read_topology_table(run.machine, file)
