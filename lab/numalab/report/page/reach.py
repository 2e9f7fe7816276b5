"""The page of a patch with the executions of each line."""

from typing import Any

from numalab.reach.annotated import annotated_files
from numalab.reach.model import PatchReach
from numalab.reach.text import verdict_text
from numalab.report.page.page import own, render_template


def render_reach(reach: PatchReach) -> str:
    """Render the annotated patch as one HTML page without requests."""
    values = {"reach": reach, **annotated_values(reach)}
    return render_template("reach.html", (own("table.js"),), values)


def annotated_values(reach: PatchReach) -> dict[str, Any]:
    """Return the values of `annotated.html`, and the head of a page about a patch."""
    sides = [side for side in (reach.baseline, reach.patched) if side is not None]
    return {
        "verdict": verdict_text(reach),
        "files": annotated_files(reach),
        "sides": sides,
        "functions": [(side.side, function) for side in sides for function in side.functions],
        "notes": list(dict.fromkeys(note for side in sides for note in side.notes)),
    }
