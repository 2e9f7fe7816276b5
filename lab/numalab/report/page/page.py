"""Templates, scripts and the content security policy of all pages.

The policy (CSP) forbids every request and every script but the page's own, so a hostile name from a
guest could not run even if it were not escaped.
"""

import json
from base64 import b64encode
from collections.abc import Mapping
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from numalab.report import formatting
from numalab.report.document import StudyResults
from numalab.report.unfinished import MOST_CAUSES, causes_of, finished_text, first_line

MOST_LISTED = 1000  # runs without a result; report.json has all
TEMPLATES = Path(__file__).parent / "templates"


def render_template(name: str, scripts: tuple[Markup, ...], values: Mapping[str, Any]) -> str:
    """Render a template with the style, these scripts and a policy that allows just them."""
    template = _environment().get_template(name)
    return template.render(
        style=own("style.css"),
        scripts=scripts,
        policy=_policy(*scripts),
        formatting=formatting,
        first_line=first_line,
        **values,
    )


def unfinished_facts(study: StudyResults) -> dict[str, Any]:
    """Return the planned runs without a result for a page: causes, and every run."""
    groups = causes_of(study)
    runs = [run for cause in groups for run in cause.runs]
    return {
        "text": finished_text(study),
        "causes": groups[:MOST_CAUSES],
        "more": len(groups) - len(groups[:MOST_CAUSES]),
        "runs": runs[:MOST_LISTED],
        "unlisted": len(runs) - len(runs[:MOST_LISTED]),
    }


def own(name: str) -> Markup:
    """Return a script or style of this project."""
    return Markup((TEMPLATES / name).read_text(encoding="utf-8"))


def embedded_json(value: object) -> Markup:
    """Write JSON that no text in it can end the `<script>` element around."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    return Markup(text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"))


def data_uri(svg: str) -> str:
    """Make a drawing an image: it can then neither run a script nor restyle the page."""
    return f"data:image/svg+xml;base64,{b64encode(svg.encode()).decode()}"


@cache
def _environment() -> jinja2.Environment:
    """Return the environment; it keeps compiled templates, which take 0.1 s each."""
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=_finalize,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )


def _finalize(value: Any) -> Any:
    """Escape invisible and reordering characters; markup passes unchanged."""
    if isinstance(value, str) and not isinstance(value, Markup):
        return formatting.printable(value)
    return value


def _policy(*scripts: Markup) -> str:
    # Vega makes functions of its own expressions, hence 'unsafe-eval'; vega-embed adds a style.
    hashes = " ".join(f"'sha256-{_digest(script)}'" for script in scripts)
    return (
        "default-src 'none'; img-src data:; style-src 'unsafe-inline'; "
        f"script-src 'unsafe-eval' {hashes}; base-uri 'none'; form-action 'none'"
    )


def _digest(script: Markup) -> str:
    return b64encode(sha256(str(script).encode()).digest()).decode()
