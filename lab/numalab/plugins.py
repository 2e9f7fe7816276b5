"""Plug-ins: the Python modules in the `plugins/` folder of a lab folder.

Each `plugins/*.py` of a lab folder (numalab.places) is imported once, in the order of the names,
before a registry is first read. It adds entries to the registries: a topology shape, a report
format, a measure, a sampled source, an axis of a study. A plug-in runs with the privileges of the
user, so it is refused if another user can change it (numalab.places).
"""

import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Generic, TypeVar

from numalab.errors import LabError, UserError
from numalab.places import PLUGINS, list_inputs

T = TypeVar("T")

_PREFIX = "numalab_plugins_"
_imported: set[Path] = set()


class Registry(Generic[T]):
    """Everything of one kind by its name: numalab's own, and what plug-ins add."""

    def __init__(self, kind: str) -> None:
        """Make an empty registry; `kind` is what messages call one entry, such as `shape`."""
        self.kind = kind
        self._entries: dict[str, T] = {}

    def add(self, name: str, entry: T) -> None:
        """Add an entry. Raises UserError when the name is taken."""
        if name in self._entries:
            raise UserError(f"there is a {self.kind} called {name!r} already")
        self._entries[name] = entry

    def all(self) -> Mapping[str, T]:
        """Return all entries by name, numalab's own first. Raises UserError for a bad plug-in."""
        load_plugins()
        return MappingProxyType(self._entries)

    def find(self, name: str) -> T:
        """Return one entry. Raises UserError, with the names there are, when there is none."""
        entries = self.all()
        if name not in entries:
            raise UserError(f"no {self.kind} is called {name[:80]!r}", choices=entries)
        return entries[name]


def load_plugins() -> None:
    """Import the plug-ins of the lab folders that are not imported yet.

    Raises UserError, with the file, for one that cannot be imported.
    """
    for path in list_inputs(PLUGINS, "*.py").values():
        _load(path.resolve())


def _load(path: Path) -> None:
    if path in _imported:
        return
    _imported.add(path)  # at once: a plug-in may read a registry itself
    module = ModuleType(f"{_PREFIX}{len(_imported)}_{path.stem}")
    module.__file__ = str(path)
    sys.modules[module.__name__] = module  # dataclasses and pydantic look up their module
    try:
        # From the source that was checked, and never from a __pycache__ beside it.
        exec(compile(path.read_bytes(), path, "exec"), module.__dict__)
    except Exception as error:
        _imported.discard(path)
        del sys.modules[module.__name__]
        text = str(error) if isinstance(error, LabError) else f"{type(error).__name__}: {error}"
        raise UserError(f"this plug-in cannot be imported: {text}", file=path) from error
