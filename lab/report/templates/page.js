"use strict";
(() => {
  const $ = (selector, inside = document) => [...inside.querySelectorAll(selector)];

  // --- tables: sort by a column, copy as aligned text ------------------------------------------
  const cellText = (cell) => (cell.dataset.text ?? cell.innerText).trim().replace(/\s+/g, " ");
  const cellKey = (cell) => cell.dataset.value !== undefined
    ? (cell.dataset.value === "" ? NaN : Number(cell.dataset.value)) : cellText(cell);

  function sort(button) {
    const head = button.closest("th");
    const table = head.closest("table");
    const column = Number(head.dataset.column);
    const down = head.getAttribute("aria-sort") === "ascending";
    $("th[aria-sort]", table).forEach((other) => other.removeAttribute("aria-sort"));
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    const body = table.tBodies[0];
    const rows = [...body.rows].map((row, place) => ({ row, place, key: cellKey(row.cells[column]) }));
    rows.sort((a, b) => {
      const missing = Number(Number.isNaN(a.key)) - Number(Number.isNaN(b.key));
      if (missing || a.key === b.key) return missing || a.place - b.place;
      const order = typeof a.key === "number" && typeof b.key === "number"
        ? a.key - b.key : String(a.key).localeCompare(String(b.key), "en", { numeric: true });
      return (down ? -order : order) || a.place - b.place;
    });
    body.append(...rows.map((each) => each.row));
  }

  function asText(table) {
    const heads = $("thead th[data-name]", table).map((cell) => cell.dataset.name);
    const right = $("thead th[data-name]", table).map((cell) => cell.classList.contains("num"));
    const rows = [heads, ...[...table.tBodies[0].rows].map((row) => [...row.cells].map(cellText))];
    const widths = heads.map((_, i) => Math.max(...rows.map((row) => row[i].length)));
    return rows.map((row) => row.map((text, i) =>
      right[i] ? text.padStart(widths[i]) : text.padEnd(widths[i])).join("  ").trimEnd()).join("\n") + "\n";
  }

  async function copy(text, button) {
    let done = true;
    try {
      await navigator.clipboard.writeText(text);
    } catch {
      const area = document.createElement("textarea");
      area.value = text;
      document.body.append(area);
      area.select();
      done = document.execCommand("copy");
      area.remove();
      button.focus();
    }
    const said = button.parentElement.querySelector(".said");
    said.textContent = done ? "copied" : "this browser does not allow copying";
    setTimeout(() => { said.textContent = ""; }, 4000);
  }

  document.addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (!button) return;
    if (button.dataset.sort !== undefined) sort(button);
    if (button.dataset.copy) {
      const source = document.getElementById(button.dataset.copy);
      copy(source.tagName === "TABLE" ? asText(source) : source.textContent, button);
    }
    if (button.dataset.zoom) zoom(button.dataset.zoom);
  });

  // --- timelines --------------------------------------------------------------------------------
  const data = JSON.parse(document.getElementById("chart-data").textContent);
  const views = [];
  const domains = new Map();
  let whole = null;

  function rowsOf(spans) {
    return spans.start.map((start, i) => ({
      row: `N${spans.node[i]} CPU ${spans.cpu[i]}`, cpu: spans.cpu[i], node: spans.node[i],
      start: start / 1000, end: spans.end[i] / 1000, task: spans.tasks[spans.task[i]], own: spans.own[i],
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
    for (const view of views) {
      if (view === from) continue;
      view.signal("zoom_start", domain).run();
    }
    spreading = false;
  }

  function zoom(what) {
    if (!views.length || !whole) return;
    const [low, high] = domains.get("now") ?? whole;
    const middle = (low + high) / 2, half = (high - low) / 2;
    const to = {
      in: [middle - half / 2, middle + half / 2], out: [middle - half * 2, middle + half * 2],
      left: [low - half / 2, high - half / 2], right: [low + half / 2, high + half / 2], all: whole,
    }[what];
    const size = Math.min(to[1] - to[0], whole[1] - whole[0]);
    const start = Math.min(Math.max(to[0], whole[0]), whole[1] - size);
    domains.set("now", [start, start + size]);
    spread([start, start + size], null);
  }

  async function draw() {
    const places = $(".chart");
    whole = [0, data.until];
    for (const place of places) {
      const line = data.lines[Number(place.dataset.line)];
      const spec = line.specs[place.dataset.chart];
      spec.datasets = { spans: rowsOf(line.spans[place.dataset.chart]) };
      const { view } = await vegaEmbed(place, spec, { actions: false, renderer: "canvas", mode: "vega-lite" });
      views.push(view);
      view.addSignalListener("zoom_start", (_, domain) => {
        if (!domain) return;
        domains.set("now", [domain[0], domain[1]]);
        spread(domain, view);
      });
    }
    const dark = matchMedia("(prefers-color-scheme: dark)");
    const repaint = () => paint(dark.matches ? data.dark : data.light);
    repaint();
    dark.addEventListener("change", repaint);
    let folded = [];
    addEventListener("beforeprint", () => {
      folded = $("details:not([open])");
      folded.forEach((each) => { each.open = true; });
      paint(data.light);
    });
    addEventListener("afterprint", () => {
      folded.forEach((each) => { each.open = false; });
      repaint();
    });
    document.documentElement.dataset.ready = "true";
  }
  draw();
})();
