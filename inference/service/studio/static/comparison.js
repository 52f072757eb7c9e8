// Results side by side, below a table of their numbers.

import { make } from "./dom.js";

const COLUMNS = ["Variant", "Result", "Steps", "Attempts", "Accepted", "Time"];

/** Elements that show results, and `update`, to call when one of them has ended. */
export function arrange(views) {
  const elements = views.map((view) => view.element);
  if (views.length === 1) return { elements, update: () => {} };
  const table = new ComparisonTable(views);
  return {
    elements: [table.element, make("div.columns", {}, ...elements)],
    update: () => table.update(),
  };
}

class ComparisonTable {
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
  const time = seconds === null ? "–" : `${seconds.toFixed(1)} s`;
  const cells = [status, steps, attempts, `${accepted}${rate}`, time];
  return make(
    "tr",
    {},
    make("th", { scope: "row" }, view.label),
    ...cells.map((cell) => make("td", {}, String(cell))),
  );
}
