"""The one registry of the forms of a report: those of this package, and those of plug-ins."""

from numalab.errors import UserError
from numalab.plugins import Registry
from numalab.report.document import StudyResults
from numalab.report.formats.changelog import render_changelog
from numalab.report.formats.csv_rows import render_csv
from numalab.report.formats.format import Format, Output, TextFormat
from numalab.report.formats.json import render_document
from numalab.report.formats.junit import render_junit
from numalab.report.formats.markdown import render_markdown
from numalab.report.formats.mmtests import render_mmtests
from numalab.report.formats.perfetto import PerfettoFormat
from numalab.report.formats.terminal import TableFormat
from numalab.report.formats.threads import render_threads
from numalab.results.layout import Results

TABLE = "table"


class PageFormat:
    """The page, as it was published beside the runs."""

    def write(self, study: StudyResults, results: Results) -> Output:
        """Return the page's HTML."""
        return results.html.read_text(encoding="utf-8")


BUILT_IN: dict[str, Format] = {
    TABLE: TableFormat(),
    "changelog": TextFormat(render_changelog),
    "mmtests": TextFormat(render_mmtests),
    "threads": TextFormat(render_threads),
    "markdown": TextFormat(render_markdown),
    "junit": TextFormat(render_junit),
    "csv": TextFormat(render_csv),
    "json": TextFormat(render_document),
    "html": PageFormat(),
    "perfetto": PerfettoFormat(),
}
_REGISTRY: Registry[Format] = Registry("format")
for _name, _format in BUILT_IN.items():
    _REGISTRY.add(_name, _format)


def register(name: str, form: Format) -> None:
    """Add a form of a report, as a plug-in does. Raises UserError for a name that is taken."""
    _REGISTRY.add(name, form)


def find_format(name: str) -> Format:
    """Return the form of this name. Raises UserError, with the names there are, for another."""
    formats = _REGISTRY.all()
    if name not in formats:
        raise UserError(f"there is no format {name!r}", choices=list(formats))
    return formats[name]
