"""`numalab kernel`: the named kernels, what goes into them, and building them."""

from typing import Annotated

import typer
from rich.table import Table

from numalab.cli import options
from numalab.cli.inputs import kernel_try
from numalab.cli.inputs.kernel_try import tell_time
from numalab.cli.output import emit, picked, progress_lines
from numalab.errors import UserError
from numalab.kernel.config.configure import read_fragments
from numalab.kernel.config.option_origin import Origin
from numalab.kernel.kernel_build import BuiltKernel, built_kernel, ensure_kernel, explain_kernel
from numalab.kernel.kernel_specs import KernelSpec, find_kernel, fragment_path, load_kernels
from numalab.kernel.patch_series import find_series, refresh_series

app = typer.Typer(no_args_is_help=True, help="Kernels: list, show, build, try a patch.")
app.command("try")(kernel_try.command)

Name = Annotated[str, typer.Argument(help="A name from `numalab kernel list`.")]


@app.command("list")
def list_kernels(as_json: options.Json = False) -> None:
    """List the named kernels: release, series, config, size, and whether each is built.

    The names are those of kernel-configs/kernels.toml.
    """
    kernels = [(spec, built_kernel(spec)) for spec in load_kernels().values()]
    table = Table("kernel", "built", "release", "series", "config", "MiB", box=None)
    for spec, built in kernels:
        series = ", ".join(spec.series) or "-"
        if built is None:
            table.add_row(spec.name, "no", "-", series, "-", "-")
            continue
        size = f"{built.bzimage.stat().st_size / 2**20:.1f}"
        table.add_row(spec.name, "yes", built.release, series, built.config_hash[:12], size)
    emit([_summary(spec, built) for spec, built in kernels], as_json, table)


@app.command()
def show(name: Name, as_json: options.Json = False) -> None:
    """Show what goes into a kernel (source, patches, fragments), and what was built from it."""
    spec = find_kernel(name)
    built = built_kernel(spec)
    fragments = read_fragments(fragment_path(one) for one in spec.fragments)
    series = [find_series(one).info for one in spec.series]
    value = _summary(spec, built) | {
        "fragments": {one.name: one.summary for one in fragments},
        "series": series,
    }
    lines = [f"{spec.name}: {spec.summary}", f"  source     {spec.source}"]
    lines += [f"  fragment   {one.name}: {one.summary}" for one in fragments]
    for info in series:
        lines.append(f"  series     {info.name}")
        lines += [f"             {subject}" for subject in info.patches]
    lines += _built_lines(built)
    emit(value, as_json, "\n".join(lines))


@app.command()
def build(
    names: Annotated[
        list[str] | None, typer.Argument(help="Names from `numalab kernel list`.")
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Build every named kernel.")] = False,
    source: Annotated[
        str | None, typer.Option(help="Build every named kernel of this source.")
    ] = None,
    jobs: options.Compilers = None,
    as_json: options.Json = False,
) -> None:
    """Build kernels that are not in the cache.

    The first one takes minutes, a variant that differs by a series takes seconds. Ctrl-C stops
    cleanly; the next build goes on from there.
    """
    named = load_kernels()
    if [every, source is not None, bool(names)].count(True) != 1:
        raise UserError("name the kernels to build, or say --all or --source", choices=named)
    specs = [spec for spec in named.values() if every or spec.source == source]
    if source is not None and not specs:
        sources = dict.fromkeys(spec.source for spec in named.values())
        raise UserError(f"no kernel has the source {source!r}", key="--source", choices=sources)
    specs = specs or [find_kernel(name) for name in names or ()]
    result = []
    for spec in specs:
        already = built_kernel(spec)
        if already is None:
            with progress_lines(spec.name) as progress:
                built = ensure_kernel(spec, on_progress=progress, jobs=jobs)
            tell_time(built)
        result.append(already or built)
    table = Table("kernel", "release", "seconds", "bzImage", box=None)
    for one in result:
        table.add_row(one.spec_name, one.release, f"{one.seconds:.0f}", str(one.bzimage))
    emit(result, as_json, table)


@app.command()
def refresh(
    series: Annotated[
        str, typer.Argument(help="A series of kernel-configs/series, or a folder of patches.")
    ],
    base: Annotated[
        str | None, typer.Option(help="The kernel that it is for; else the first that has it.")
    ] = None,
    as_json: options.Json = False,
) -> None:
    """Renew the offsets of a series, so that every hunk header says where the hunk is now.

    Nothing but those numbers changes. A hunk that does not fit is shown with the file's own lines.
    """
    users = [spec for spec in load_kernels().values() if series in spec.series]
    if base is None and not users:
        raise UserError("no named kernel has this series: say --base", key=series)
    spec = find_kernel(base) if base else users[0]
    with progress_lines(series) as progress:
        changed = refresh_series(series, spec, progress)
    lines = [f"renewed {path}" for path in changed] or [f"every hunk of {series} is where it says"]
    emit({"base": spec.name, "changed": changed}, as_json, "\n".join(lines))


@app.command()
def config(
    name: Name,
    full: Annotated[
        bool, typer.Option("--full", help="Print the whole .config; the kernel must be built.")
    ] = False,
    as_json: options.Json = False,
) -> None:
    """Print a kernel's configuration, and where each line comes from.

    That is a fragment with its reason, the source's own tiny configuration, an option that selects
    it, or a default. Options of fragments that are not for this version come last. A kernel that
    is not built is configured for this.
    """
    spec = find_kernel(name)
    if full:
        built = built_kernel(spec)
        if built is None:
            raise UserError(f"{name} is not built; run: numalab kernel build {name}")
        if built.config is None:
            raise UserError(f"{name} was built elsewhere, and its configuration is not known")
        text = built.config.read_text(encoding="utf-8")
        emit({"kernel": name, "config": text}, as_json, text.rstrip("\n"))
        return
    with progress_lines(name) as progress:
        origins = explain_kernel(spec, progress)
    emit(origins, as_json, "\n".join(_origin_lines(origins)))


def _origin_lines(origins: tuple[Origin, ...]) -> list[str]:
    left = [f"{one.name}={one.value}" if one.value else f"# no {one.name}" for one in origins]
    width = min(max(map(len, left), default=0), 48)
    where = max((len(one.origin) for one in origins if one.reason), default=0)
    return [
        f"{text:<{width}}  {one.origin:<{where if one.reason else 0}}  {one.reason}".rstrip()
        for text, one in zip(left, origins, strict=True)
    ]


def _summary(spec: KernelSpec, built: BuiltKernel | None) -> dict[str, object]:
    told = picked(spec, "name", "summary", "source", "series", "fragments")
    return {**told, "built": built}


def _built_lines(built: BuiltKernel | None) -> list[str]:
    if built is None:
        return ["  built      no"]
    return [
        f"  built      {built.bzimage}",
        f"  release    {built.release} (source {built.source_version})",
        f"  config     {built.config_hash[:12]}  {built.config}",
        f"  symbols    {built.symbols or '-'}",
        f"  digest     {built.digest}",
        f"  compiler   {built.compiler}",
        f"  took       {built.seconds:.0f} s",
    ]
