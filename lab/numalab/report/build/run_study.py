"""A whole study as one call: what `numalab run` does, without its terminal."""

from pathlib import Path

from numalab.campaign.build import build_study
from numalab.campaign.execute import execute
from numalab.errors import UserError
from numalab.files import make_dir
from numalab.progress import Progress, no_progress
from numalab.report.build.publish import publish
from numalab.report.build.study import gather
from numalab.report.document import StudyResults
from numalab.results.layout import Results
from numalab.study.model import find_study
from numalab.study.plan import plan_study


def run_study(
    study: str | Path,
    output: str | Path,
    *,
    preset: str | None = None,
    mode: str | None = None,
    jobs: int | None = None,
    on_progress: Progress = no_progress,
) -> StudyResults:
    """Run a study, write its report, and return its results.

    `study` is a name from `numalab plan` or a file; `output` is the folder of the results, whose
    finished runs are kept. `jobs` guests run at once. Runs that failed are in the results. The
    guests run in worker processes, which import the main module: call this below `if __name__ ==
    "__main__":`. Raises UserError, HostError and BuildError.
    """
    if jobs is not None and jobs < 1:
        raise UserError(f"{jobs} guests cannot run a study", key="jobs")
    plan = plan_study(find_study(str(study)), preset)
    results = Results(Path(output))
    make_dir(results.path)
    built = build_study(plan, results, mode or plan.study.mode, on_progress=on_progress)
    failures = execute([built], jobs, lambda _: lambda _: None)
    outcome = gather(results, {failure.ended.run: failure.ended.error for failure in failures})
    publish(outcome, results)
    return outcome
