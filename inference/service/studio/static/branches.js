// Recorded trajectories with their branches, as trees: a row of pictures for each, from the attempt
// on at which it leaves another; equal attempts stand in one column.

import { getJson, loadImage } from "./api.js";
import { byId, count, make, setAlert } from "./dom.js";
import { zoomable } from "./viewer.js";

let next = null; // offset of the next page

export function prepareBranches() {
  byId("more-branches").addEventListener("click", () => addPage(next));
}

/** Shows the first page. */
export const showBranches = () => addPage(0);

async function addPage(offset) {
  const more = byId("more-branches");
  more.hidden = true;
  setAlert(byId("branches-error"), null);
  try {
    const { trees, total, next_offset } = await getJson(`studio/branches?offset=${offset}`);
    next = next_offset;
    more.hidden = next === null;
    const shown = byId("branch-trees");
    if (offset === 0) shown.replaceChildren();
    shown.append(...trees.map(treeOf));
    byId("branches-found").textContent = total
      ? `${count(total, "trajectory", "trajectories")} with branches.`
      : "No branches yet. Make one with: interleave branch TRAJECTORY STEP ITERATION --accept";
  } catch (error) {
    more.hidden = offset === 0; // it may be tried again
    setAlert(byId("branches-error"), error.message);
  }
}

function treeOf(tree) {
  const grid = make("div.tree");
  const rows = new Map(tree.paths.map((path, index) => [path.id, index + 1]));
  const paths = new Map(tree.paths.map((path) => [path.id, path]));
  for (const path of tree.paths) {
    const row = rows.get(path.id);
    grid.append(placed(make("p.path", {}, path.summary), row, 1));
    if (path.parent_id) grid.append(lineOf(path, rows.get(drawnAt(path, paths)), row));
    for (const [index, attempt] of path.attempts.entries()) {
      if (index >= path.first) grid.append(placed(pictureOf(tree.shard, path, attempt), row, index + 2));
    }
  }
  const label = `${tree.request} (${tree.trajectory_id.slice(0, 12)})`;
  const region = make("div.scrolled", { role: "region", ariaLabel: label, tabIndex: 0 }, grid);
  return make("section", {}, make("h2", {}, label), region);
}

function placed(element, row, column) {
  element.style.gridRow = row;
  element.style.gridColumn = column;
  return element;
}

/** The trajectory or branch whose row has a picture where this one leaves: its parent, or one before. */
function drawnAt(path, paths) {
  let from = paths.get(path.parent_id);
  while (from.first > path.first) from = paths.get(from.parent_id);
  return from.id;
}

function lineOf(path, from, to) {
  const line = make("div.leaves", { ariaHidden: "true" });
  return placed(line, `${from} / ${to + 1}`, path.first + 2);
}

function pictureOf(shard, path, attempt) {
  const name = `${attempt.step_number}.${attempt.iteration}`;
  const [verdict, mark] = attempt.accepted ? ["accepted", "✓"] : ["rejected", "✗"];
  const alt = `Step ${attempt.step_number}, iteration ${attempt.iteration}: ${verdict}`;
  const image = make("img", { alt, title: attempt.prompt });
  loadImage(`reviews/${shard}`, attempt.image).then(
    (uri) => (image.src = uri),
    (error) => setAlert(byId("branches-error"), error.message),
  );
  const picture = zoomable(image, `${path.id.slice(0, 12)}-${name}`);
  return make(`figure.drawn-${verdict}`, {}, picture, make("figcaption", {}, `${name} ${mark}`));
}
