"""The names that a shell completes. A name that cannot be listed is left out without a message."""

import importlib
from collections.abc import Callable, Iterable
from contextlib import suppress

from numalab.errors import LabError
from numalab.places import list_inputs

Complete = Callable[[str], list[str]]


def _completer(names: Callable[[], Iterable[str]]) -> Complete:
    """Return a completer of typer for some names."""

    def complete(incomplete: str) -> list[str]:
        with suppress(LabError, OSError):
            return sorted(name for name in names() if name.startswith(incomplete))
        return []

    return complete


def _files(kind: str, pattern: str = "*.toml") -> Callable[[], Iterable[str]]:
    return lambda: [path.stem for path in list_inputs(kind, pattern).values()]


def _kernels() -> Iterable[str]:
    # Imported when it is needed: most commands name no kernel.
    kernels = importlib.import_module("numalab.kernel.patched_kernel")
    return list(kernels.list_all_kernels())


def _workloads() -> Iterable[str]:
    tables = list_inputs("workloads", "*/workload.toml")
    return [path.parent.name for path in tables.values()]


kernels = _completer(_kernels)
studies = _completer(_files("studies"))
topologies = _completer(_files("topologies"))
images = _completer(_files("images"))
workloads = _completer(_workloads)
