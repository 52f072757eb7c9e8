// Benchmark runs: their headline numbers, and the report of one run or of two.

import { call, getJson } from "./api.js";
import { byId, count, make, setAlert } from "./dom.js";
import { save } from "./download.js";
import { currentKey } from "./key.js";

const dates = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "short" });
const COLUMNS = ["Report", "Benchmark", "System", "Judge", "Number", "Items", "Unscored", "Evaluated"];

export function prepareBenchmarks() {
  byId("open-report").addEventListener("click", openReport);
}

/** Lists the runs of the home. */
export async function listRuns() {
  const found = byId("runs-found");
  try {
    const { runs } = await getJson("studio/benchmarks");
    byId("runs").replaceChildren(...(runs.length ? [tableOf(runs)] : []));
    byId("open-report").hidden = !runs.length;
    found.textContent = runs.length
      ? `${count(runs.length, "run")}. Select one, or two of the same benchmark to compare them.`
      : "No benchmark runs yet. Create one with: interleave evaluate sketch-interleaved";
    choiceChanged();
  } catch (error) {
    found.textContent = error.message;
  }
}

function tableOf(runs) {
  const head = make("tr", {}, ...COLUMNS.map((name) => make("th", { scope: "col" }, name)));
  const table = make("table.runs", {}, make("thead", {}, head), make("tbody", {}, ...runs.map(rowOf)));
  table.addEventListener("change", choiceChanged);
  return table;
}

function rowOf(run) {
  const choice = make("input", { type: "checkbox", value: run.name, ariaLabel: run.name });
  choice.dataset.benchmark = run.benchmark;
  const unscored = `${(100 * run.unscored).toFixed(1)} %`;
  const cells = [
    ...[run.system, run.judge, numberOf(run), `${run.items} of ${run.of_items}`, unscored],
    dates.format(new Date(run.evaluated_at)),
  ];
  return make(
    "tr",
    {},
    make("td", {}, choice),
    make("th", { scope: "row" }, run.benchmark),
    ...cells.map((cell) => make("td", {}, cell)),
  );
}

/** The headline number with its interval; a missing one is a dash. */
function numberOf({ metric, value, low, high }) {
  if (value === null) return `${metric}: –`;
  const interval = low === null ? "" : ` (${low.toFixed(3)} to ${high.toFixed(3)})`;
  return `${metric}: ${value.toFixed(3)}${interval}`;
}

const chosenRuns = () => [...document.querySelectorAll("#runs input:checked")];

function choiceChanged() {
  const benchmarks = new Set(chosenRuns().map((choice) => choice.dataset.benchmark));
  const size = chosenRuns().length;
  byId("open-report").disabled = size < 1 || size > 2 || benchmarks.size > 1;
  byId("open-report").textContent = size === 2 ? "Compare runs" : "Open report";
}

/** In a tab of its own; as a file where a key is required, which a tab would not send. */
async function openReport() {
  const names = chosenRuns().map((choice) => choice.value).reverse(); // the older one first
  const path = `studio/benchmarks/report?${new URLSearchParams(names.map((name) => ["run", name]))}`;
  setAlert(byId("report-error"), null);
  if (!currentKey()) {
    open(path, "_blank", "noopener");
    return;
  }
  try {
    save(await (await call(path)).blob(), `${names.join("-and-")}.html`);
  } catch (error) {
    setAlert(byId("report-error"), error.message);
  }
}
