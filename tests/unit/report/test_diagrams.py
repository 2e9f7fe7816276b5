"""Heat maps and curves: what of the rows is drawn where, and in which scale."""

import re
from pathlib import Path

import pytest

from numalab.report import page
from numalab.report.page.charts import DARK, LIGHT, Spec, curve_chart, heat_map

CELLS: list[Spec] = [
    {"from": a, "to": b, "mean": 3.0 * a + b, "text": "", "runs": "", "distance": 10}
    for a in range(2)
    for b in range(2)
]


def test_rows_are_where_something_left_and_columns_where_it_went() -> None:
    spec = heat_map(CELLS, 2, 4.0)
    axes = spec["encoding"]
    assert (axes["y"]["field"], axes["y"]["axis"]["title"]) == ("from", "from node")
    assert (axes["x"]["field"], axes["x"]["axis"]["title"]) == ("to", "to node")
    assert axes["x"]["axis"]["orient"] == "top" and "orient" not in axes["y"]["axis"]
    assert spec["data"]["values"] == CELLS
    tips = [(tip["field"], tip["title"]) for tip in axes["tooltip"]]
    assert tips == [
        ("from", "from node"),
        ("to", "to node"),
        ("mean", "mean per run"),
        ("runs", "all runs"),
        ("distance", "distance"),
    ]
    assert set(CELLS[0]) >= {field for field, _ in tips}


def test_a_cell_is_as_dark_as_its_part_of_the_largest() -> None:
    spec = heat_map(CELLS, 2, 4.0)
    cell, text = spec["layer"]
    # No line between the cells and their names, which stand upright.
    for axis in (spec["encoding"][side]["axis"] for side in "xy"):
        assert (axis["domain"], axis["ticks"], axis["labelAngle"]) == (False, False, 0)
    dark = cell["encoding"]["fillOpacity"]
    assert (dark["field"], dark["scale"]["domain"]) == ("mean", [0, 4.0])
    assert dark["scale"]["range"] == [0.06, 1] and dark["scale"]["clamp"] is True
    # On what is darker than the middle, the figure is white.
    (white,) = text["encoding"]["color"]["condition"]
    assert white == {"test": f"datum.mean > {0.55 * 4.0}", "value": "#ffffff"}
    assert text["encoding"]["text"]["field"] == "text"


def test_nothing_at_all_still_has_a_scale() -> None:
    assert heat_map(CELLS, 2, 0.0)["layer"][0]["encoding"]["fillOpacity"]["scale"]["domain"] == [
        0,
        1,
    ]
    assert curve_chart("%", 10.0, 0.0)["layer"][0]["encoding"]["y"]["scale"]["domain"] == [
        0,
        1,
    ]


@pytest.mark.parametrize(
    ("nodes", "step", "figures"),
    [(2, 40, True), (8, 40, True), (9, 35, True), (10, 32, True), (11, 29, False), (64, 14, False)],
)
def test_figures_are_left_out_where_cells_get_too_small(
    nodes: int, step: int, figures: bool
) -> None:
    spec = heat_map(CELLS, nodes, 4.0)
    assert (spec["width"], spec["height"]) == ({"step": step}, {"step": step})
    assert (len(spec["layer"]) == 2) == figures
    assert spec["layer"][0]["mark"]["type"] == "rect"


def test_a_curve_is_a_band_a_line_and_points_to_point_at() -> None:
    spec = curve_chart("MB/s", 20.0, 5.0)
    band, line, points = spec["layer"]
    assert [part["mark"]["type"] for part in (band, line, points)] == ["area", "line", "point"]
    low, high = band["encoding"]["y"], band["encoding"]["y2"]
    assert (low["field"], high["field"], line["encoding"]["y"]["field"]) == ("low", "high", "mean")
    for part in (low, line["encoding"]["y"], points["encoding"]["y"]):
        assert part["scale"] == {"domain": [0, 5.0], "nice": True}
        assert part["axis"]["title"] == "MB/s"
    # A value is that of the time up to its end.
    assert {band["mark"]["interpolate"], line["mark"]["interpolate"]} == {"step-before"}
    assert points["mark"]["opacity"] == 0
    # What leaves the time axis when it is zoomed is not drawn beside it.
    assert all(part["mark"]["clip"] for part in (band, line, points))
    tips = {part["field"]: part["title"] for part in points["encoding"]["tooltip"]}
    assert tips == {
        "label": "of",
        "start": "until [ms]",
        "mean": "mean [MB/s]",
        "low": "minimum",
        "high": "maximum",
        "runs": "runs",
    }
    assert spec["encoding"]["x"]["scale"]["domain"] == [0, 20.0]
    assert spec["encoding"]["detail"]["field"] == "label"


def test_a_variant_has_its_colour_on_every_background_and_a_node_its_own() -> None:
    band, line, _ = curve_chart("%", 20.0, 5.0)["layer"]
    color = line["encoding"]["stroke"]
    assert color == band["encoding"]["fill"]
    for place, test in enumerate(color["condition"]):
        assert test == {"test": f"datum.place % 6 == {place}", "value": {"expr": f"v{place}"}}
    assert len(color["condition"]) == 6
    assert (color["field"], color["scale"]) == ("color", None)


def test_each_of_twelve_variants_has_a_colour_in_tables_strips_and_diagrams() -> None:
    """The fifth had none, and its dots could not be seen."""
    style = (Path(page.__file__).parent / "templates/style.css").read_text(encoding="utf-8")
    light, dark = style.split("@media screen and (prefers-color-scheme: dark)", 1)
    for n in range(6):
        assert f"--v{n}: {LIGHT[f'v{n}']};" in light
        assert f"--v{n}: {DARK[f'v{n}']};" in dark
    for place in range(12):
        of = rf"\{{ %s: var\(--v{place % 6}\); \}}"
        assert re.search(rf"\.c{place}\b[^{{}}]*{of % 'color'}", style)
        assert re.search(rf"\.strip \.v{place}\b[^{{}}]*{of % 'stroke'}", style)
        assert re.search(rf"\.swatch\.s{place}\b[^{{}}]*{of % 'background'}", style)


def test_only_the_line_is_zoomed_so_that_the_name_of_it_stands_once() -> None:
    layers = curve_chart("%", 20.0, 5.0)["layer"]
    assert ["params" in layer for layer in layers] == [False, True, False]
