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
    if (button.dataset.show) show(button);
  });

  // --- several drawings in one place: show the one that was picked ------------------------------
  function show(button) {
    const group = button.closest("[data-choice]");
    $("[data-show]", group).forEach((other) => other.setAttribute("aria-pressed", String(other === button)));
    $("[data-shown]", group).forEach((each) => { each.hidden = each.dataset.shown !== button.dataset.show; });
  }

  // --- paper: everything that is folded is printed ----------------------------------------------
  let folded = [];
  addEventListener("beforeprint", () => {
    folded = $("details:not([open])");
    folded.forEach((each) => { each.open = true; });
  });
  addEventListener("afterprint", () => folded.forEach((each) => { each.open = false; }));
})();
