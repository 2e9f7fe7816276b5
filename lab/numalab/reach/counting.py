"""Counts in one guest: gives QEMU the plugin, and reads what it counted."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from numalab.document import read_record
from numalab.emulator.reach_plugin_artifact import reach_plugin
from numalab.errors import HostError, UserError
from numalab.files import make_dir, write_text
from numalab.machine.model import Machine, Plugin
from numalab.qemu.emulator import qemu_version
from numalab.reach.counts import read_counts, write_sites
from numalab.reach.line_table import LineTable, run_reach
from numalab.reach.model import RunReach
from numalab.run_dir import RunDir


@contextmanager
def counting(machine: Machine, table: LineTable | None, run_dir: RunDir) -> Iterator[Machine]:
    """Give the machine whose QEMU counts `table`; its reach is in `run_dir.reach` at the end.

    That of a lost guest as well. None counts nothing. Raises UserError in mode kvm.
    """
    if table is None:
        yield machine
        return
    check_countable(machine.mode)
    make_dir(run_dir.path)
    path = run_dir.reach_counts
    cpus = machine.topology.cpu_count
    write_sites(path, table.addresses, table.jumps, cpus=cpus, jiffies=table.jiffies)
    program = reach_plugin(qemu_version(machine.emulator))
    plugin = Plugin(program, {"counts": str(path.absolute())}, mapped=path)
    try:
        yield replace(machine, plugins=(*machine.plugins, plugin))
    finally:
        _write_reach(table, run_dir, path)


def read_reach(run_dir: RunDir) -> RunReach | None:
    """Return the reach of a run that just ended; None where nothing was counted."""
    return read_record(run_dir.reach, RunReach)


def check_countable(mode: str) -> None:
    """Raise UserError for a mode in which no plugin can count."""
    if mode == "kvm":
        raise UserError(
            "KVM executes instructions without QEMU, so that none can be counted",
            key="--reach",
            choices=("--mode icount", "--mode timed", "--mode tcg"),
        )


def _write_reach(table: LineTable, run_dir: RunDir, path: Path) -> None:
    if not path.exists():
        return
    try:
        reach = run_reach(table, read_counts(path))
    except (OSError, ValueError) as error:
        raise HostError(f"cannot read the counts of reach: {error}") from None
    write_text(run_dir.reach, reach.model_dump_json(indent=1) + "\n")
    path.unlink()
