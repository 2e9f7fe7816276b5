"""`numalab host`."""

from typing import Annotated

import typer
from rich.console import Group
from rich.table import Table
from rich.text import Text

from numalab.cli import options
from numalab.cli.output import emit
from numalab.cpulist import format_cpulist
from numalab.host.facts import Host, disturbances, host_to_dict
from numalab.host.read import read_host, read_host_file
from numalab.units import format_size

app = typer.Typer(no_args_is_help=True)


@app.callback()
def _group() -> None:
    """Keep `show` a subcommand; typer folds a single command into its group."""


@app.command()
def show(
    host: options.Host = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON document, for `numalab place --host`.")
    ] = False,
) -> None:
    """Show nodes, distances, CPUs, caches, hugepages and timing disturbances.

    `numalab host show --json > server.json` records a host for `numalab place --host`.
    """
    facts = read_host_file(host) if host else read_host()
    text = Group(_nodes(facts), "", _distances(facts), "", _facts(facts))
    emit(host_to_dict(facts), as_json, text)


def _nodes(host: Host) -> Table:
    table = Table(box=None, pad_edge=False)
    for heading in ("node", "CPUs", "cores", "memory", "free", "hugepages (free/all)"):
        table.add_column(heading, overflow="fold")
    for node in host.nodes:
        cores = {host.cpu_of[cpu].siblings for cpu in node.cpus}
        pools = [
            f"{pool.free}/{pool.total} of {format_size(pool.size_kib << 10)}"
            for pool in node.hugepages
        ]
        table.add_row(
            str(node.id),
            format_cpulist(node.cpus) or "none",
            str(len(cores)),
            format_size(node.memory_mib << 20),
            format_size(node.free_mib << 20),
            ", ".join(pools) or "none",
        )
    return table


def _distances(host: Host) -> Text:
    width = max(4, *(len(str(d)) + 1 for row in host.distances for d in row))
    lines = ["node" + "".join(f"{node.id:{width}}" for node in host.nodes)]
    for node, row in zip(host.nodes, host.distances, strict=True):
        lines.append(f"{node.id:3}:" + "".join(f"{distance:{width}}" for distance in row))
    return Text("\n".join(lines), no_wrap=True)


def _facts(host: Host) -> Table:
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in _rows(host):
        table.add_row(name, value)
    return table


def _rows(host: Host) -> list[tuple[str, str]]:
    cores = {cpu.siblings for cpu in host.cpus}
    threads = max(len(core) for core in cores)
    sockets = len({cpu.socket for cpu in host.cpus})
    caches = sorted({cpu.llc for cpu in host.cpus})
    steal = "not counted" if host.steal_percent is None else f"{host.steal_percent:.1f} %"
    rows = [
        ("CPUs", f"{len(host.cpus)} in {len(cores)} cores and {sockets} sockets"),
        ("SMT", f"{threads} threads in a core" if threads > 1 else "one thread in a core"),
        ("last-level caches", "; ".join(map(format_cpulist, caches))),
        ("isolated", format_cpulist(host.isolated) or "none"),
        ("nohz_full", format_cpulist(host.nohz_full) or "none"),
        ("governor", ", ".join(host.governors) or "none"),
        ("boost", _switch(host.boost)),
        ("NUMA balancing", _switch(host.numa_balancing)),
        ("KSM", _switch(host.ksm)),
        ("transparent hugepages", host.transparent_hugepages or "none"),
        ("steal since boot", steal),
        ("load", f"{host.load:.2f}"),
    ]
    disturbing = disturbances(host, host.cpu_ids)
    return [
        *rows,
        *(("" if i else "disturbs timing", str(effect)) for i, effect in enumerate(disturbing)),
    ]


def _switch(value: bool | None) -> str:
    return "none" if value is None else "on" if value else "off"
