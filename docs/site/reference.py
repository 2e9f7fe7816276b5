"""Fills the generated parts of docs/reference from schemas, registries and `--help`.

    python docs/site/reference.py

A page is written by hand, but for the blocks between `<!-- generated: NAME ARGUMENT -->` and
`<!-- end -->`. Tests compare them; this program rewrites them, and the JSON Schemas in docs/.
"""

import ast
import inspect
import itertools
import json
import re
import textwrap
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import typer
from pydantic import BaseModel

from numalab import api, errors
from numalab.analysis.measures.family import WINDOW, MeasureFamily
from numalab.api import MEASURES, PROPERTIES, SHAPES
from numalab.capture.spec import CaptureTable
from numalab.cli.main import COMMANDS, application
from numalab.emulator.emulator_specs import EmulatorsFile
from numalab.errors import LabError
from numalab.host.read import HostFile
from numalab.hunt.property import OF_BOOT
from numalab.image.recipe import RecipeTable, list_recipes, load_recipe
from numalab.kernel.kernel_specs import KernelsFile
from numalab.report.formats.json import report_schema
from numalab.results.manifest import Manifest
from numalab.results.plan import StoredPlan
from numalab.results.stored import StoredMeasure
from numalab.run_dir import RunDir
from numalab.study.model import Study
from numalab.topology.file_format import TopologyFile, render_schema
from numalab.workload.workload_table import WorkloadTable

Schema = dict[str, Any]
PAGES = Path(__file__).parents[1] / "reference"
MODELS: dict[str, type[BaseModel]] = {
    "topology": TopologyFile,
    "study": Study,
    "capture": CaptureTable,
    "workload": WorkloadTable,
    "kernels": KernelsFile,
    "emulators": EmulatorsFile,
    "image": RecipeTable,
    "host": HostFile,
    "plan": StoredPlan,
    "manifest": Manifest,
    "measure": StoredMeasure,
}
BOUNDS = {"minimum": ">=", "exclusiveMinimum": ">", "maximum": "<=", "exclusiveMaximum": "<"}
_OPTION = re.compile(r"- `(?P<names>-[^ ,`]+(?:, --[a-z-]+)?)")  # of an option, in its item
_BLOCK = re.compile(r"(<!-- generated: (\w+) ?([^>]*?) -->\n).*?(<!-- end -->)", re.DOTALL)


def render_page(page: str) -> str:
    """Return a page with its generated blocks made anew. Raises KeyError for an unknown block."""

    def block(match: re.Match[str]) -> str:
        return f"{match[1]}\n{BLOCKS[match[2]](match[3]).strip()}\n\n{match[4]}"

    return _BLOCK.sub(block, page)


def commands(_: str) -> str:
    """Render every command: usage, what it does, its options."""
    lines = [line for name in COMMANDS for line in _command_group(name)]
    uses = Counter(line for line in lines if _OPTION.match(line))
    shared: dict[str, str] = {}
    for line, count in uses.most_common():
        match = _OPTION.match(line)
        # One meaning of a name is common; its other meanings are spelled out.
        name = f"`{match['names']}`" if match else ""
        if count > 1 and name != "`--mode`" and name not in shared.values():
            shared[line] = name
    shared = {line: shared[line] for line in uses if line in shared}
    head = ["## Common options", "", "Commands list these by their names.", "", *shared]
    text = "\n".join([*head, *_with_shared(lines, shared)])
    return re.sub(r"\n{3,}", "\n\n", text)


def _with_shared(lines: Iterable[str], shared: Mapping[str, str]) -> Iterator[str]:
    """Replace the options that several commands share by one line with their names."""
    names: list[str] = []
    for line in lines:
        if line in shared:
            names.append(shared[line])
        elif names and not line.startswith("- "):
            yield from (_item(", ".join(names)), line)
            names = []
        else:
            yield line


def _command_group(name: str) -> Iterator[str]:
    command = getattr(typer.main.get_command(application(name)), "commands")[name]  # noqa: B009
    yield from ("", f"## {name}", "")
    if inner := getattr(command, "commands", {}):
        yield from _text(command.help)
        for word, below in inner.items():
            yield from ("", f"### {name} {word}", "", *_command(below, f"{name} {word}"))
    else:
        yield from _command(command, name)


def _command(command: Any, name: str) -> Iterator[str]:
    context = typer.Context(command, info_name=name)
    yield from _text(command.help)
    for parameter in command.params:
        record = parameter.get_help_record(context)
        if record is not None and record[0] not in ("--help", "--json"):
            # The bounds are in the text.
            names = record[0].replace(" range>", ">")
            yield _item(f"`{names}`: {' '.join(record[1].split())}")


def keys(name: str) -> str:
    """Render every key of a file, from the model that checks it, with the tables in it."""
    model = MODELS[name]
    lines = _keys(model.model_json_schema(), _attribute_docs(model))
    for inner in _models_in(model):
        schema = inner.model_json_schema()
        if schema.get("properties"):
            described = " ".join((inner.__doc__ or "").split())
            lines += ["", f"### {inner.__name__}", "", *_text(described), ""]
            lines += _keys(schema, _attribute_docs(inner))
    return "\n".join(lines)


def _keys(schema: Schema, docs: dict[str, str]) -> list[str]:
    needed = schema.get("required", ())
    lines = []
    for name, about in schema.get("properties", {}).items():
        default = about.get("default")
        facts = [kind(about)]
        if name in needed:
            facts.append("required")
        elif default not in (None, "", [], {}) and not isinstance(default, dict):
            facts.append(f"default `{json.dumps(default)}`")
        alias = "from_variant" if name == "from" else name
        text = about.get("description") or docs.get(alias) or ""
        lines.append(_item(f"`{name}` ({', '.join(facts)}){': ' * bool(text)}{text}"))
    return lines


def kind(about: Schema) -> str:
    """Name the values that a JSON Schema allows."""
    if "$ref" in about:
        return str(about["$ref"]).rpartition("/")[2]
    choices = about.get("enum", [about["const"]] if "const" in about else [])
    several = [f"`{choice}`" for choice in choices] or [
        kind(form)
        for form in about.get("anyOf") or about.get("oneOf") or ()
        if form != {"type": "null"}
    ]
    if several:
        return (", " if choices else " or ").join(dict.fromkeys(several))
    words = str(about.get("type", "any value"))
    if words == "array":
        return f"list of {kind(about.get('items') or {'anyOf': about.get('prefixItems', [{}])})}"
    if words == "object":
        inner = about.get("additionalProperties")
        return f"table of {kind(inner)}" if isinstance(inner, dict) else "table"
    if words == "integer" and (span := _span(about)):
        return f"{words} {span}"
    bounds = " and ".join(f"{sign} {about[key]}" for key, sign in BOUNDS.items() if key in about)
    return f"{words} {bounds}".rstrip()


def _span(about: Schema) -> str:
    """Return the integers that a JSON Schema allows as `first..last`; empty without both ends."""
    first = about.get("minimum", about.get("exclusiveMinimum", -1) + 1)
    last = about.get("maximum", about.get("exclusiveMaximum", 0) - 1)
    bounded = len(BOUNDS.keys() & about.keys()) == 2 and first <= last
    return f"{first}..{last}" if bounded else ""


def _models_in(model: type[BaseModel]) -> list[type[BaseModel]]:
    """Return the models of the tables inside a model, in the order of their first use."""
    models: dict[type[BaseModel], None] = {}

    def visit(annotation: Any) -> None:
        if inspect.isclass(annotation) and issubclass(annotation, BaseModel):
            # A study's own machines are topologies, and `topology` has their keys.
            if annotation in models or annotation in (model, TopologyFile):
                return
            models[annotation] = None
            for field in annotation.model_fields.values():
                visit(field.annotation)
        for part in getattr(annotation, "__args__", ()):
            visit(part)

    for field in model.model_fields.values():
        visit(field.annotation)
    return list(models)


def _attribute_docs(cls: type) -> dict[str, str]:
    """Return the string below each attribute of a class and its parents, by its name."""
    docs: dict[str, str] = {}
    for parent in reversed(cls.__mro__):
        if not parent.__module__.startswith("numalab."):
            continue
        (definition,) = ast.parse(textwrap.dedent(inspect.getsource(parent))).body
        assert isinstance(definition, ast.ClassDef)
        for before, after in zip(definition.body, definition.body[1:], strict=False):
            match before, after:
                case (
                    ast.AnnAssign(target=ast.Name(id=name))
                    | ast.Assign(targets=[ast.Name(id=name)]),
                    ast.Expr(value=ast.Constant(value=str(text))),
                ):
                    docs[name] = " ".join(text.split())
    return docs


def shapes(_: str) -> str:
    """Render the shapes of the registry and their keys."""
    lines = []
    for name, shape in SHAPES.built_in().items():
        own = [key for key in shape.model_fields if key not in ("kind", "distances")]
        named = f" Keys: {', '.join(f'`{key}`' for key in own)}." if own else ""
        lines.append(_item(f"`{name}`: {SHAPES.describe(name)}{named}"))
    return "\n".join(lines)


def images(_: str) -> str:
    """Render the image recipes, a line each."""
    return "\n".join(
        _item(f"`{name}`: {load_recipe(name).summary}") for name in sorted(list_recipes())
    )


def measures(name: str) -> str:
    """Render a group of measures, or all groups under headings."""
    groups = [group for group in MEASURES.built_in().values() if group.families]
    groups = [group for group in groups if name in ("", group.name)]
    lines = []
    for group in groups:
        lines += ["", f"### {group.name[:1].upper()}{group.name[1:]}", ""] if not name else []
        above = _Meaning("", "", "")
        for meaning, families in itertools.groupby(group.families, _meaning):
            names = ", ".join(f"`{family.name}`" for family in families)
            lines.append(_item(f"{names} {meaning.below(above)}"))
            above = meaning
    return "\n".join(lines)


class _Meaning(NamedTuple):
    """What a figure is, where it comes from, and its definition."""

    figure: str
    source: str
    text: str

    def below(self, above: "_Meaning") -> str:
        """Describe it without a list of sources or an explanation that it shares with `above`."""
        is_same = self.source == above.source and len(self.source.split()) > 2
        start, _, explanation = self.text.partition(": ")
        is_told = explanation and above.text.endswith(f": {explanation}")
        text = f"{start}, as above." if is_told else self.text
        return f"({self.figure}; {'as above' if is_same else self.source}): {text}"


def _meaning(family: MeasureFamily) -> _Meaning:
    """Describe measures; those that differ only in the event that they count have one meaning."""
    better = "" if family.direction == "none" else f", {family.direction} is better"
    # The page defines the window, and that measures are of it unless they name another span.
    text = re.sub(",? in the window", "", family.definition.replace(WINDOW, "the window"))
    text = text.replace(f"perf counted {family.name.removeprefix('perf_')}", "perf counted {event}")
    text = re.sub(r"(?<!`)(\{\w+\})", r"`\1`", text)
    return _Meaning(f"{family.unit}{better}, {family.kind}", str(family.source), text)


def properties(_: str) -> str:
    """Render the properties that a hunt checks."""
    lines = [f"`{name}`: {text}" for name, text in OF_BOOT.items()]
    for name, entry in PROPERTIES.built_in().items():
        if not entry.differential:
            limit = f" ({entry.limit.most:g} {entry.unit})" if entry.limit.most else ""
            lines.append(f"`{name}`{limit}: {PROPERTIES.describe(name)}")
    return "\n".join(map(_item, lines))


def entries(kind: str) -> str:
    """Render the built-in entries of a registry."""
    registry = api.REGISTRIES[kind]
    lines = (_item(f"`{name}`: {registry.describe(name)}") for name in registry.built_in())
    return (
        "\n".join(lines) or "None is built in; [plug-ins](../how-to/write-a-plug-in.md) add them."
    )


def python_api(_: str) -> str:
    """Render the functions of `numalab.api`."""
    functions = [name for name in sorted(api.__all__) if inspect.isroutine(getattr(api, name))]
    return "\n".join(
        _item(f"`{name}{_parameters(thing)}`: {_first_paragraph(thing)}")
        for name, thing in ((name, getattr(api, name)) for name in functions)
    )


def members(name: str) -> str:
    """Render the public methods and properties of a class of `numalab.api`."""
    lines = []
    for member_name, member in vars(getattr(api, name)).items():
        function = getattr(member, "fget", getattr(member, "func", member))
        if member_name.startswith("_") or not (inspect.isroutine(function) or function != member):
            continue
        arguments = _parameters(function).replace("self, ", "") if function is member else ""
        arguments = arguments.replace("(self)", "()")
        lines.append(_item(f"`{member_name}{arguments}`: {_first_paragraph(function)}"))
    return "\n".join(lines)


def _parameters(function: Callable[..., Any]) -> str:
    """Return the names of a function's parameters, in parentheses."""
    return f"({', '.join(inspect.signature(function).parameters)})"


def exit_codes(_: str) -> str:
    """Render the errors that have an exit code of their own."""
    classes = [
        cls
        for cls in vars(errors).values()
        if inspect.isclass(cls)
        and cls is not LabError
        and issubclass(cls, LabError)
        and "exit_code" in vars(cls)
    ]
    return "\n".join(
        _item(f"{cls.exit_code} (`{cls.__name__}`): {_first_paragraph(cls)}")
        for cls in sorted(classes, key=lambda cls: cls.exit_code)
    )


def run_files(_: str) -> str:
    """Render the files of a run directory."""
    docs = _attribute_docs(RunDir)
    files = {name: vars(RunDir)[name].place for name in docs}
    return "\n".join(_item(f"`{files[name]}`: {text}") for name, text in docs.items())


def _first_paragraph(thing: object) -> str:
    return (inspect.getdoc(thing) or "").partition("\n\n")[0].replace("\n", " ")


def _item(text: str) -> str:
    return textwrap.fill(f"- {text}", 100, subsequent_indent="  ", break_on_hyphens=False)


def _text(text: str | None) -> Iterator[str]:
    for paragraph in re.split(r"\n\s*\n", inspect.cleandoc(text or "")):
        yield textwrap.fill(" ".join(paragraph.split()), 100, break_on_hyphens=False)
        yield ""


BLOCKS: dict[str, Callable[[str], str]] = {
    function.__name__: function
    for function in (
        commands,
        keys,
        shapes,
        images,
        measures,
        properties,
        entries,
        python_api,
        members,
        exit_codes,
        run_files,
    )
}


def stale_pages(pages: Iterable[Path]) -> Iterator[tuple[Path, str]]:
    """Yield each page whose generated blocks are out of date, and its new text."""
    for path in pages:
        text = path.read_text(encoding="utf-8")
        if (new := render_page(text)) != text:
            yield path, new


def stale_schemas() -> Iterator[tuple[Path, str]]:
    """Yield each JSON Schema in docs/ that is out of date, and its new text."""
    schemas = {
        "topology": render_schema(),
        "report": json.dumps(report_schema(), indent=1) + "\n",
    }
    for name, text in schemas.items():
        path = PAGES.parent / f"{name}.schema.json"
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            yield path, text


if __name__ == "__main__":
    for path, text in (*stale_pages(sorted(PAGES.glob("*.md"))), *stale_schemas()):
        path.write_text(text, encoding="utf-8")
        print(path.relative_to(PAGES.parents[1]))
