"""A picture of the report for a README: the topology, and the tasks on each CPU of each variant.

Drawn by Vega-Lite without a browser, in light colours on white.
"""

import mmap
import re
import resource
from textwrap import wrap
from xml.etree import ElementTree

from markupsafe import escape

from numalab.errors import HostError
from numalab.report import formatting
from numalab.report.document import CellReport
from numalab.report.page import charts
from numalab.report.page.timeline import on_cpus
from numalab.topology.view.drawing import render_svg

WIDTH, EDGE = 1080, 16
DRAWING = 280
TOP = 84
LINE = 17
NOTE = 'font-size="12.5" fill="#5d636b"'
DARK_RULES = re.compile(r"@media[^{]*\{(?:[^{}]*\{[^{}]*\})*[^{}]*\}")
VARIABLE = re.compile(r"--([\w-]+):([^;}]+)")
USE = re.compile(r"var\(--([\w-]+)\)")
# The address space that V8 reserves when it starts: limited to 64 GiB it aborts, to 66 it runs.
V8_BYTES = 66 << 30
_MAP_NORESERVE = 0x4000  # <asm-generic/mman.h>; Python 3.11 has no name for it
SVG = "http://www.w3.org/2000/svg"


def render_picture_svg(report: CellReport) -> str:
    """Draw the report's picture as a standalone SVG of 1080 pixels width."""
    timelines, height = _timelines(report)
    total = round(TOP + max(height, DRAWING + 4 * LINE) + EDGE)
    room = WIDTH - DRAWING - 3 * EDGE
    verdict = wrap(formatting.printable(report.verdict), 150)[:2]
    notes = [
        formatting.machine_line(report),
        f"mode {report.mode.title}",
        "coloured: task of interest, by node",
        "grey: other task; blank: idle",
    ]
    parts = [
        f'<rect width="{WIDTH}" height="{total}" fill="#fff"/>',
        _text(EDGE, 28, formatting.printable(report.question), 'font-size="16" font-weight="bold"'),
        *(_text(EDGE, 48 + LINE * i, line, NOTE) for i, line in enumerate(verdict)),
        _placed(_fixed_colors(render_svg(report.topology)), EDGE, TOP, DRAWING, DRAWING),
        *(_text(EDGE, TOP + DRAWING + LINE * i, line, NOTE) for i, line in enumerate(notes, 1)),
        _placed(timelines, EDGE + DRAWING + EDGE, TOP, room, height),
    ]
    return (
        f'<svg xmlns="{SVG}" width="{WIDTH}" height="{total}" viewBox="0 0 {WIDTH} {total}" '
        f'font-family="Arial, Liberation Sans, sans-serif">{"".join(parts)}</svg>\n'
    )


def render_picture_png(report: CellReport, scale: float = 2.0) -> bytes:
    """Draw the report's picture as a PNG, `scale` pixels for each of the SVG's."""
    import vl_convert  # noqa: PLC0415 - text reports need none

    png: bytes = vl_convert.svg_to_png(render_picture_svg(report), scale=scale)
    return png


def _timelines(report: CellReport) -> tuple[str, float]:
    """Draw the CPU charts of all variants below each other; return the SVG and its height.

    Raises HostError where the limit of the address space would make V8 abort the process.
    """
    import vl_convert  # noqa: PLC0415

    room = WIDTH - DRAWING - 3 * EDGE
    until = charts.longest_ms(report.timelines)
    charted, whole = [], {}
    for timeline in report.timelines:
        spec = charts.cpu_chart(timeline, report.topology, until, on_cpus(timeline).spans)
        whole = {name: spec.pop(name) for name in ("$schema", "params", "config")}
        del spec["autosize"], spec["padding"]
        title = f"{timeline.variant}: {_kernel(report, timeline.variant)}"
        charted.append(spec | {"width": room - 110, "title": {"text": formatting.printable(title)}})
    if not charted:
        return f'<svg xmlns="{SVG}" width="1" height="1"/>', 1
    font = {"font": "Arial, Liberation Sans, sans-serif"}
    whole["config"] |= font | {"title": font | {"anchor": "start", "fontSize": 12}}
    whole |= {"vconcat": charted, "spacing": 8}
    _check_address_space()
    svg: str = vl_convert.vegalite_to_svg(whole, vl_version=charts.VEGA_LITE)
    root = ElementTree.fromstring(svg)
    return svg, float(root.attrib["height"]) * room / float(root.attrib["width"])


def _check_address_space() -> None:
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit == resource.RLIM_INFINITY:
        return
    try:
        mmap.mmap(-1, V8_BYTES, mmap.MAP_PRIVATE | _MAP_NORESERVE, 0).close()
    except OSError:
        raise HostError(
            f"the picture needs {V8_BYTES >> 30} GiB of address space (not of memory), "
            f"the limit is {limit / 2**30:.1f} GiB",
            hint="ulimit -v unlimited",
        ) from None


def _kernel(report: CellReport, variant: str) -> str:
    kernels = (f"{v.kernel} ({v.release})" for v in report.variants if v.name == variant)
    return next(kernels, "unknown kernel")


def _text(x: float, y: float, text: str, style: str) -> str:
    return f'<text x="{x}" y="{y}" {style}>{escape(text)}</text>'


def _fixed_colors(svg: str) -> str:
    """Replace the colours of a drawing that follow the reader's scheme by the light ones.

    The picture's background is white, and its renderer supports neither media queries nor `var()`.
    """
    text = DARK_RULES.sub("", svg)
    values: dict[str, str] = {}
    for name, value in VARIABLE.findall(text):
        values.setdefault(name, value.strip())
    return USE.sub(lambda match: values.get(match[1], match[0]), text)


def _placed(svg: str, x: float, y: float, width: float, height: float) -> str:
    """Place a standalone SVG at the top left of a box of another SVG, scaled to fit."""
    ElementTree.register_namespace("", SVG)
    root = ElementTree.fromstring(svg)
    if "viewBox" not in root.attrib:
        root.set("viewBox", f"0 0 {root.get('width', '1')} {root.get('height', '1')}")
    for name, value in {"x": x, "y": y, "width": width, "height": height}.items():
        root.set(name, f"{value:g}")
    root.set("preserveAspectRatio", "xMinYMin meet")
    return ElementTree.tostring(root, encoding="unicode")
