"""Vega-Lite specifications of heat maps between nodes and of curves over time."""

from numalab.report.page.charts import LABEL_ROOM, VARIANTS, Spec, framed, time_axis, zoom

_CELL_TIP: list[Spec] = [
    {"field": "from", "type": "ordinal", "title": "from node"},
    {"field": "to", "type": "ordinal", "title": "to node"},
    {
        "field": "mean",
        "type": "quantitative",
        "title": "mean of a run",
        "format": ",.2~f",
    },
    {"field": "runs", "type": "nominal", "title": "each run"},
    {"field": "distance", "type": "quantitative", "title": "distance"},
]


def heat_map(rows: list[Spec], nodes: int, most: float) -> Spec:
    """Draw a node x node matrix: rows are where something left, columns where it went.

    The darker, the more, up to `most`, which all variants share. The figures stand in the cells
    while there is room.
    """
    step = 40 if nodes <= 8 else max(14, 320 // nodes)
    full = {"test": f"datum.mean > {0.55 * most}", "value": "#ffffff"}
    axis = {"domain": False, "ticks": False, "labelAngle": 0}
    place = {"type": "ordinal", "scale": {"padding": 0.04}}
    cell = {
        "mark": {"type": "rect", "cornerRadius": 2},
        "encoding": {
            "fill": {"value": "#0072B2"},
            "fillOpacity": {
                "field": "mean",
                "type": "quantitative",
                "scale": {"domain": [0, most or 1], "range": [0.06, 1], "clamp": True},
                "legend": None,
            },
        },
    }
    text = {
        "mark": {"type": "text", "fontSize": 11},
        "encoding": {
            "text": {"field": "text", "type": "nominal"},
            "color": {"condition": [full], "value": {"expr": "fg"}},
        },
    }
    return framed(
        {
            "data": {"values": rows},
            "width": {"step": step},
            "height": {"step": step},
            "encoding": {
                "tooltip": _CELL_TIP,
                "x": {
                    "field": "to",
                    **place,
                    "axis": {**axis, "title": "to node", "orient": "top"},
                },
                "y": {"field": "from", **place, "axis": {**axis, "title": "from node"}},
            },
            "layer": [cell, text] if step >= 30 else [cell],
        }
    )


def curve_chart(unit: str, until_ms: float, most: float) -> Spec:
    """Draw curves with bands over time, of the data set `points`, which the page gives it.

    A point has `start`, `mean`, `low`, `high`, `runs` and `label`, and a colour: the `place` of a
    variant, or a `color` of its own.
    """
    tests = [
        {"test": f"datum.place % {VARIANTS} == {n}", "value": {"expr": f"v{n}"}}
        for n in range(VARIANTS)
    ]
    color = {"condition": tests, "field": "color", "type": "nominal", "scale": None}
    detail = {"field": "label", "type": "nominal"}
    y = {
        "type": "quantitative",
        "scale": {"domain": [0, most or 1], "nice": True},
        "axis": {"title": unit, "tickCount": 4, **LABEL_ROOM},
    }
    band = {
        "mark": {"type": "area", "opacity": 0.18, "clip": True, "interpolate": "step-before"},
        "encoding": {"y": {"field": "low", **y}, "y2": {"field": "high"}, "fill": color},
    }
    line = {
        "params": [zoom()],
        "mark": {"type": "line", "clip": True, "strokeWidth": 1.8, "interpolate": "step-before"},
        "encoding": {"y": {"field": "mean", **y}, "stroke": color},
    }
    points = {
        "mark": {"type": "point", "opacity": 0, "size": 90, "clip": True},
        "encoding": {
            "y": {"field": "mean", **y},
            "tooltip": [
                {"field": "label", "type": "nominal", "title": "of"},
                {"field": "start", "type": "quantitative", "title": "until [ms]", "format": ",.0f"},
                {"field": "mean", "type": "quantitative", "title": f"mean [{unit}]"},
                {"field": "low", "type": "quantitative", "title": "least"},
                {"field": "high", "type": "quantitative", "title": "most"},
                {"field": "runs", "type": "quantitative", "title": "runs"},
            ],
        },
    }
    return framed(
        {
            "data": {"name": "points"},
            "width": "container",
            "height": 130,
            "autosize": {"type": "fit-x", "contains": "padding"},
            "encoding": {"x": time_axis(until_ms), "detail": detail},
            "layer": [band, line, points],
        }
    )
