"""The study of stored results, which may be a stranger's: names in it never become paths."""

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
    """Load what the study of some results refers to, to do its runs again.

    Kernels, machines, workloads and images are those of the user's lab that have the stored names.
    `own` is the user's own file of the study, which may also name paths and packages. Raises
    UserError for a name that the lab lacks, and for a stored run that the study lacks.
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
    """Return the machine of a stored run, as its manifest `file` describes it.

    If the user's lab has the same machine under its name, that one, which also has a shape to draw.
    Raises UserError if the manifest describes no machine.
    """
    if run.topology in (*study.machines, *list_topologies()):
        with suppress(UserError):
            topology = machine_of(study, run.topology, file)
            if topology_to_dict(topology) == run.machine:
                return topology
    return read_topology_table(run.machine, file)
