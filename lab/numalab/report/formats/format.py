"""What every form of a report has in common."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, Union

from numalab.report.model import StudyReport
from numalab.results.layout import Results

if TYPE_CHECKING:
    from rich.console import ConsoleRenderable

Output = Union[str, "ConsoleRenderable"]


class Format(Protocol):
    """One form of a report, as `numalab report --format` prints it."""

    def write(self, reports: Sequence[StudyReport], results: Results) -> Output:
        """Return what is printed of the cells of a study. A form that is files writes them into
        `results`, and returns where they are."""
        ...


@dataclass(frozen=True)
class TextFormat:
    """A form that is one text."""

    render: Callable[[Sequence[StudyReport]], str]

    def write(self, reports: Sequence[StudyReport], results: Results) -> str:
        """Return the text, its last line ended."""
        return self.render(reports)
