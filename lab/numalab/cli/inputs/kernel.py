"""`numalab kernel`: list, show, build and configure kernels, try a patch."""

from dataclasses import replace
from typing import Annotated

import typer

from numalab.campaign.boot import boot, guest
from numalab.campaign.build import build as build_inputs
from numalab.campaign.build import choose_mode
from numalab.cli import completion, options
from numalab.cli.guest.boot import printed_if_lost, show_booted
from numalab.cli.kernel_choice import chosen_kernel, say_bases
from numalab.cli.output import aligned, emit, picked, progress_lines, say
from numalab.errors import UserError
from numalab.image.recipe import load_recipe
from numalab.kernel.kernel_build import BuiltKernel, built_kernel, ensure_kernel, explain_kernel
from numalab.kernel.kernel_config import Origin, read_fragments
from numalab.kernel.kernel_specs import KernelSpec, fragment_path, load_kernels
from numalab.kernel.old_kernels import lacking
from numalab.kernel.patch_series import find_series, refresh_series, series_name
from numalab.kernel.patched_kernel import list_all_kernels, patched_kernel
from numalab.places import load_usable
from numalab.qemu.hypervisor import EMBED
from numalab.source.debian_packages import NotFetched
from numalab.source.kernel_source import find_source
from numalab.source.own_trees import NoOwnTree
from numalab.topology.load import load_topology

app = typer.Typer(no_args_is_help=True)

Name = Annotated[
    str, typer.Argument(help="Name from `numalab kernel list`.", autocompletion=completion.kernels)
]


@app.command("list")
def list_command(as_json: options.Json = False) -> None:
    """List the kernels.

    Columns: build state, release, configuration hash, size, series.
    """
    specs = list_all_kernels()
    kernels = load_usable(specs, lambda name: (specs[name], built_kernel(specs[name])))
    rows = [("kernel", "built", "release", "config", "MiB", "series")]
    for spec, built in kernels:
        series = ", ".join(series_name(text) for text in spec.series) or "-"
        if built is None:
            rows.append((spec.name, "no", "-", "-", "-", series))
            continue
        size = f"{built.bzimage.stat().st_size / 2**20:.1f}"
        rows.append((spec.name, "yes", built.release, built.config_hash[:12], size, series))
    emit([_summary(spec, built) for spec, built in kernels], as_json, aligned(rows))


@app.command()
def show(name: Name, as_json: options.Json = False) -> None:
    """Show the source, patches, fragments and build of a kernel."""
    spec = chosen_kernel(name)
    built = built_kernel(spec)
    fragments = {f.name: f.summary for f in read_fragments(map(fragment_path, spec.fragments))}
    series = [find_series(text).info for text in spec.series]
    value = _summary(spec, built) | {"fragments": fragments, "series": series}
    value["lacks"] = _lacking(built) if built else ()
    lines = [f"{spec.name}: {spec.summary}", f"  source     {spec.source}"]
    lines += [f"  fragment   {fragment}: {summary}" for fragment, summary in fragments.items()]
    for info in series:
        lines.append(f"  series     {info.name}")
        lines += [f"             {subject}" for subject in info.patches]
    lines += _built_lines(built)
    emit(value, as_json, "\n".join(lines))


@app.command()
def build(
    names: Annotated[
        list[str] | None,
        typer.Argument(help="Names from `numalab kernel list`.", autocompletion=completion.kernels),
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Build every named kernel.")] = False,
    source: Annotated[
        str | None, typer.Option(help="Build every named kernel of this source.")
    ] = None,
    jobs: options.Compilers = None,
    as_json: options.Json = False,
) -> None:
    """Build kernels unless they are in the cache.

    The first build of a source takes minutes; with another series, it takes seconds. After Ctrl-C,
    the next build continues.
    """
    named = load_kernels()
    if [every, source is not None, bool(names)].count(True) != 1:
        raise UserError("needs names of kernels, --all or --source", choices=named)
    specs = [spec for spec in named.values() if every or spec.source == source]
    if source is not None and not specs:
        sources = dict.fromkeys(spec.source for spec in named.values())
        raise UserError(f"no kernel has the source {source!r}", key="--source", choices=sources)
    specs = specs or [chosen_kernel(name) for name in names or ()]
    if every:
        specs = [spec for spec in specs if _is_here(spec)]
    kernels = []
    rows = [("kernel", "release", "seconds", "bzImage")]
    for spec in specs:
        built = built_kernel(spec)
        if built is None:
            with progress_lines(spec.name) as progress:
                built = ensure_kernel(spec, on_progress=progress, jobs=jobs)
            _say_time(built)
        kernels.append(built)
        row = (built.spec_name, built.release, f"{built.seconds:.0f}", str(built.bzimage))
        rows.append(row)
    emit(kernels, as_json, aligned(rows))


@app.command()
def refresh(
    series: Annotated[str, typer.Argument(help="Name of a patch series, or a folder of patches.")],
    base: Annotated[
        str | None, typer.Option(help="Kernel to apply it to; default: the first with this series.")
    ] = None,
    as_json: options.Json = False,
) -> None:
    """Update the line numbers in the hunk headers of a series.

    Only these numbers change. If a hunk does not apply, the message shows the lines of the file.
    """
    users = [spec for spec in load_kernels().values() if series in spec.series]
    if base is None and not users:
        find_series(series)
        raise UserError("no named kernel has this series; name one with --base", key=series)
    spec = chosen_kernel(base) if base else users[0]
    with progress_lines(series) as progress:
        changed = refresh_series(series, spec, progress)
    lines = [f"renewed {path}" for path in changed] or [f"the line numbers of {series} are correct"]
    emit({"base": spec.name, "changed": changed}, as_json, "\n".join(lines))


@app.command()
def config(
    name: Name,
    full: Annotated[
        bool, typer.Option("--full", help="Print the whole .config of a built kernel.")
    ] = False,
    as_json: options.Json = False,
) -> None:
    """Print a kernel's configuration with the origin of each line.

    The origin is a fragment with its reason, the tiny configuration of the source, an option that
    selects it, or a default. Options for other versions come last. An unbuilt kernel is
    configured first.
    """
    spec = chosen_kernel(name)
    if full:
        built = built_kernel(spec)
        if built is None:
            raise UserError(f"{name} is not built; run: numalab kernel build {name}")
        if built.config is None:
            raise UserError(f"no configuration of {name}: it was built elsewhere")
        text = built.config.read_text(encoding="utf-8")
        emit({"kernel": name, "config": text}, as_json, text.rstrip("\n"))
        return
    with progress_lines(name) as progress:
        origins = explain_kernel(spec, progress)
    emit(origins, as_json, "\n".join(_origin_lines(origins)))


def _origin_lines(origins: tuple[Origin, ...]) -> list[str]:
    options = [f"{row.name}={row.value}" if row.value else f"# no {row.name}" for row in origins]
    width = min(max(map(len, options), default=0), 48)
    second = max((len(row.origin) for row in origins if row.reason), default=0)
    return [
        f"{option:<{width}}  {row.origin:<{second if row.reason else 0}}  {row.reason}".rstrip()
        for option, row in zip(options, origins, strict=True)
    ]


def _is_here(spec: KernelSpec) -> bool:
    """Tell whether a kernel's source can be had; say which release the user has to provide."""
    try:
        if not spec.is_prebuilt:
            find_source(spec.source)
    except NoOwnTree as error:
        say(f"skipped {spec.name}: {error}")
        return False
    except NotFetched:
        pass  # the build fetches it
    return True


def _summary(spec: KernelSpec, built: BuiltKernel | None) -> dict[str, object]:
    return {**picked(spec, "name", "summary", "source", "series", "fragments"), "built": built}


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
        *(f"  lacks      {line}" for line in _lacking(built)),
    ]


def _lacking(built: BuiltKernel) -> tuple[str, ...]:
    return lacking(built.release, pauses=built.pauses)


@app.command("try")
def try_patch(
    patch: Annotated[
        str,
        typer.Argument(help="Patch, mailbox, folder, range FROM..TO or series."),
    ],
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="-- CMD...", help="Command to run; default: uname -a."),
    ] = None,
    base: Annotated[
        str | None,
        typer.Option(help="Kernel to patch; default: the newest that the patch applies to."),
    ] = None,
    topology: Annotated[str, typer.Option(help="Topology to boot.")] = "ring-4",
    image: options.Image = "base",
    mode: options.Mode = "auto",
    seed: options.Seed = 1,
    keep: options.Keep = None,
    connection: options.Connect = EMBED,
    allow_mismatch: options.Mismatch = False,
    as_json: options.Json = False,
) -> None:
    """Apply a patch, build the kernel, boot it and run a command in it.

    For example `numalab kernel try --base debian-6.12 my.patch --topology ring-4 -- dmesg`. A patch
    of a built kernel takes seconds.
    """
    model, recipe = load_topology(topology), load_recipe(image)
    with progress_lines("kernel") as progress:
        spec = patched_kernel([patch], base, progress).patched
    say_bases([spec])
    with progress_lines("try") as progress:
        prepared = build_inputs([spec], recipe, on_progress=progress)
        _say_time(prepared.kernels[spec.name])
        choice = choose_mode(mode, prepared, connection, progress)
        with printed_if_lost(as_json=as_json):
            booted = boot(
            replace(guest(model, spec.name, prepared, choice), seed=seed),
            spec, tuple(words or ("uname", "-a")), connection=connection, keep=keep,
            allow_mismatch=allow_mismatch,
            on_beat=lambda beat: progress(f"{beat.phase}, {beat.uptime:.1f} s of guest time", None),
        )  # fmt: skip
    show_booted(booted, as_json)
    raise typer.Exit(booted.outcome.status)


def _say_time(built: BuiltKernel) -> None:
    """Print the time of a build on stderr, with that of the first build in the same tree."""
    line = f"{built.spec_name}: built in {built.seconds:.0f} s"
    if built.first_name not in ("", built.spec_name):
        line += f" (first build: {built.first_seconds:.0f} s)"
    say(line)
