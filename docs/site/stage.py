"""Stages the documentation site: pages, generated references, and the reports of the examples.

    python docs/site/stage.py TARGET

The layout is the repository's, so that links between pages hold there as well as here.
"""

import shutil
import sys
from pathlib import Path

import typer

from numalab.cli.main import COMMANDS, application
from numalab.report.formats.markdown import escaped
from numalab.reporting.build import gather
from numalab.reporting.publish import entries, publish
from numalab.results.layout import Results

ROOT = Path(__file__).parents[2]
PAGES = ("README.md", "CONTRIBUTING.md", "docs/**/*.md", "kernel-configs/series/*/README.md",
         "reports/examples/README.md", "workloads/*/README.md")  # fmt: skip
FILES = ("docs/img/**/*.svg", "docs/*.json", "reports/examples/*/changelog.txt",
         "reports/examples/group-construction/picture.png", "LICENSE")  # fmt: skip


def main(target: Path) -> None:
    """Fill `target`, which is emptied first."""
    shutil.rmtree(target, ignore_errors=True)
    for pattern in (*PAGES, *FILES):
        for path in ROOT.glob(pattern):
            place = target / path.relative_to(ROOT)
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, place)
    reference = target / "docs/reference/commands.md"
    reference.parent.mkdir(parents=True, exist_ok=True)
    reference.write_text(commands(), encoding="utf-8")
    pages = ["# The pages of the examples", "", "Built from the stored runs of each.", ""]
    for plan in sorted(ROOT.glob("reports/examples/*/plan.json")):
        pages += report(plan.parent, target / plan.parent.relative_to(ROOT))
    (target / "reports/examples/pages.md").write_text("\n".join(pages), encoding="utf-8")


def commands() -> str:
    """Render what `--help` says of every command."""
    lines = ["# Commands", "", "What `numalab COMMAND --help` prints.", ""]
    for name in COMMANDS:
        command = getattr(typer.main.get_command(application(name)), "commands")[name]  # noqa: B009
        context = typer.Context(command, info_name=f"numalab {name}")
        lines += [f"## {name}", "", "```", command.get_help(context), "```", ""]
        for below in getattr(command, "commands", {}).values():
            inner = typer.Context(below, info_name=below.name, parent=context)
            lines += [f"### {name} {below.name}", "", "```", below.get_help(inner), "```", ""]
    return "\n".join(lines)


def report(example: Path, target: Path) -> list[str]:
    """Write the pages of an example, and return what leads to them; the runs themselves stay in the
    repository."""
    shutil.copytree(example, target, dirs_exist_ok=True)
    results = Results(target)
    reports = gather(results)
    publish(reports, results)
    shutil.rmtree(target / "runs")
    lines = [f"## {example.name}", "", escaped(reports[0].question), ""]
    for report, entry in zip(reports, entries(reports, results, target.parent), strict=True):
        picture = f"{entry.link.rpartition('/')[0]}/picture.png"
        lines += [f"[{report.cell}]({entry.link}): {escaped(report.verdict)}", ""]
        lines += [f"[![]({picture})]({entry.link})", ""]
    return lines


if __name__ == "__main__":
    main(Path(sys.argv[1]))
