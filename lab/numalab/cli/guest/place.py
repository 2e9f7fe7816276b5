"""`numalab place`."""

from typing import Annotated

import typer
from rich.console import Group
from rich.table import Table
from rich.text import Text

from numalab.cli import options
from numalab.cli.output import emit
from numalab.cpulist import format_cpulist, parse_cpulist
from numalab.errors import UserError
from numalab.host.facts import Host
from numalab.host.read import read_host, read_host_file
from numalab.machine.model import MODES, Mode
from numalab.placement.admission import guest_cpus, plan_guest
from numalab.placement.planner import Placement
from numalab.topology.load import load_topology
from numalab.topology.predict.firmware import describe_numbers, node_numbers
from numalab.topology.topology import Topology


def command(
    topology: options.Topology,
    host: options.Host = None,
    mode: Annotated[str, typer.Option(help="Mode: kvm, tcg, icount or timed.")] = "kvm",
    cpus: Annotated[str | None, typer.Option(help="Host CPUs to use, such as 0-3,8.")] = None,
    pin: options.Pin = None,
    nodes: options.Nodes = None,
    as_json: options.Json = False,
) -> None:
    """Predict the placement of a guest on a host, and its distortions.

    For example `numalab place mesh-8 --host server.json`. No guest is started.
    """
    machine = load_topology(topology)
    facts = read_host_file(host) if host else read_host()
    usable = None if cpus is None else options.parsed(parse_cpulist, cpus, "--cpus")
    if host is None:
        usable = _of_this_host(facts, usable)
    vcpu_cpus, host_nodes = options.by_hand(machine, pin, nodes)
    with options.named_placement():
        made = plan_guest(machine, facts, _mode(mode), usable, pinned=vcpu_cpus, nodes=host_nodes)
    emit(made, as_json, Group(_table(machine, made), "", _text(machine, made)))


def _of_this_host(host: Host, asked: tuple[int, ...] | None) -> tuple[int, ...]:
    """Return the CPUs that a guest would get here. Raises UserError, as its start does."""
    own = guest_cpus(host)
    if asked is None:
        return tuple(sorted(own))
    if wrong := sorted(set(asked) & set(host.cpu_ids) - own):
        reason = f"host CPUs {format_cpulist(wrong)} are not among those this process may use"
        raise UserError(reason, key="--cpus", choices=map(str, sorted(own)))
    return asked


def _mode(text: str) -> Mode:
    for mode in MODES:
        if text == mode:
            return mode
    raise UserError(f"unknown mode {text!r}", key="--mode", choices=MODES)


def _table(topology: Topology, made: Placement) -> Table:
    """Return the plan by node, with the numbers of the guest's kernel as in the distortions."""
    table = Table(box=None, pad_edge=False)
    for heading in ("guest node", "host node", "vCPUs", "host CPUs"):
        table.add_column(heading, overflow="fold")
    rows = zip(node_numbers(topology), topology.nodes, made.host_nodes, strict=True)
    for number, node, host_node in sorted(rows, key=lambda row: row[0]):
        cpus = ",".join(str(made.vcpus[vcpu]) for vcpu in node.cpus)
        table.add_row(str(number), str(host_node), format_cpulist(node.cpus) or "none", cpus)
    table.add_row("QEMU", "", "", format_cpulist(made.emulator))
    return table


def _text(topology: Topology, made: Placement) -> Text:
    lines = [f"distorts: {what}" for what in made.distorts] or ["one-to-one: distorts nothing"]
    rho = made.distances.rank_correlation
    if rho is None and made.distances.parted:
        lines.append("rank correlation of distances: none, as all are equal in the guest")
    elif rho is not None:
        lines.append(f"rank correlation of distances, guest with host: {rho:.2f}")
    if made.timing:
        lines += ["timing measures are valid", *(f"but: {c}" for c in made.disturbs)]
    else:
        reason = "" if made.mode == "kvm" else f" in mode {made.mode}"
        lines.append(f"timing measures are not valid{reason}; placement measures are")
    if moved := describe_numbers(topology):
        lines.append(moved)
    return Text("\n".join(lines))
