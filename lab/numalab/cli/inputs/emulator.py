"""`numalab emulator`: list, show and build emulators."""

from typing import Annotated, Any

import typer
from rich.table import Table

from numalab.cli import options
from numalab.cli.output import emit, picked, progress_lines
from numalab.emulator.emulator_artifact import (
    BuiltEmulator,
    built_emulator,
    configure_options,
    ensure_emulator,
)
from numalab.emulator.emulator_specs import EmulatorSpec, find_emulator, load_emulators
from numalab.source.series import load_series

app = typer.Typer(no_args_is_help=True)

Name = Annotated[
    str | None, typer.Argument(help="Name from `numalab emulator list`; default: the first.")
]


@app.command("list")
def list_emulators(as_json: options.Json = False) -> None:
    """List the emulators with their state, source and series.

    The first is the default of mode timed.
    """
    emulators = [(spec, built_emulator(spec)) for spec in load_emulators().values()]
    table = Table("emulator", "built", "version", "source", "series", box=None)
    for spec, built in emulators:
        version = built.version if built else "-"
        table.add_row(spec.name, "yes" if built else "no", version, spec.source, spec.series.name)
    emit([_value(spec, built) for spec, built in emulators], as_json, table)


@app.command()
def show(name: Name = None, as_json: options.Json = False) -> None:
    """Show the source, patches, options and build of an emulator."""
    spec = find_emulator(name)
    built = built_emulator(spec)
    info = load_series(spec.series).info
    value = _value(spec, built) | {"patches": info.patches, "configure": configure_options(spec)}
    lines = [f"{spec.name}: {spec.summary}", f"  source     {spec.source}"]
    lines.append(f"  series     {info.name}")
    lines += [f"             {subject}" for subject in info.patches]
    lines += [f"  configure  {option}" for option in configure_options(spec)]
    if built is None:
        lines.append(f"not built; run: numalab emulator build {spec.name}")
    else:
        lines += [
            f"  built      {built.source}, version {built.version}, in {built.seconds:.0f} s",
            f"             {built.compiler}",
            f"             {built.program}",
        ]
    emit(value, as_json, "\n".join(lines))


@app.command()
def build(
    name: Name = None,
    jobs: options.Compilers = None,
    as_json: options.Json = False,
) -> None:
    """Build an emulator unless it is in the cache; a build takes minutes.

    After Ctrl-C, the next build continues.
    """
    spec = find_emulator(name)
    built = built_emulator(spec)
    if built is None:
        with progress_lines(spec.name) as progress:
            built = ensure_emulator(spec, on_progress=progress, jobs=jobs)
    table = Table("emulator", "version", "seconds", "program", box=None)
    table.add_row(built.name, built.version, f"{built.seconds:.0f}", str(built.program))
    emit(built, as_json, table)


def _value(spec: EmulatorSpec, built: BuiltEmulator | None) -> dict[str, Any]:
    return {**picked(spec, "name", "summary", "source"), "series": spec.series.name, "built": built}
