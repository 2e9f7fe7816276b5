"""The registry of report formats."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, Union

from numalab.errors import UserError
from numalab.plugins import Registry
from numalab.report.document import StudyResults
from numalab.results.layout import Results

if TYPE_CHECKING:
    from rich.console import ConsoleRenderable

Output = Union[str, "ConsoleRenderable"]


class Format(Protocol):
    """One form of a report, as `numalab report --format` prints it."""

    def write(self, study: StudyResults, results: Results) -> Output:
        """Return what is printed of a study. A form that is files writes them into `results`, and
        returns where they are."""
        ...


@dataclass(frozen=True)
class TextFormat:
    """A form that is one text. Iterating over the study gives the reports of its cells."""

    name: str
    render: Callable[[StudyResults], str]

    def write(self, study: StudyResults, results: Results) -> str:
        """Return the text, its last line ended."""
        text: object = self.render(study)
        if not isinstance(text, str):
            kind = type(text).__name__
            reason = f"the format {self.name!r} returned a value of type {kind}, not a text"
            raise UserError(reason, file=FORMATS.file(self.name))
        return text


# In the order in which `--help` lists them; modules not named here follow.
FORMATS: Registry[Format] = Registry(
    "format",
    __package__,
    first=("terminal", "changelog", "mmtests", "threads", "markdown", "junit", "csv_rows", "json"),
)
Writer = TypeVar("Writer", bound=Callable[..., Any])


def register_format(name: str) -> Callable[[Writer], Writer]:
    """Add a format of reports, which `numalab report --format NAME` prints; a decorator.

    It decorates a function that turns a study into a text, or a class with the method `write` of
    `Format`. The docstring describes the format.

        @register_format("verdicts")
        def verdicts(study: StudyResults) -> str:
            '''The verdict of each cell, one a line.'''
            return "".join(f"{report.verdict}\\n" for report in study.reports)

    Raises UserError for a name that is taken.
    """

    def add(writer: Writer) -> Writer:
        form: Format = writer() if isinstance(writer, type) else TextFormat(name, writer)
        FORMATS.add(name, form, writer)
        return writer

    return add


@register_format("html")
class PageFormat:
    """The page that `numalab run` published beside the runs."""

    def write(self, study: StudyResults, results: Results) -> str:
        """Return the page's HTML."""
        return results.html.read_text(encoding="utf-8")
