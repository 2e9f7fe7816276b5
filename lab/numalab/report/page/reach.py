"""The page of a patch with the executions of each line."""

from typing import Any

from numalab.reach.annotated import annotated_files
from numalab.reach.model import PatchReach
from numalab.reach.text import function_text, functions_with_lines, verdict_text
from numalab.report.page.page import own, render_template


def render_reach(reach: PatchReach) -> str:
    """Render the annotated patch as one HTML page without requests."""
    values = {"reach": reach, "annotated": annotated_values(reach), "level": 2}
    return render_template("reach.html", (own("table.js"),), values)


def annotated_values(reach: PatchReach) -> dict[str, Any]:
    """Return `annotated` of `annotated.html`, which also gets the `level` of its headings."""
    sides = [side for side in (reach.baseline, reach.patched) if side is not None]
    with_lines = functions_with_lines(reach)
    return {
        "verdict": verdict_text(reach),
        "files": annotated_files(reach),
        "sides": sides,
        "functions": [
            (
                side.side,
                function,
                "may differ" if function.name in with_lines else "differs",
                function_text(function, side.runs),
            )
            for side in sides
            for function in side.functions
        ],
        "notes": list(dict.fromkeys(note for side in sides for note in side.notes)),
    }
