"""Stages the documentation site: pages and the reports of the examples.

    python docs/site/stage.py TARGET

The layout is the repository's, so that links between pages hold there as well as here.
"""

import os
import shutil
import sys
from concurrent.futures import ProcessPoolExecutor
from contextlib import chdir
from itertools import chain
from multiprocessing import get_context
from pathlib import Path

from numalab.report.build.publish import links, publish
from numalab.report.build.study import gather
from numalab.report.formats.markdown import escaped
from numalab.results.layout import Results

ROOT = Path(__file__).parents[2]
PAGES = ("README.md", "CONTRIBUTING.md", "SECURITY.md", "docs/**/*.md",
         "kernel-configs/series/*/README.md", "reports/examples/README.md",
         "workloads/README.md", "kernel-configs/README.md", "images/README.md")  # fmt: skip
FILES = ("docs/site/site.css", "docs/img/**/*.svg", "docs/img/*.png", "docs/results/*.svg",
         "docs/results/*.jsonl", "docs/*.json", "LICENSE",
         "reports/examples/*/changelog.txt", "studies/experiments/**/*.*",
         "reports/examples/group-construction/picture.png")  # fmt: skip


def main(target: Path) -> None:
    """Fill `target`, which is emptied first."""
    shutil.rmtree(target, ignore_errors=True)
    for pattern in (*PAGES, *FILES):
        for path in ROOT.glob(pattern):
            place = target / path.relative_to(ROOT)
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, place)
    pages = ["# The pages of the examples", "", "Built from the stored runs of each.", ""]
    examples = [path.parent for path in sorted(ROOT.glob("reports/examples/*/changelog.txt"))]
    jobs = len(os.sched_getaffinity(0))
    with ProcessPoolExecutor(jobs, get_context("spawn")) as pool:  # polars' threads: no fork
        targets = [target / example.relative_to(ROOT) for example in examples]
        pages += chain.from_iterable(pool.map(report, examples, targets))
    (target / "reports/examples/pages.md").write_text("\n".join(pages), encoding="utf-8")


def report(example: Path, target: Path) -> list[str]:
    """Write the pages of an example, and return what leads to them; the runs themselves stay in the
    repository."""
    shutil.copytree(example, target, dirs_exist_ok=True)
    results = Results(target)
    with chdir(ROOT):  # the pages name the folder of the results
        study = gather(Results(example.relative_to(ROOT)))
    publish(study, results)
    shutil.rmtree(target / "runs", ignore_errors=True)
    lines = [f"## {example.name}", "", escaped(study.question), ""]
    for report, link in zip(study.reports, links(study, results, target.parent), strict=True):
        picture = f"{link.rpartition('/')[0]}/picture.png"
        lines += [f"[{report.cell}]({link}): {escaped(report.verdict)}", ""]
        lines += [f"[![]({picture})]({link})", ""]
    return lines


if __name__ == "__main__":
    main(Path(sys.argv[1]).absolute())
