"""Registries, and the plug-ins that add entries to them.

A registry holds everything of one kind by name: shapes, measures, formats. Its own entries are in
the modules of one package, which it imports when it is first read. Each `plugins/*.py` of a lab
folder (numalab.places) is imported once, in the order of the names, and adds further entries. A
plug-in runs with the privileges of the user, so a file that another user can change is not run.
"""

import hashlib
import importlib
import inspect
import os
import pkgutil
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Any, Generic, TypeVar

from numalab.errors import LabError, UserError
from numalab.places import PLUGINS, forget_skipped, list_inputs, skip_input

T = TypeVar("T")

_PREFIX = "numalab_plugins_"
_imported: set[Path] = set()
_broken: dict[Path, UserError] = {}
_registries: "list[Registry[Any]]" = []


class Registry(Generic[T]):
    """All entries of one kind by name: the built-in ones and those of plug-ins."""

    def __init__(self, kind: str, package: str = "", first: Sequence[str] = ()) -> None:
        """Make a registry that imports every module of `package` before it is first read.

        `kind` names an entry in messages, such as `shape`. The modules `first` of the package are
        imported first, in this order; all others follow by name.
        """
        self.kind = kind
        self._package, self._first = package, tuple(first)
        self._entries: dict[str, T] = {}
        self._definitions: dict[str, Callable[..., Any]] = {}
        self._complete = not package
        self._order: dict[str, int] = {}
        _registries.append(self)

    def add(self, name: str, entry: T, definition: Callable[..., Any]) -> None:
        """Add an entry. Raises UserError when the name is taken.

        `definition` is the function or class behind the entry. Its docstring describes the entry,
        and its module tells whether the entry is built in.
        """
        if not _is_ours(definition.__module__):
            self._import_package()
        if name in self._entries:
            raise UserError(f"there is a {self.kind} called {name!r} already")
        self._entries[name] = entry
        self._definitions[name] = definition
        self._rank()

    def built_in(self) -> Mapping[str, T]:
        """Return the built-in entries by name. No plug-in is imported."""
        entries = self.registered()
        names = [name for name in entries if _is_ours(self.module(name))]
        return MappingProxyType({name: entries[name] for name in names})

    def registered(self) -> Mapping[str, T]:
        """Return the built-in entries, and those of plug-ins that are imported already."""
        self._import_package()
        return MappingProxyType(self._entries)

    def all(self) -> Mapping[str, T]:
        """Return all entries by name, built-in and of plug-ins.

        A plug-in that cannot be imported is left out (see `numalab.places.skip_input`).
        """
        load_plugins()
        return self.registered()

    def find(self, name: str) -> T:
        """Return one entry. Raises UserError with all names, and the plug-ins that are broken."""
        entries = self.all()
        if name not in entries:
            reason = f"no {self.kind} is called {name[:80]!r}"
            for error in _broken.values():
                reason += f"; a plug-in was left out: {error}"
            raise UserError(reason, choices=entries)
        return entries[name]

    def describe(self, name: str) -> str:
        """Return the first sentence of an entry's docstring, on one line."""
        self._import_package()
        # Not inspect.getdoc, which returns the docstring of a base class if there is none.
        text = inspect.cleandoc(self._definitions[name].__doc__ or "")
        return " ".join(text.partition("\n\n")[0].split())

    def is_built_in(self, name: str) -> bool:
        """Return whether numalab itself defines an entry."""
        return _is_ours(self.module(name))

    def definition(self, name: str) -> Callable[..., Any]:
        """Return the function or class behind an entry."""
        return self._definitions[name]

    def file(self, name: str) -> str | None:
        """Return the file of the plug-in that defines an entry; None for a built-in one."""
        module = sys.modules.get(self.module(name))
        return None if self.is_built_in(name) or module is None else module.__file__

    def module(self, name: str) -> str:
        """Return the module that defines an entry."""
        return self._definitions[name].__module__

    def remove(self, module: str | None = None) -> None:
        """Remove the entries that a module defines; None: all that are not built in."""
        for name in list(self._entries):
            if self.module(name) == module or (module is None and not _is_ours(self.module(name))):
                del self._entries[name], self._definitions[name]

    def _import_package(self) -> None:
        if self._complete:
            return
        self._complete = True  # at once: a module of the package may read its registry
        path, prefix = importlib.import_module(self._package).__path__, f"{self._package}."
        names = sorted(module.name for module in pkgutil.walk_packages(path, prefix))
        modules = list(dict.fromkeys([*(prefix + name for name in self._first), *names]))
        self._order = {module: place for place, module in enumerate(modules)}
        for module in modules:
            self._import(module)
        self._rank()

    def _import(self, module: str) -> None:
        """Import a module of the package. Raises ImportError, with the file, for a broken one."""
        try:
            importlib.import_module(module)
        except Exception as error:
            self._complete = False
            self.remove(module)
            file = module.replace(".", "/") + ".py"
            reason = f"{type(error).__name__}: {error}"
            raise ImportError(f"lab/{file} cannot be imported: {reason}") from error

    def _rank(self) -> None:
        """Sort the entries by module: any module of the package may be imported first."""
        order = self._order
        ranked = sorted(self._entries, key=lambda name: order.get(self.module(name), len(order)))
        self._entries = {name: self._entries[name] for name in ranked}


def _is_ours(module: str) -> bool:
    return module.startswith("numalab.")


def load_plugins() -> None:
    """Import the plug-ins of the lab folders that are not imported yet.

    A plug-in that cannot be imported is left out and tried again by the next call.
    """
    for path in list_inputs(PLUGINS, "*.py").values():
        try:
            _load(path.resolve())
        except UserError as error:
            _broken[path] = error
            skip_input(error)


def require_plugins() -> None:
    """Raise UserError, with the file, for a plug-in that cannot be imported.

    A study calls this before it boots anything, because its runs would lack that plug-in's
    measures.
    """
    for path in list_inputs(PLUGINS, "*.py", strict=True).values():
        _load(path.resolve())


def loaded_plugins() -> tuple[str, ...]:
    """Import the plug-ins of the lab folders; return `NAME (digest of its content)` of each."""
    load_plugins()
    return tuple(
        f"{path.name} ({hashlib.sha256(path.read_bytes()).hexdigest()[:8]})"
        for path in sorted(_imported, key=lambda path: path.name)
    )


def explain_fault(error: BaseException) -> UserError | None:
    """Return an error that names the plug-in which raised `error`; None for an error of numalab.

    A LabError is explained already.
    """
    place = None
    if isinstance(error, LabError):
        return None
    for frame, line in traceback.walk_tb(error.__traceback__):
        if frame.f_globals.get("__name__", "").startswith(_PREFIX):
            place = frame.f_globals["__file__"], line
    if place is None:
        return None
    file, line = place
    reason = f"{type(error).__name__}: {str(error).partition(chr(10))[0][:300]}"
    return UserError(f"this plug-in failed in line {line}: {reason}", file=file)


def unload_plugins() -> None:
    """Remove all entries that are not built in, and forget which plug-ins were imported."""
    for registry in _registries:
        registry.remove()
    for name in [name for name in sys.modules if name.startswith(_PREFIX)]:
        del sys.modules[name]
    _imported.clear()
    _broken.clear()
    forget_skipped()


def _load(path: Path) -> None:
    if path in _imported:
        return
    _imported.add(path)  # at once: a plug-in may read a registry itself
    # The same name in every process, so that workers can unpickle objects of its classes.
    digest = hashlib.sha256(os.fsencode(path)).hexdigest()[:8]
    module = ModuleType(f"{_PREFIX}{digest}_{path.stem}")
    module.__file__ = str(path)
    sys.modules[module.__name__] = module  # dataclasses and pydantic look up their module
    try:
        # From the source that was checked, and never from a __pycache__ beside it.
        exec(compile(path.read_bytes(), path, "exec"), module.__dict__)
    except (Exception, SystemExit) as error:
        _imported.discard(path)
        for registry in _registries:
            registry.remove(module.__name__)
        del sys.modules[module.__name__]
        text = str(error) if isinstance(error, LabError) else f"{type(error).__name__}: {error}"
        raise UserError(f"this plug-in cannot be imported: {text}", file=path) from error
