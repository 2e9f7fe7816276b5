"""Stages the documentation site: pages, generated references, and the reports of the examples.

    python docs/site/stage.py TARGET

The layout is the repository's, so that links between pages hold there as well as here.
"""

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import typer
from pydantic import BaseModel

from numalab.cli.main import COMMANDS, application
from numalab.emulator.emulator_specs import EmulatorsFile
from numalab.host.read import HostFile
from numalab.image.recipe import RecipeTable
from numalab.kernel.kernel_specs import KernelsFile
from numalab.report.build.publish import links, publish
from numalab.report.build.study import gather
from numalab.report.formats.markdown import escaped
from numalab.results.layout import Results
from numalab.results.manifest import Manifest
from numalab.results.plan import StoredPlan
from numalab.results.stored import StoredMeasure
from numalab.study.model import Study
from numalab.topology.file_format import TopologyFile
from numalab.workload.workload_table import WorkloadTable

Schema = dict[str, Any]
ROOT = Path(__file__).parents[2]
PAGES = ("README.md", "CONTRIBUTING.md", "SECURITY.md", "docs/**/*.md",
         "kernel-configs/series/*/README.md", "reports/examples/README.md",
         "workloads/*/README.md")  # fmt: skip
FILES = ("docs/site/site.css", "docs/img/**/*.svg", "docs/*.json", "LICENSE",
         "reports/examples/*/changelog.txt",
         "reports/examples/group-construction/picture.png")  # fmt: skip

# What people write, and what programs read of a result.
MODELS: dict[str, type[BaseModel]] = {
    "topologies/NAME.toml": TopologyFile,
    "studies/NAME.toml": Study,
    "workloads/NAME/workload.toml": WorkloadTable,
    "kernels.toml": KernelsFile,
    "emulators.toml": EmulatorsFile,
    "images/NAME.toml": RecipeTable,
    "A host (--host)": HostFile,
    "plan.json": StoredPlan,
    "manifest.json": Manifest,
    "measures.json, each": StoredMeasure,
}
BOUNDS = {"minimum": ">=", "exclusiveMinimum": ">", "maximum": "<=", "exclusiveMaximum": "<"}


def main(target: Path) -> None:
    """Fill `target`, which is emptied first."""
    shutil.rmtree(target, ignore_errors=True)
    for pattern in (*PAGES, *FILES):
        for path in ROOT.glob(pattern):
            place = target / path.relative_to(ROOT)
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, place)
    reference = target / "docs/reference"
    reference.mkdir(parents=True, exist_ok=True)
    (reference / "commands.md").write_text(commands(), encoding="utf-8")
    (reference / "files.md").write_text(files(), encoding="utf-8")
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


def files() -> str:
    """Render every key of the files that people write and programs read, from their models."""
    lines = ["# Files, key by key", "", "Made from the models that check them.", ""]
    for title, model in MODELS.items():
        schema = model.model_json_schema()
        lines += [f"## {title}", "", *keys(schema)]
        for name, table in schema.get("$defs", {}).items():
            if "properties" in table:
                lines += [f"### {title}: {name}", "", *keys(table)]
    return "\n".join(lines)


def keys(schema: Schema) -> list[str]:
    """Return the description and the table of keys of one object."""
    lines = [" ".join(schema.get("description", "").split()), ""]
    lines += ["| key | value | without it |", "|---|---|---|"]
    needed = schema.get("required", ())
    for name, about in schema.get("properties", {}).items():
        default = "needed" if name in needed else f"`{json.dumps(about.get('default'))}`"
        lines.append(f"| `{name}` | {kind(about)} | {default} |")
    return [*lines, ""]


def kind(about: Schema) -> str:
    """Say in words what values a JSON Schema allows."""
    if "$ref" in about:
        return str(about["$ref"]).rpartition("/")[2]
    choices = about.get("enum", [about["const"]] if "const" in about else [])
    several = [f"`{choice}`" for choice in choices] or [
        kind(each) for each in about.get("anyOf") or about.get("oneOf") or ()
    ]
    if several:
        return (", " if choices else " or ").join(dict.fromkeys(several))
    words = str(about.get("type", "any value"))
    if words == "array":
        return f"list of {kind(about.get('items') or {'anyOf': about.get('prefixItems', [{}])})}"
    if words == "object":
        inner = about.get("additionalProperties")
        return f"table of {kind(inner)}" if isinstance(inner, dict) else "table"
    bounds = " and ".join(f"{sign} {about[key]}" for key, sign in BOUNDS.items() if key in about)
    return f"{words} {bounds}".rstrip() if words != "null" else "nothing"


def report(example: Path, target: Path) -> list[str]:
    """Write the pages of an example, and return what leads to them; the runs themselves stay in the
    repository."""
    shutil.copytree(example, target, dirs_exist_ok=True)
    results = Results(target)
    study = gather(results)
    publish(study, results)
    shutil.rmtree(target / "runs")
    lines = [f"## {example.name}", "", escaped(study.question), ""]
    for report, link in zip(study.reports, links(study, results, target.parent), strict=True):
        picture = f"{link.rpartition('/')[0]}/picture.png"
        lines += [f"[{report.cell}]({link}): {escaped(report.verdict)}", ""]
        lines += [f"[![]({picture})]({link})", ""]
    return lines


if __name__ == "__main__":
    main(Path(sys.argv[1]))
