"""The study of stored results; it is not trusted, so its names never become paths."""

from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from numalab.document import check_document
from numalab.errors import UserError
from numalab.places import list_inputs
from numalab.results.layout import Results
from numalab.results.manifest import Manifest
from numalab.results.plan import StoredPlan
from numalab.study.claim_rules import check_texts
from numalab.study.machine_table import MachineTable
from numalab.study.model import Study, load_study, study_digest, study_table
from numalab.study.plan import Plan, machine_of, make_plan, plan_study, require_lab_names
from numalab.topology.load import list_topologies, read_topology_table, topology_to_dict
from numalab.topology.topology import Topology


def stored_study(stored: StoredPlan, results: Results) -> Study:
    """Return the study of some results. Raises UserError if this numalab cannot read it.

    Question, claims and key measures are those of the lab's file of this study, if its runs are
    the same: stored runs are judged by the claims of today. Raises UserError, too, for claims of
    today that cannot be read.
    """
    own = _own_study(stored)
    if own is not None:
        return own
    table = stored.file
    if isinstance(claims := table.get("claims"), list):
        # Claims about the spread of runs are not judged any more.
        judged = [c for c in claims if not (isinstance(c, dict) and "statistic" in c)]
        table = table | {"claims": judged}
    return check_document(table, Study, results.plan_file)


def judged_anew(stored: StoredPlan, study: Study) -> tuple[str, ...]:
    """Return the keys of `stored_study` that decide outcomes and changed since the runs' plan.

    Key measures are a family of the correction for multiple tests, and so are primary claims.
    """
    table = study_table(study)
    keys = ("claims", "primary_claims", "key_measures")
    # Older results lack a key that is unset.
    return tuple(k for k in keys if (table.get(k) or None) != (stored.file.get(k) or None))


def _own_study(stored: StoredPlan) -> Study | None:
    """Return the lab's study of this name; None if it lacks it, or its runs are others."""
    files = {path.stem: path for path in list_inputs("studies", "*.toml").values()}
    file = files.get(stored.study)
    study = None if file is None else _with_runs_of(stored, file)
    if file is not None and study is not None:
        check_texts(study, {}, file)
    return study


def _with_runs_of(stored: StoredPlan, file: Path) -> Study | None:
    """Return the study in a file; None if it cannot be read, or its runs are others."""
    with suppress(UserError):
        study = load_study(file, stored.preset or None)
        table = check_document(stored.file.get("machine", {}), MachineTable, Path("plan.json"))
        options = {"pages": table.pages, "emulator": table.emulator}  # of `numalab run`
        machine = study.machine.model_copy(update=options)
        study = study.model_copy(update={"machine": machine})
        if study_digest(study_table(study)) == study_digest(stored.file):
            return study
    return None


def plan_stored(stored: StoredPlan, results: Results, own: Path | None = None) -> Plan:
    """Return the plan that repeats stored runs.

    Kernels, topologies, workloads and images come from the user's lab, by their stored names. `own`
    is the user's file of the study, which may also name paths and packages. Raises UserError for a
    name that the lab lacks, and for a stored run that the study lacks.
    """
    study = stored_study(stored, results)
    if own is None:
        require_lab_names(study, results.plan_file)
        plan = replace(make_plan(study, results.plan_file, stored.preset), name=stored.study)
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
