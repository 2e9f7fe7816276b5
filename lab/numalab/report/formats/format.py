"""What every form of a report has in common."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, Union

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

    render: Callable[[StudyResults], str]

    def write(self, study: StudyResults, results: Results) -> str:
        """Return the text, its last line ended."""
        return self.render(study)
