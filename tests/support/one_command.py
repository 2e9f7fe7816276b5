"""A command called as from a shell, without the others."""

from collections.abc import Callable

import typer
from typer.testing import CliRunner, Result


def invoke(command: Callable[..., None], *words: object) -> Result:
    """Return how a command ended with some words; what it raises but to exit is raised here."""
    app = typer.Typer()
    app.command()(command)
    result = CliRunner().invoke(app, [str(word) for word in words])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result
