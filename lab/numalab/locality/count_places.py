"""Prepares a guest of mode timed whose memory accesses are counted by region and line."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from numalab.artifact.program_artifact import ensure_program
from numalab.errors import UserError
from numalab.files import reading
from numalab.machine.model import CountedPlaces, Machine
from numalab.places import shipped_dir
from numalab.workload.elf_symbols import code_of, symbols_of
from numalab.workload.host_program import GuestCommand
from numalab.workload.workload_files import shared_headers

RECORDER = "numalab-maps"
_MARKS = "/sys/kernel/tracing/instances/lab/trace_marker"
_MARK_FUNCTION = "tracing_mark_write"  # kernel/trace/trace.c
_BORN_FUNCTION = "ret_from_fork"  # arch/x86/kernel/process.c; before Linux 6.5, entry/entry_64.S
_CODE_BYTES = 24  # what emulator-configs/memory/plugin.c compares
_LEAST_CODE, _MOST_CODES, _PAGE = 8, 16, 4096
# Functions in which threads wait for each other: POSIX, and the OpenMP of gcc and of clang. At the
# end of a parallel loop, gcc's library waits inside, in functions without names.
BARRIERS = ("pthread_barrier_wait", "__pthread_barrier_wait", "GOMP_barrier", "__kmpc_barrier")


def count_places(
    machine: Machine, symbols: Path | None, command: GuestCommand, *, barriers: bool
) -> tuple[Machine, GuestCommand]:
    """Return machine and command with what counts regions and lines.

    `symbols` are those of the kernel (None: unknown). With `barriers`, the model notes when a
    thread calls a barrier of a program or library that the command takes along. Raises UserError if
    none of them has one, BuildError and HostError where the recorder of mappings does not compile.
    """
    codes = tuple(dict.fromkeys(_barriers(command.files)))[:_MOST_CODES]
    if barriers and not codes:
        raise UserError(
            "no program or library that goes to the guest has a barrier", key="--locality",
            choices=(*BARRIERS[::2], BARRIERS[-1]),
        )  # fmt: skip
    mark, born = _functions(symbols)
    places = CountedPlaces(mark, born, codes if barriers else ())
    source = shipped_dir() / "workloads" / f"{RECORDER}.c"
    recorder = ensure_program(source, shared_headers()).read_bytes()
    argv = (f"/job/files/{RECORDER}", "/job/out/maps", _MARKS, "--", *command.argv)
    files = {**command.files, RECORDER: recorder}
    return replace(machine, places=places), replace(command, argv=argv, files=files)


def _functions(symbols: Path | None) -> tuple[int, int]:
    """Return the addresses of the kernel's functions for marks and new tasks; 0: unknown."""
    if symbols is None:
        return 0, 0
    names = (_MARK_FUNCTION, _BORN_FUNCTION)
    with reading(symbols):
        functions = symbols_of(symbols.read_bytes(), names)
    mark, born = (functions[name].vaddr if name in functions else 0 for name in names)
    return mark, born


def _barriers(files: Mapping[str, bytes]) -> Iterator[str]:
    for data in files.values():
        for vaddr, code in code_of(data, BARRIERS, _CODE_BYTES).values():
            if len(code) >= _LEAST_CODE:
                yield f"{vaddr % _PAGE:x}:{code.hex()}"
