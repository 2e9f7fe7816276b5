"""`numalab cache`: list and prune the cache."""

import time
from typing import Annotated

import typer

from numalab.artifact.cache import HOUR, Entry, choose_to_prune, list_cache, remove_entry
from numalab.cli import options
from numalab.cli.output import aligned, emit, say
from numalab.errors import UserError
from numalab.units import format_seconds, format_size, parse_size

DAY = 86400.0

app = typer.Typer(no_args_is_help=True)


@app.command("list")
def list_entries(as_json: options.Json = False) -> None:
    """List kernels, sources, packages, images, programs and saved boots."""
    entries = list_cache()
    emit(entries, as_json, _table(entries))
    if not as_json:
        say(f"{format_size(sum(entry.size for entry in entries))} in all")


@app.command()
def prune(
    keep: Annotated[
        str | None,
        typer.Option(help="Maximum size of the cache after pruning, such as 20GiB."),
    ] = None,
    older_than: Annotated[
        float | None,
        typer.Option(help="Remove entries that were unused for this number of days.", min=0),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="List the entries without removing them.")
    ] = False,
    as_json: options.Json = False,
) -> None:
    """Remove the least recently used entries.

    Patches and entries in use stay. numalab builds or fetches a removed entry again when needed.
    """
    if keep is None and older_than is None:
        raise UserError("needs --keep SIZE, --older-than DAYS, or both")
    most = None if keep is None else options.parsed(parse_size, keep, "--keep")
    unused_for = None if older_than is None else older_than * DAY
    entries = list_cache()
    chosen = choose_to_prune(entries, keep=most, unused_for=unused_for, now=time.time())
    removed = chosen if dry_run else tuple(entry for entry in chosen if remove_entry(entry))
    emit(removed, as_json, _table(removed) if removed else "nothing to remove")
    freed = sum(entry.size for entry in removed)
    left = sum(entry.size for entry in entries) - freed
    if not as_json:
        say(
            f"{'would free' if dry_run else 'freed'} {format_size(freed)}; {format_size(left)} left"
        )


def _table(entries: tuple[Entry, ...]) -> str:
    rows = [("kind", "what", "size", "last used", "")]
    now = time.time()
    for entry in entries:
        ago = f"{format_seconds(max(now - entry.last_use, 1))} ago"
        if entry.last_use - now > HOUR:
            ago = "in the future"
        rows.append((entry.kind, entry.name, format_size(entry.size), ago, entry.in_use))
    return aligned(rows)
