// What the home has cost: totals, budget, a plot by day, and tables by model, asset and shard.

import { getJson } from "./api.js";
import { byId, count, make, setAlert } from "./dom.js";

const TABLES = { model: "By model", asset: "By asset", shard: "By shard", day: "By day" };
// What it cost comes first: a phone shows the first columns.
const COLUMNS = [
  ["USD", (sums) => number(sums.cost_usd, 2, sums.unpriced)],
  ["Calls", (sums) => number(sums.calls)],
  ["Failed", (sums) => number(sums.failed)],
  ["Retries", (sums) => number(sums.retries)],
  ["Tokens in", (sums) => number(sums.input_tokens, 0, sums.uncounted)],
  ["Tokens out", (sums) => number(sums.output_tokens, 0, sums.uncounted)],
  ["Hours", (sums) => number(sums.seconds === null ? null : sums.seconds / 3600, 2)],
  ["GPU hours", (sums) => number(sums.gpu_hours, 2)],
  ["Estimated", (sums) => number(sums.estimated_usd, 2)],
];
// What the plot by day shows: the first of these that was measured.
const PLOTTED = [
  ["cost_usd", "USD", 2],
  ["gpu_hours", "GPU hours", 2],
  ["calls", "calls", 0],
];
const PLOT = { width: 900, height: 160, gap: 0.15 };

export function prepareCosts() {
  byId("costs-form").addEventListener("submit", (event) => {
    event.preventDefault();
    showCosts();
  });
}

let latest = 0;

/** Shows the sums since the chosen day. */
export async function showCosts() {
  const request = ++latest;
  const since = byId("costs-since").value;
  setAlert(byId("costs-error"), null);
  byId("costs-found").textContent = "Summing up …";
  try {
    const costs = await getJson(`studio/costs${since ? `?since=${encodeURIComponent(since)}` : ""}`);
    if (request === latest) show(costs);
  } catch (error) {
    if (request !== latest) return;
    byId("costs-found").textContent = "";
    setAlert(byId("costs-error"), error.message);
  }
}

function show({ total, tables, own, budget }) {
  const days = tables.day.groups;
  const found = days.length
    ? `${count(tables.day.total, "day")}, ${days[0].name} to ${days.at(-1).name}.`
    : "No calls and no trainings yet.";
  byId("costs-found").textContent = own ? `${found} Only stored requests of your key.` : found;
  const shown = days.length ? [totalsOf(total), plotOf(days)] : [];
  const sections = days.length ? Object.keys(TABLES).map((by) => tableOf(by, tables[by])) : [];
  byId("costs-sums").replaceChildren(
    ...[budget && budgetOf(budget), ...shown, ...sections].filter(Boolean),
  );
}

/** A dash where nothing was measured; + where some calls are missing from the sum. */
function number(value, digits = 0, missing = 0) {
  if (value === null) return "–";
  const options = { minimumFractionDigits: digits, maximumFractionDigits: digits };
  return value.toLocaleString("en", options) + (missing ? "+" : "");
}

function budgetOf({ usd, spent, reserved, alert_at, alerts }) {
  const reached = new Set(alerts.map((alert) => alert.share));
  const marks = alert_at.map((share) => `${Math.round(100 * share)} %${reached.has(share) ? " ✓" : ""}`);
  const text =
    `${number(spent, 2)} of ${number(usd, 2)} USD spent` +
    (reserved ? `, ${number(reserved, 2)} more reserved by calls under way` : "");
  return make(
    "section",
    { ariaLabel: "Budget" },
    make("h2", {}, "Budget"),
    make("meter.budget", { min: 0, max: usd, high: usd * (alert_at[0] ?? 1), value: spent, ariaLabel: text }),
    make("p", {}, text),
    make("p.help", {}, marks.length ? `Alerts at ${marks.join(", ")}; ✓ was reached.` : "No alerts."),
  );
}

function totalsOf(total) {
  const list = make("dl.totals", { ariaLabel: "Totals" });
  for (const [name, cell] of COLUMNS) {
    list.append(make("div", {}, make("dt", {}, name), make("dd", {}, cell(total))));
  }
  return list;
}

function plotOf(days) {
  const [key, unit, digits] = PLOTTED.find(([name]) => days.some((day) => day[name] !== null)) ?? PLOTTED[2];
  const most = Math.max(...days.map((day) => day[key] ?? 0)) || 1;
  const width = PLOT.width / days.length;
  const bars = days.map((day, place) => {
    const height = (PLOT.height * (day[key] ?? 0)) / most;
    const bar = svg("rect", {
      x: (place + PLOT.gap / 2) * width,
      y: PLOT.height - height,
      width: width * (1 - PLOT.gap),
      height,
    });
    bar.append(svg("title", {}, `${day.name}: ${number(day[key], digits)} ${unit}`));
    return bar;
  });
  const label = `${unit} by day, at most ${number(most, digits)}`;
  const size = { viewBox: `0 0 ${PLOT.width} ${PLOT.height}`, role: "img", "aria-label": label };
  const plot = svg("svg", { ...size, class: "plot" });
  plot.append(...bars);
  return make("figure", {}, plot, make("figcaption.help", {}, `${label}.`));
}

function svg(name, attributes, text = "") {
  const element = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.textContent = text;
  return element;
}

function tableOf(by, { groups, total }) {
  const columns = COLUMNS.map(([name]) => make("th.number", { scope: "col" }, name));
  const head = make("tr", {}, make("th", { scope: "col" }, by), ...columns);
  const rows = groups.map((group) =>
    make(
      "tr",
      {},
      make("th", { scope: "row" }, group.name || "none"),
      ...COLUMNS.map(([, cell]) => make("td.number", {}, cell(group))),
    ),
  );
  const table = make("table.runs", {}, make("thead", {}, head), make("tbody", {}, ...rows));
  const more = total > groups.length ? make("p.help", {}, `The first ${groups.length} of ${number(total)}.`) : null;
  const region = make("div.scrolled", { role: "region", ariaLabel: TABLES[by], tabIndex: 0 }, table);
  return make("section", {}, make("h2", {}, TABLES[by]), region, more);
}
