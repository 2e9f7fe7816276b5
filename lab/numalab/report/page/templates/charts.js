"use strict";
(() => {
  const $ = (selector, inside = document) => [...inside.querySelectorAll(selector)];
  const data = JSON.parse(document.getElementById("chart-data").textContent);
  const views = [];
  const zoomed = [];
  const whole = [0, data.until];
  let now = whole;

  function rowsOf(spans) {
    return spans.start.map((start, i) => ({
      row: `N${spans.node[i]} CPU ${spans.cpu[i]}`, cpu: spans.cpu[i], node: spans.node[i],
      start: start / 1000, end: spans.end[i] / 1000, task: spans.tasks[spans.task[i]], own: spans.own[i],
    }));
  }

  // A value holds for the step before its time. No line is drawn over steps without one.
  function pointsOf(lines) {
    return lines.flatMap(({ label, color, place, step, ...columns }) => columns.start.flatMap((start, i) => {
      const point = {
        label, color, place, start,
        mean: columns.mean[i], low: columns.low[i], high: columns.high[i], runs: columns.runs[i],
      };
      if (i && start - columns.start[i - 1] < 1.5 * step) return [point];
      const begin = { ...point, start: start - step, runs: 0 };
      return [{ ...begin, mean: null, low: null, high: null }, begin, point];
    }));
  }

  function paint(colors) {
    for (const view of views) {
      for (const [name, value] of Object.entries(colors)) view.signal(name, value);
      view.run();
    }
  }

  let spreading = false;
  function spread(domain, from) {
    if (spreading) return;
    spreading = true;
    for (const view of zoomed) {
      if (view !== from) view.signal("zoom_start", domain).run();
    }
    spreading = false;
  }

  function zoom(what) {
    const [low, high] = now;
    const middle = (low + high) / 2, half = (high - low) / 2;
    const to = {
      in: [middle - half / 2, middle + half / 2], out: [middle - half * 2, middle + half * 2],
      left: [low - half / 2, high - half / 2], right: [low + half / 2, high + half / 2], all: whole,
    }[what];
    const size = Math.min(to[1] - to[0], whole[1] - whole[0]);
    const start = Math.min(Math.max(to[0], whole[0]), whole[1] - size);
    now = [start, start + size];
    spread(now, null);
  }

  document.addEventListener("click", (event) => {
    const button = event.target.closest("button[data-zoom]");
    if (button) zoom(button.dataset.zoom);
  });

  async function drawOne(place, colors) {
    const { spec, spans, lines, zooms } = data.charts[place.dataset.chart];
    for (const param of spec.params) {
      if (param.name in colors) param.value = colors[param.name];
    }
    if (spans) spec.datasets = { spans: rowsOf(spans) };
    if (lines) spec.datasets = { points: pointsOf(lines) };
    const { view } = await vegaEmbed(place, spec, { actions: false, renderer: "canvas", mode: "vega-lite" });
    views.push(view);
    if (!zooms) return;
    zoomed.push(view);
    view.addSignalListener("zoom_start", (_, domain) => {
      if (!domain) return;
      now = [domain[0], domain[1]];
      spread(now, view);
    });
  }

  async function draw() {
    const dark = matchMedia("(prefers-color-scheme: dark)");
    const colors = () => (dark.matches ? data.dark : data.light);
    for (const place of $("[data-chart]")) await drawOne(place, colors());
    const repaint = () => paint(colors());
    dark.addEventListener("change", repaint);
    addEventListener("beforeprint", () => paint(data.light));
    addEventListener("afterprint", repaint);
    document.documentElement.dataset.ready = "true";
  }
  draw();
})();
