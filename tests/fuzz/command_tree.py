"""Every command of numalab with its options and arguments, read from the commands themselves."""

import importlib
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from typer import Context, Typer
from typer.models import ArgumentInfo

from numalab.cli.main import COMMANDS, MODULES


@dataclass(frozen=True)
class Parameter:
    """An option with its spellings, or an argument, which has none."""

    name: str
    spellings: tuple[str, ...]
    kind: type
    choices: tuple[str, ...] = ()
    repeated: bool = False

    @property
    def is_flag(self) -> bool:
        """Whether it is an option without a value."""
        return self.kind is bool

    @property
    def is_path(self) -> bool:
        """Whether its value is, or may be, a path."""
        names = {"topology", "patch", "series", "kernel", "study", "studies", "name", "text"}
        return self.kind is Path or self.name in names


@cache
def commands() -> dict[str, tuple[Parameter, ...]]:
    """Return the parameters of every command by its words, such as `kernel show`."""
    leaves: dict[str, tuple[Parameter, ...]] = {}
    for name, (room, _) in COMMANDS.items():
        module = importlib.import_module(f"numalab.cli.{room}.{MODULES.get(name, name)}")
        app: Typer | None = getattr(module, "app", None)
        if app is None:
            leaves[name] = _parameters(module.command)
            continue
        for command in app.registered_commands:
            assert command.callback is not None
            word = command.name or command.callback.__name__.replace("_", "-")
            leaves[f"{name} {word}"] = _parameters(command.callback)
    return leaves


def takes_json(name: str) -> bool:
    """Tell whether a command has the option --json."""
    return any("--json" in parameter.spellings for parameter in commands().get(name, ()))


def _parameters(callback: Callable[..., Any]) -> tuple[Parameter, ...]:
    hints = get_type_hints(callback, include_extras=True)
    names = inspect.signature(callback).parameters
    return tuple(_parameter(name, hints[name]) for name in names if hints[name] is not Context)


def _parameter(name: str, hint: Any) -> Parameter:
    assert get_origin(hint) is Annotated, f"{name} is neither an option nor an argument"
    kind, info = get_args(hint)[:2]
    if get_origin(kind) in (Union, UnionType):
        (kind,) = (part for part in get_args(kind) if part is not type(None))
    repeated = get_origin(kind) is list
    if repeated:
        (kind,) = get_args(kind)
    choices = tuple(map(str, get_args(kind))) if get_origin(kind) is Literal else ()
    kind = str if choices else kind
    if isinstance(info, ArgumentInfo):
        return Parameter(name, (), kind, choices, repeated)
    # Within Annotated, typer takes what would be the default for the first spelling.
    first = [info.default] if isinstance(info.default, str) else []
    named = [part for text in (*first, *(info.param_decls or ())) for part in text.split("/")]
    usual = f"--{name.replace('_', '-')}"
    return Parameter(name, tuple(named) or (usual,), kind, choices, repeated)
