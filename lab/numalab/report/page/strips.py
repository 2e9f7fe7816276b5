"""A strip for each variant: one dot a run, one tick at the mean, drawn as a small SVG."""

from markupsafe import Markup

from numalab.report import figures
from numalab.report.comparisons import MeasureComparison
from numalab.report.document import CellReport

WIDTH, LINE, EDGE = 150, 14, 6


def render_strip(report: CellReport, comparison: MeasureComparison) -> Markup:
    """Draw every run of one measure on one scale that starts at 0, a line for each variant.

    A share in percent is drawn on 0 to 100. The text alternative lists the values.
    """
    info = report.measure(comparison.measure)
    values = [report.values(variant.name, info.name) for variant in report.variants]
    every = [value for line in values for value in line]
    low, high = min([0.0, *every]), max([0.0, *every])
    if info.unit.startswith("%") and low >= 0 and high <= 100:
        high = 100.0
    scale = (WIDTH - 2 * EDGE) / (high - low or 1.0)
    parts, texts_of = [], []
    for place, (variant, line) in enumerate(zip(report.variants, values, strict=True)):
        y = place * LINE + LINE / 2
        parts.append(f'<path class="base" d="M{EDGE} {y}H{WIDTH - EDGE}"/>')
        summary = comparison.summaries[place]
        if summary is not None:
            x = EDGE + (summary.mean - low) * scale
            parts.append(f'<path class="mean v{place}" d="M{x:.1f} {y - 6}V{y + 6}"/>')
        for value in line:
            x = EDGE + (value - low) * scale
            parts.append(f'<circle class="dot v{place}" cx="{x:.1f}" cy="{y}" r="3.2"/>')
        places = figures.decimals(line) if line else 0
        texts = ", ".join(figures.number(value, places) for value in line) or "none"
        texts_of.append(f"{variant.name}: {texts}")
    text = Markup.escape(
        figures.printable(f"{'; '.join(texts_of)} {info.unit}; from {low:g} to {high:g}")
    )
    height = LINE * len(report.variants)
    return Markup(
        f'<svg class="strip" role="img" width="{WIDTH}" height="{height}" '
        f'viewBox="0 0 {WIDTH} {height}"><title>{text}</title>{"".join(parts)}</svg>'
    )
