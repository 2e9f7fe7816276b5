"""Build and run the steps of a bisection on this host, and store the results."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from numalab.artifact.digest import digest_of
from numalab.bisect.bisect import Bisection, OnTried, StepValues, bisect
from numalab.bisect.history import History, Step
from numalab.campaign.build import Builds, BuiltStudy, Setting, build, choose_plan_mode
from numalab.campaign.execute import Failure, OnEvent, Schedule, execute
from numalab.campaign.resume import OnWait
from numalab.campaign.stopping import StoppingRule
from numalab.errors import BuildError, HostError, LabError, UserError
from numalab.files import make_dir, write_json
from numalab.measure import MeasureKind, differing
from numalab.progress import Progress
from numalab.qemu.hypervisor import EMBED
from numalab.report.build.verdicts import untimed
from numalab.results.layout import Results
from numalab.results.plan import Cell, planned_run
from numalab.results.reader import StoredRun, load_runs
from numalab.statistics.comparison import FEWEST
from numalab.study.plan import Plan, select


@dataclass(frozen=True)
class Bench:
    """The setup of a bisection: a cell of a study, with the tunables of a variant."""

    plan: Plan
    cell: Cell
    variant: str
    folder: Path
    mode: str
    jobs: int | None = None
    connection: str = EMBED

    def seeds(self, count: int) -> tuple[int, ...]:
        """Return the first seeds: the study's own, then those after its largest."""
        own = self.plan.study.seeds
        return (*own, *range(max(own) + 1, max(own) + 1 + count))[:count]


def bench_folder(plan: Plan, cell: Cell, variant: str, mode: str, history: History) -> str:
    """Return the folder name of a bisection; the same bisection continues in it."""
    spec = history.good.spec
    specs = [[spec.source, *spec.series, *spec.fragments]]
    digest = digest_of([plan.digest, str(cell), variant, mode, specs])
    return f"bisect-{history.key}-{digest[:8]}"


class Measuring:
    """Builds and runs steps on this host (a `Take`); each step has its own results."""

    def __init__(
        self,
        bench: Bench,
        measure: str,
        on_progress: Progress | None,
        watch: Callable[[Schedule], OnEvent],
        on_wait: OnWait | None = None,
    ) -> None:
        self._bench, self._measure = bench, measure
        self._on_progress, self._watch, self._on_wait = on_progress, watch, on_wait
        self._prepared: dict[str, Builds | LabError] = {}
        self._setting: Setting | None = None
        self._compared: list[StoredRun] = []

    def __call__(self, steps: Sequence[Step], count: int) -> list[StepValues]:
        """Measure steps in `count` runs each.

        Raises HostError when this host made a run fail, UserError where runs define the measure in
        several ways.
        """
        ready = {}
        for step in steps:
            prepared = self._build(step)
            if isinstance(prepared, Builds):
                results = Results(self._bench.folder / step.name)
                setting = self._set(prepared)
                ready[step.name] = BuiltStudy(self._plan(step, count), prepared, results, setting)
        for study in ready.values():
            make_dir(study.results.path)
        failures = execute(
            list(ready.values()),
            self._bench.jobs,
            self._watch,
            fail_fast=True,
            on_wait=self._on_wait,
        )
        for failure in failures:
            if failure.ended.by_host:
                raise HostError(f"{failure.ended.run}: {failure.ended.error}")
        return [self._values(step, ready.get(step.name), failures) for step in steps]

    def _build(self, step: Step) -> Builds | LabError:
        """Build a step's kernel once; return why it cannot be built."""
        if step.name not in self._prepared:
            try:
                plan = self._bench.plan
                self._prepared[step.name] = build(
                    [step.spec], plan.recipe, plan.workloads.values(), self._on_progress
                )
            except (BuildError, UserError) as error:  # such as an option that it does not have
                self._prepared[step.name] = error
        return self._prepared[step.name]

    def _set(self, prepared: Builds) -> Setting:
        """Choose the mode with the first kernel, for all steps.

        Kernels within a series may have other sched domains than predicted.
        """
        if self._setting is None:
            bench = self._bench
            choice = choose_plan_mode(
                bench.plan, bench.mode, prepared, bench.connection, self._on_progress
            )
            self._setting = Setting(choice, bench.connection, allow_mismatch=True)
        return self._setting

    def _plan(self, step: Step, count: int) -> Plan:
        plan, cell = self._bench.plan, self._bench.cell
        variant = plan.study.variants[self._bench.variant]
        texts = dict(zip(plan.topologies, plan.study.topologies, strict=True))
        study = plan.study.model_copy(
            update={
                "variants": {step.name: variant.model_copy(update={"kernel": step.spec.name})},
                "topologies": (texts[cell.topology],),
                "workloads": tuple(u for u in plan.study.workloads if u.label == cell.label),
                "include": None,
                "exclude": (),
                "claims": (),
                "key_measures": (self._measure,),
            }
        )
        runs = [planned_run(cell, step.name, seed) for seed in self._bench.seeds(count)]
        stepped = replace(plan, study=study, kernels={step.spec.name: step.spec})
        return select(stepped, runs)

    def _values(
        self, step: Step, study: BuiltStudy | None, failures: Sequence[Failure]
    ) -> StepValues:
        if study is None:
            error = self._prepared[step.name]
            assert isinstance(error, LabError)
            return StepValues(skipped=str(error), exit_code=error.exit_code)
        failed = [failure.ended for failure in failures if failure.results == study.results]
        if failed:
            reason = f"{failed[0].run}: {failed[0].error}"
            return StepValues(skipped=reason, exit_code=failed[0].exit_code)
        wanted = {run.id for run in study.plan.runs}
        if not wanted <= set(study.results.finished()):
            return StepValues(skipped="its runs were not done, as others failed", exit_code=1)
        runs = [run for run in load_runs(study.results)[1] if run.id in wanted]
        self._compared += runs
        _require_one_meaning(self._measure, self._compared, self._bench.folder)
        values = tuple(run.value(self._measure) for run in runs)
        return StepValues(values, untimed=self._untimed(runs))

    def _untimed(self, runs: Sequence[StoredRun]) -> str:
        measures = (run.measures.get(self._measure) for run in runs)
        timing = any(
            measure is not None and measure.info.kind == MeasureKind.TIMING for measure in measures
        )
        return untimed(runs) if timing else ""


def run_bisection(
    bench: Bench,
    history: History,
    rule: StoppingRule,
    *,
    on_tried: OnTried,
    on_progress: Progress | None,
    watch: Callable[[Schedule], OnEvent],
    on_wait: OnWait | None = None,
) -> Bisection:
    """Bisect with guests in the folder of the bench; finished runs are not repeated.

    Raises HostError when this host fails; the same call then goes on.
    """
    take = Measuring(bench, rule.measure, on_progress, watch, on_wait)
    fewest = min(FEWEST, len(bench.plan.study.seeds))
    bisection = bisect(history, rule, fewest, take, on_tried)
    table = {
        "measure": bisection.measure,
        "first": [step.name for step in bisection.first],
        "ended": bisection.ended,
        "rows": [{**vars(row), "values": list(row.values)} for row in bisection.rows],
    }
    make_dir(bench.folder)
    write_json(bench.folder / "bisect.json", table)
    return bisection


def _require_one_meaning(measure: str, runs: Sequence[StoredRun], file: Path) -> None:
    """Raise UserError if runs define a measure in several ways: their values do not compare.

    The results in `file` have runs of two versions of numalab or of a plug-in.
    """
    infos = [run.measures[measure].info for run in runs if measure in run.measures]
    if what := differing(infos):
        changed = f"its {' and '.join(what)} changed between the runs"
        raise UserError(f"{measure} cannot be tested: {changed}; start anew", file=file)
