// A table of numbers above results that are shown side by side.

import { make } from "./dom.js";

const COLUMNS = ["Variant", "Result", "Steps", "Attempts", "Accepted", "Time"];

export class ComparisonTable {
  /** @param {StoryView[]} views */
  constructor(views) {
    this.views = views;
    this.rows = make("tbody");
    const head = make("tr", {}, ...COLUMNS.map((name) => make("th", { scope: "col" }, name)));
    const table = make("table.runs", {}, make("thead", {}, head), this.rows);
    this.element = make(
      "div.scrolled.comparison",
      { role: "region", ariaLabel: "Comparison", tabIndex: 0 },
      table,
    );
    this.update();
  }

  update() {
    this.rows.replaceChildren(...this.views.map(rowOf));
  }
}

function rowOf(view) {
  const { status, steps, attempts, accepted, seconds } = view.numbers();
  const rate = attempts ? ` (${Math.round((100 * accepted) / attempts)} %)` : "";
  const cells = [status, steps, attempts, `${accepted}${rate}`, `${seconds.toFixed(1)} s`];
  return make(
    "tr",
    {},
    make("th", { scope: "row" }, view.label),
    ...cells.map((cell) => make("td", {}, String(cell))),
  );
}
