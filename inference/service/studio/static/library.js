// Earlier responses: search, open, run again, delete.

import { announce } from "./announcer.js";
import { call, getJson, loadImage } from "./api.js";
import { arrange } from "./comparison.js";
import { compareRequest, followUp, runRequest, showComposer } from "./composer.js";
import { byId, count, make, sentence } from "./dom.js";
import { cancel, follow } from "./events.js";
import { comparedModels } from "./settings.js";
import { STATUS_NAMES, StoryView, addressOf, textOf, titleOf } from "./story.js";

const dates = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "short" });
const SEARCH_DELAY = 250; // milliseconds after the last key

const ACTIONS = ["stop-stored", "delete", "edit", "compare-again", "run-again"];

let nextOffset = 0;
let newestSearch = 0; // responses to earlier searches are dropped
let searchTimer = null;
let open = null; // AbortController of the response that is shown

export function prepareLibrary() {
  byId("search").addEventListener("submit", (event) => {
    event.preventDefault();
    listGenerations();
  });
  byId("words").addEventListener("input", () => {
    clearTimeout(searchTimer);
    searchTimer = setTimeout(listGenerations, SEARCH_DELAY);
  });
  byId("more").addEventListener("click", () => listGenerations(nextOffset));
}

/** Lists the responses whose requests contain the search words, from an offset on. */
export async function listGenerations(offset = 0) {
  const search = ++newestSearch;
  const query = new URLSearchParams({ query: byId("words").value.trim(), offset });
  try {
    const page = await getJson(`studio/generations?${query}`);
    if (search === newestSearch) showPage(page, offset);
  } catch (error) {
    byId("found").textContent = error.message;
  }
}

function showPage({ generations, total, next_offset: next }, offset) {
  const list = byId("story-list");
  if (!offset) list.replaceChildren();
  const items = generations.map(generationItem);
  list.append(...items);
  nextOffset = next ?? 0;
  byId("more").hidden = next === null;
  byId("found").textContent = resultText(total);
  if (offset) items[0]?.querySelector("a").focus();
}

function resultText(total) {
  if (total) return count(total, "response");
  return byId("words").value.trim() ? "No matches" : "No responses yet";
}

function generationItem({ id, text, created_at: created, status, cover, images, model, reason }) {
  const time = new Date(created);
  const agents = comparedModels().find((each) => each.id === model)?.title;
  const facts = make(
    "p.help",
    {},
    make("time", { dateTime: time.toISOString() }, dates.format(time)),
    images ? ` · ${count(images, "image")}` : null,
    ` · ${STATUS_NAMES[status] ?? status}`,
    agents ? " · " : null,
    agents ? make("span", {}, agents) : null,
  );
  const link = make("a", { href: addressOf([id]) }, titleOf(text));
  const why = reason && make("p.reason", {}, sentence(reason));
  const image = cover && coverOf(id, cover);
  return make("li", {}, image, make("div", {}, make("h2", {}, link), facts, why));
}

function coverOf(id, sha256) {
  const image = make("img", { alt: "", width: 96, height: 96 });
  loadImage(`generations/${id}`, sha256).then(
    (uri) => (image.src = uri),
    () => {},
  );
  return make("span.cover", {}, image);
}

/** Shows stored responses, or running ones; several side by side. */
export async function openGenerations(ids) {
  const { signal } = (open = new AbortController());
  const stage = byId("stored-story");
  for (const action of ACTIONS) byId(action).hidden = true;
  stage.replaceChildren(make("p.help", {}, "Opening …"));
  try {
    await showGenerations(ids, stage, signal);
  } catch (error) {
    if (signal.aborted) return;
    if (error.status === 404) return stage.replaceChildren(missingNotice(error.message));
    if (!stage.querySelector("article")) stage.replaceChildren();
    showError(error);
  }
}

const missingNotice = (message) =>
  make(
    "p",
    {},
    `${message} `,
    make("a", { href: "#/" }, "Create something new"),
    " or open the ",
    make("a", { href: "#/generations" }, "history"),
    ".",
  );

const showError = (error) =>
  byId("stored-story").append(make("p.alert", { role: "alert" }, error.message));

async function showGenerations(ids, stage, signal) {
  const generations = await Promise.all(ids.map(loadGeneration));
  if (signal.aborted) return;
  const views = generations.map(viewOf);
  const { elements, update } = arrange(views);
  byId("stored-story").classList.toggle("wide", views.length > 1);
  stage.replaceChildren(...elements);
  if (views.length === 1) offerActions(generations[0]);
  const following = views.map((view, index) => followGeneration(generations[index].id, view, signal).finally(update));
  byId("stop-stored").onclick = () => ids.forEach((id) => cancel(id).catch(showError));
  byId("stop-stored").hidden = !generations.some(({ status }) => status === "queued");
  await Promise.all(following);
  byId("stop-stored").hidden = true;
}

/** A stored response, with its input images as data URIs. */
async function loadGeneration(id) {
  const story = await getJson(`studio/generations/${encodeURIComponent(id)}`);
  const inputImages = await Promise.all(story.input_images.map((sha256) => loadImage(`generations/${id}`, sha256)));
  return { ...story, inputImages };
}

function viewOf({ text, inputImages, follows, response }) {
  const { label, description } = response.metadata ?? {};
  const { model, interleave } = response;
  return new StoryView(text, {
    ...{ inputImages, follows, label, options: description },
    onSuggestion: (other) => runRequest({ text: other }),
    onFollowUp: (next, { id, image }) =>
      followUp({ id, text, image }, next, { ...interleave.options, model }),
  });
}

function offerActions(story) {
  for (const action of ACTIONS) byId(action).hidden = false;
  byId("compare-again").hidden = !comparedModels().length;
  byId("delete").onclick = () => deleteStory(story.id);
  const request = requestOf(story);
  byId("edit").onclick = () => showComposer(request);
  byId("compare-again").onclick = () => compareRequest(request);
  byId("run-again").onclick = () => runRequest(request);
}

async function followGeneration(id, view, signal) {
  for await (const event of follow(id, signal)) {
    const message = view.update(event);
    if (message) announce(message);
  }
}

/** Another view is shown: stop following the responses. */
export const closeGenerations = () => open?.abort();

/** The request of a stored response, for the form, which puts images before the text. */
function requestOf({ text, response, inputImages }) {
  const { model, interleave } = response;
  const uploads = inputImages.map((uri, index) => ({ name: `image ${index + 1}`, uri }));
  return { text: textOf(text), inputImages: uploads, options: { ...interleave.options, model } };
}

async function deleteStory(id) {
  if (!confirm("Delete this response permanently?")) return;
  try {
    await call(`v1/responses/${encodeURIComponent(id)}`, { method: "DELETE" });
    location.hash = "#/generations";
  } catch (error) {
    showError(error);
  }
}
