"""Count the calls of functions in one guest: gives QEMU the plugin, and reads what it counted."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import polars as pl

from numalab.emulator.reach_plugin_artifact import calls_plugin
from numalab.errors import HostError
from numalab.files import make_dir
from numalab.hunt.calls.count_file import Counts, read_marks, write_functions
from numalab.hunt.calls.findings import call_findings
from numalab.hunt.calls.functions import CountedFunctions
from numalab.hunt.finding import CallsByLoad, Finding
from numalab.hunt.recording import LOAD_MARK
from numalab.machine.model import Machine, Plugin
from numalab.qemu.emulator import qemu_version
from numalab.recording.events import typed
from numalab.recording.window import marks
from numalab.run_dir import RunDir


def counts_file(run_dir: RunDir) -> Path:
    """Return the file in which the plugin counts."""
    return run_dir.path / "calls.counts"


@contextmanager
def counting_calls(
    machine: Machine, functions: CountedFunctions | None, run_dir: RunDir
) -> Iterator[Machine]:
    """Give the machine whose QEMU counts the calls of `functions`; None counts nothing."""
    if functions is None:
        yield machine
        return
    make_dir(run_dir.path)
    path = counts_file(run_dir)
    write_functions(path, functions.all_addresses, functions.mark)
    program = calls_plugin(qemu_version(machine.emulator))
    counts = {"counts": str(path.absolute())}
    yield replace(machine, plugins=(*machine.plugins, Plugin(program, counts, mapped=path)))


def read_calls(
    run_dir: RunDir, functions: CountedFunctions | None, events: pl.DataFrame
) -> tuple[CallsByLoad, tuple[Finding, ...]]:
    """Return the calls of each function in each load, or the findings about them if judged.

    `events` is the recording, which has all marks. Raises HostError for a damaged file.
    """
    if functions is None:
        return {}, ()
    try:
        counts = read_marks(counts_file(run_dir))
    except (OSError, ValueError) as error:
        raise HostError(f"cannot read the counts of calls: {error}") from None
    calls = dict(_between_marks(counts, functions, marks(typed(events))["text"].to_list()))
    return ({}, tuple(call_findings(calls, functions))) if functions.judged else (calls, ())


def _between_marks(
    counts: Counts, functions: CountedFunctions, texts: Sequence[str]
) -> Iterator[tuple[int, Mapping[str, int]]]:
    """Yield each load that has both marks, and how often what is counted ran between them."""
    if len(texts) != len(counts):  # more marks than the plugin keeps, or some were lost
        return
    addresses = functions.all_addresses
    places: dict[tuple[str, str], int] = {}
    for place, text in enumerate(texts):
        if mark := LOAD_MARK.fullmatch(text):
            places.setdefault((mark[1], mark[2]), place)
    for (load, what), begin in places.items():
        end = places.get((load, "end"))
        if what == "begin" and end is not None:
            called = (counts[end] - counts[begin]).tolist()
            yield int(load), functions.counted(dict(zip(addresses, called, strict=True)))
