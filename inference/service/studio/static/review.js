// Review: attempts one by one, judged by keyboard or mouse; every answer is stored at once.

import { announce } from "./announcer.js";
import { call, getJson, loadImage, post } from "./api.js";
import { byId, count, make, setAlert } from "./dom.js";

const NAME_KEY = "interleave-reviewer";
const KEYS_KEY = "interleave-review-keys";
const COLUMNS = ["Shard", "Attempts", "Reviewed", "Your verdicts"];

let shown = null; // the shard of the address
let queue = null; // of the shard that is open: { shard, items, index, remaining, after, done }
let opened = 0; // responses for a view that was left are dropped
let busy = false; // an answer is being stored

const ACTIONS = {
  a: { id: "review-agree", run: () => judge(true) },
  d: { id: "review-disagree", run: () => judge(false) },
  1: { id: "review-earlier", run: () => prefer("earlier") },
  2: { id: "review-this", run: () => prefer("this") },
  p: { id: "review-prompt", run: openPrompt },
  s: { id: "review-skip", run: skip },
  u: { id: "review-undo", run: undo },
};

export function prepareReview() {
  const name = byId("reviewer");
  name.value = localStorage.getItem(NAME_KEY) ?? "";
  name.addEventListener("change", () => {
    localStorage.setItem(NAME_KEY, reviewer());
    openReview(shown);
  });
  byId("reviewer-form").addEventListener("submit", (event) => event.preventDefault());
  const keys = byId("review-keys");
  keys.checked = localStorage.getItem(KEYS_KEY) !== "off";
  keys.addEventListener("change", () => localStorage.setItem(KEYS_KEY, keys.checked ? "on" : "off"));
  for (const { id, run } of Object.values(ACTIONS)) byId(id).addEventListener("click", run);
  byId("review-prompt-form").addEventListener("submit", savePrompt);
  byId("review-prompt-cancel").addEventListener("click", closePrompt);
  addEventListener("keydown", onKey);
}

const reviewer = () => byId("reviewer").value.trim();

/** Shows the shards, or the queue of one. */
export async function openReview(shard) {
  const view = ++opened;
  shown = shard;
  queue = null;
  setAlert(byId("review-error"), null);
  byId("review-shards").replaceChildren();
  byId("review-work").hidden = true;
  byId("review-back").hidden = !shard;
  try {
    await (shard ? openQueue(shard, view) : listShards(view));
  } catch (error) {
    if (view === opened) setAlert(byId("review-error"), error.message);
  }
}

/** Another view is shown: keys have no effect. */
export function closeReview() {
  opened += 1;
  queue = null;
}

async function listShards(view) {
  const shards = [];
  for (let offset = 0; offset !== null; ) {
    const query = new URLSearchParams({ reviewer: reviewer(), offset });
    const page = await getJson(`studio/reviews?${query}`);
    if (view !== opened) return;
    shards.push(...page.shards);
    offset = page.next_offset;
  }
  byId("review-shards").replaceChildren(...(shards.length ? [tableOf(shards)] : []));
  byId("review-found").textContent = shards.length
    ? `${count(shards.length, "shard")}. Give your name and open one.`
    : "There are no attempts yet. This command makes some: interleave run";
}

function tableOf(shards) {
  const head = make("tr", {}, ...COLUMNS.map((name) => make("th", { scope: "col" }, name)));
  return make("table.runs", {}, make("thead", {}, head), make("tbody", {}, ...shards.map(rowOf)));
}

function rowOf({ shard, attempts, reviewed, own }) {
  const link = make("a", { href: `#/review/${encodeURIComponent(shard)}` }, shard);
  const share = attempts ? ` (${((100 * reviewed) / attempts).toFixed(0)} %)` : "";
  const cells = [`${attempts}`, `${reviewed}${share}`, `${own}`];
  return make(
    "tr",
    {},
    make("th", { scope: "row" }, link),
    ...cells.map((cell) => make("td", {}, cell)),
  );
}

async function openQueue(shard, view) {
  if (!reviewer()) {
    byId("review-found").textContent = "Give your name first: every review is stored with it.";
    byId("reviewer").focus();
    return;
  }
  byId("review-found").textContent = "Opening …";
  const page = await loadQueue(shard, "");
  if (view !== opened) return;
  queue = { shard, ...page, index: 0, done: [] };
  await showItem();
}

function loadQueue(shard, after) {
  const query = new URLSearchParams({ reviewer: reviewer(), after });
  return getJson(`studio/reviews/${encodeURIComponent(shard)}?${query}`);
}

const current = () => queue?.items[queue.index];

async function showItem() {
  const view = opened;
  closePrompt();
  const item = current();
  byId("review-work").hidden = !item;
  if (!item) {
    byId("review-found").textContent =
      "Nothing is left in this shard. Skipped attempts come again when you open it again.";
    return;
  }
  byId("review-found").textContent = `${count(queue.remaining - queue.index, "attempt")} left in ${queue.shard}.`;
  byId("review-undo").disabled = !queue.done.length;
  byId("review-earlier").disabled = byId("review-this").disabled = !item.earlier;
  byId("review-item").replaceChildren(...itemParts(item));
  byId("review-item").querySelector("h2").focus();
  const images = [...byId("review-item").querySelectorAll("img")];
  await Promise.all(images.map((image) => showImage(image, ownerOf(item))));
  const next = queue?.items[queue.index + 1];
  if (view === opened && next) loadImage(ownerOf(next), next.image).catch(() => {});
}

function itemParts(item) {
  const verdict = item.accepted ? "The critic accepted it." : "The critic rejected it.";
  const title = `Step ${item.step_number}: ${item.step_name}, attempt ${item.iteration + 1}`;
  return [
    make("h2", { tabIndex: -1 }, title),
    make("p", {}, make("strong", {}, "Request: "), item.request),
    make("p", {}, make("strong", {}, "Instruction: "), item.instruction ?? item.goal),
    make("div.sides", {}, ...picturesOf(item)),
    make("p", {}, make("strong", {}, "Prompt of this attempt: "), item.prompt),
    make(
      "div.verdict-of-critic",
      {},
      make("p", {}, make("strong", {}, verdict), ` ${item.reasoning}`),
      item.refined_prompt ? make("p", {}, make("strong", {}, "Its next prompt: "), item.refined_prompt) : null,
      make("p.help", {}, item.critic),
    ),
  ];
}

function picturesOf(item) {
  const before = item.before
    ? pictureOf(item.before, "Before", "Picture before this step")
    : make("figure", {}, make("div.canvas", { role: "img", ariaLabel: "White canvas" }), make("figcaption", {}, "Before: nothing"));
  const after = item.earlier ? "2: this attempt" : "After";
  const parts = [before, pictureOf(item.image, after, "Picture of this attempt")];
  if (item.earlier) parts.splice(1, 0, pictureOf(item.earlier.image, "1: the attempt before", "Picture of the attempt before"));
  return parts;
}

function pictureOf(sha256, caption, alt) {
  const image = make("img", { alt, width: 320, height: 320 });
  image.dataset.sha256 = sha256;
  return make("figure", {}, image, make("figcaption", {}, caption));
}

const ownerOf = ({ shard }) => `reviews/${encodeURIComponent(shard)}`;

async function showImage(image, owner) {
  try {
    image.src = await loadImage(owner, image.dataset.sha256);
  } catch (error) {
    image.alt = error.message;
  }
}

const judge = (agrees) => store({ kind: "verdict", agrees }, agrees ? "Agreed." : "Disagreed.", true);

function prefer(better) {
  if (!current()?.earlier) return;
  const which = better === "this" ? "This attempt is better." : "The attempt before is better.";
  store({ kind: "preference", better }, which, false);
}

/** Stores an answer; `advances`: then shows the next attempt. */
async function store(answer, message, advances) {
  const item = current();
  if (!item || busy) return;
  const { shard, trajectory_id, step_number, iteration, image } = item;
  const body = { shard, trajectory_id, step_number, iteration, image, reviewer: reviewer(), ...answer };
  await whileBusy(async () => {
    const stored = await (await post("studio/reviews", body)).json();
    if (queue?.shard !== shard) return;
    queue.done.push({ id: stored.review_id, index: queue.index });
    byId("review-undo").disabled = false;
    byId("review-said").textContent = message;
    announce(message);
    if (advances) await advance();
  });
}

async function skip() {
  if (!current() || busy) return;
  byId("review-said").textContent = "Skipped.";
  await whileBusy(advance);
}

async function advance() {
  const here = queue;
  if (here.index + 1 === here.items.length && here.after) {
    const page = await loadQueue(here.shard, here.after);
    here.items.push(...page.items);
    here.after = page.after;
  }
  here.index += 1;
  if (here === queue) await showItem();
}

/** Takes back the last answer, and shows its attempt again. */
async function undo() {
  const last = queue?.done.at(-1);
  if (!last || busy) return;
  await whileBusy(async () => {
    const query = new URLSearchParams({ reviewer: reviewer() });
    const path = `studio/reviews/${encodeURIComponent(queue.shard)}/${last.id}?${query}`;
    await call(path, { method: "DELETE" });
    queue.done.pop();
    queue.index = last.index;
    byId("review-said").textContent = "Taken back.";
    announce("Taken back.");
    await showItem();
  });
}

async function whileBusy(work) {
  busy = true;
  setAlert(byId("review-error"), null);
  try {
    await work();
  } catch (error) {
    setAlert(byId("review-error"), error.message);
  } finally {
    busy = false;
  }
}

function openPrompt() {
  const item = current();
  if (!item) return;
  byId("review-new-prompt").value = item.refined_prompt || item.prompt;
  byId("review-prompt-form").hidden = false;
  byId("review-new-prompt").focus();
}

function closePrompt() {
  byId("review-prompt-form").hidden = true;
}

async function savePrompt(event) {
  event.preventDefault();
  const prompt = byId("review-new-prompt").value.trim();
  if (!prompt) return;
  await store({ kind: "prompt", prompt }, "The prompt is stored.", false);
  if (!byId("review-error").hidden) return; // what was written stays
  closePrompt();
  byId("review-prompt").focus();
}

function onKey(event) {
  if (event.key === "Escape" && !byId("review-prompt-form").hidden) {
    closePrompt();
    byId("review-prompt").focus();
    return;
  }
  const typing = event.target.closest("input:not([type=checkbox]), textarea, select, dialog");
  if (!queue || !byId("review-keys").checked || typing || event.repeat) return;
  if (event.ctrlKey || event.altKey || event.metaKey) return;
  const action = ACTIONS[event.key.toLowerCase()];
  if (!action || byId(action.id).disabled || byId("review-work").hidden) return;
  event.preventDefault();
  action.run();
}
