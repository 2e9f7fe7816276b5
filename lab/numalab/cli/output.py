"""Output of commands: a table or one JSON document, and progress."""

import dataclasses
import json
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TextIO

from numalab.errors import shown
from numalab.progress import Progress

if TYPE_CHECKING:
    from rich.console import RenderableType

ModeName = Literal["auto", "kvm", "tcg", "icount", "timed"]

WIDTH = 100  # columns where there is no terminal
LARGE = 1 << 20  # characters of a JSON document that is not indented
PLAIN_INTERVAL = 5.0  # seconds between progress lines where there is no terminal


class Documents:
    """The JSON documents that this command has printed: `--json` means exactly one."""

    printed: int = 0


def emit(value: object, as_json: bool, text: "RenderableType", *, width: int = WIDTH) -> None:
    """Print `value` as one JSON document, or `text`, in `width` columns where no terminal has one.

    Dataclasses become objects, tuples lists, paths strings.
    """
    if as_json:
        Documents.printed += 1
        print(_json(value))
        return
    if isinstance(text, str):
        print(_clean(text))
        return
    from rich.console import Console  # noqa: PLC0415 - costs 50 ms that --json need not pay
    from rich.segment import Segment, Segments  # noqa: PLC0415

    console = Console(width=None if sys.stdout.isatty() else width)
    parts = (Segment(_clean(part.text), part.style) for part in console.render(text))
    console.print(Segments(parts), end="")


def _clean(text: str) -> str:
    """Return a text of several lines without control characters."""
    return "\n".join(map(shown, text.split("\n")))


def _json(value: object) -> str:
    """Return a JSON document, indented unless it is large: json.dumps then is ten times slower.

    What an encoding other than UTF-8 lacks, stdout would write as `\\xe9`, which is not JSON.
    """
    ascii_only = sys.stdout.encoding not in ("utf-8", "UTF-8")
    dump = partial(json.dumps, default=_plain, ensure_ascii=ascii_only, allow_nan=False)
    text = dump(value)
    return text if len(text) > LARGE else dump(value, indent=1)


def aligned(rows: Sequence[Sequence[str]]) -> str:
    """Return rows as lines of columns, for `emit`.

    A rich table would cut names and paths where the output is no terminal, which has no width.
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ("  ".join(map(str.ljust, row, widths)) for row in rows)
    return "\n".join(f" {line.rstrip()}" for line in lines)


def picked(value: object, *names: str) -> dict[str, Any]:
    """Return some attributes of a value by name, for `emit`."""
    return {name: getattr(value, name) for name in names}


def pass_on(data: bytes, stream: TextIO) -> None:
    """Print the output of a guest; on a terminal, replace control characters.

    Control characters of an untrusted guest could type answers or hide later output.
    """
    if stream.isatty():
        lines = data.decode("utf-8", "replace").split("\n")
        data = "\n".join(map(_plainly, lines)).encode(stream.encoding, "backslashreplace")
    stream.flush()
    stream.buffer.write(data)
    stream.flush()


def _plainly(line: str) -> str:
    """Replace unprintable characters; drop a carriage return at the end."""
    text = line.removesuffix("\r")
    return "".join(char if char.isprintable() or char == "\t" else "?" for char in text)


def say(text: str) -> None:
    """Print a message on stderr, without control characters."""
    print(_clean(text.expandtabs()), file=sys.stderr, flush=True)


def say_waiting(results: Path) -> None:
    """Print that another process holds the lock of these results."""
    say(f"waiting: another numalab is using {shown(results)}")


@contextmanager
def continued_by(command: str) -> Iterator[None]:
    """Print after Ctrl-C which command continues."""
    try:
        yield
    except KeyboardInterrupt:
        say(f"finished runs are kept; {command} continues")
        raise


@contextmanager
def progress_lines(title: str) -> Iterator[Progress]:
    """Show progress: a bar on a terminal, else a line every few seconds.

    Yields a function of (message, fraction done from 0 to 1, or None if unknown).
    """
    if sys.stderr.isatty():
        from rich.console import Console  # noqa: PLC0415
        from rich.progress import BarColumn, TextColumn, TimeElapsedColumn  # noqa: PLC0415
        from rich.progress import Progress as Bar  # noqa: PLC0415

        columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
        with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task(title, total=None)

            def show(message: str, fraction: float | None) -> None:
                bar.update(
                    task,
                    description=f"{title}: {message[:60]}",
                    total=None if fraction is None else 1.0,
                    completed=fraction or 0.0,
                )

            yield show
        return
    said = 0.0

    def line(message: str, fraction: float | None) -> None:
        nonlocal said
        now = time.monotonic()
        if now - said >= PLAIN_INTERVAL:
            said = now
            done = "" if fraction is None else f" {fraction:.0%}"
            say(f"{title}:{done} {message}")

    yield line


_field_names: dict[type, tuple[str, ...]] = {}  # of dataclasses: a plan may have 10^5 of them


def _plain(value: object) -> object:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        if (names := _field_names.get(type(value))) is None:
            names = tuple(field.name for field in dataclasses.fields(value))
            _field_names[type(value)] = names
        return {name: getattr(value, name) for name in names}
    if isinstance(value, Path):
        return str(value)
    if hasattr(value, "model_dump"):  # pydantic, which a short command need not import
        return value.model_dump(mode="json")
    if isinstance(value, set | frozenset):
        return sorted(value)
    raise TypeError(f"{type(value).__name__} has no JSON form")
