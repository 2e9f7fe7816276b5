"""Groups of commands that suggest one for a word that is none."""

from typing import Any

from typer.core import TyperGroup

from numalab.errors import UserError, did_you_mean


class CommandGroup(TyperGroup):
    """A group whose error for an unknown command has a suggestion, and all commands."""

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a command. Raises UserError for an unknown one, not while a shell completes."""
        command = super().get_command(ctx, cmd_name)
        if command is None and not ctx.resilient_parsing and not cmd_name.startswith("-"):
            names = self.list_commands(ctx)
            hint = did_you_mean(cmd_name[:80], names)
            raise UserError(f"no command is called {cmd_name[:80]!r}{hint}", choices=names)
        return command
