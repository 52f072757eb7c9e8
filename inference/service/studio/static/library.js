// Earlier responses: search, open, run again, delete.

import { call, getJson, loadPicture } from "./api.js";
import { compareRequest, runRequest, showComposer } from "./composer.js";
import { byId, count, make } from "./dom.js";
import { follow } from "./events.js";
import { comparedModels } from "./settings.js";
import { STATUS_NAMES, StoryView } from "./story.js";

const dates = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "short" });
const SEARCH_DELAY = 250; // milliseconds after the last key

const ACTIONS = ["delete", "edit", "compare-again", "run-again"];

let nextOffset = 0;
let newestSearch = 0; // responses to earlier searches are dropped
let searchTimer = null;
let open = null; // AbortController of the response that is shown

export function prepareLibrary() {
  byId("search").addEventListener("submit", (event) => {
    event.preventDefault();
    listStories();
  });
  byId("words").addEventListener("input", () => {
    clearTimeout(searchTimer);
    searchTimer = setTimeout(listStories, SEARCH_DELAY);
  });
  byId("more").addEventListener("click", () => listStories(nextOffset));
}

/** Lists the responses whose requests contain the search words, from an offset on. */
export async function listStories(offset = 0) {
  const search = ++newestSearch;
  const query = new URLSearchParams({ words: byId("words").value.trim(), offset });
  try {
    const page = await getJson(`studio/stories?${query}`);
    if (search === newestSearch) showPage(page, offset);
  } catch (error) {
    byId("found").textContent = error.message;
  }
}

function showPage({ stories, total, next_offset: next }, offset) {
  const list = byId("story-list");
  if (!offset) list.replaceChildren();
  const items = stories.map(storyItem);
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

function storyItem({ id, text, created_at: created, status, cover, pictures, model }) {
  const time = new Date(created);
  const agents = comparedModels().find((each) => each.id === model)?.title;
  const facts = make(
    "p.help",
    {},
    make("time", { dateTime: time.toISOString() }, dates.format(time)),
    ` · ${count(pictures, "image")} · ${STATUS_NAMES[status] ?? status}`,
    agents ? " · " : null,
    agents ? make("span", {}, agents) : null,
  );
  const link = make("a", { href: `#/stories/${encodeURIComponent(id)}` }, text);
  return make("li", {}, coverOf(id, cover), make("div", {}, make("h2", {}, link), facts));
}

function coverOf(id, sha256) {
  const image = make("img", { alt: "", width: 96, height: 96 });
  if (sha256)
    loadPicture(`stories/${id}`, sha256).then(
      (uri) => (image.src = uri),
      () => {},
    );
  return make("span.cover", {}, sha256 ? image : null);
}

/** Shows a stored response, or one that is still running. */
export async function openStory(id) {
  const { signal } = (open = new AbortController());
  const stage = byId("stored-story");
  for (const action of ACTIONS) byId(action).hidden = true;
  stage.replaceChildren(make("p.help", {}, "Opening …"));
  try {
    await showStory(id, stage, signal);
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
    make("a", { href: "#/stories" }, "history"),
    ".",
  );

const showError = (error) =>
  byId("stored-story").append(make("p.alert", { role: "alert" }, error.message));

async function showStory(id, stage, signal) {
  const story = await getJson(`studio/stories/${encodeURIComponent(id)}`);
  const pictures = await Promise.all(story.given.map((sha256) => loadPicture(`stories/${id}`, sha256)));
  const onSuggestion = (text) => runRequest({ text });
  const view = new StoryView(story.text, { pictures, onSuggestion });
  if (signal.aborted) return;
  stage.replaceChildren(view.element);
  for (const action of ACTIONS) byId(action).hidden = false;
  byId("compare-again").hidden = !comparedModels().length;
  byId("delete").onclick = () => deleteStory(id);
  const request = requestOf(story, pictures);
  byId("edit").onclick = () => showComposer(request);
  byId("compare-again").onclick = () => compareRequest(request);
  byId("run-again").onclick = () => runRequest(request);
  for await (const event of follow(id, signal)) view.update(event);
}

/** Another view is shown: stop following the response. */
export const closeStory = () => open?.abort();

/** The request of a stored response, for the form. */
function requestOf({ text, response }, uris) {
  const { model, interleave } = response;
  const pictures = uris.map((uri, index) => ({ name: `image ${index + 1}`, uri }));
  return { text, pictures, options: { ...interleave.rules, model } };
}

async function deleteStory(id) {
  if (!confirm("Delete this response permanently?")) return;
  try {
    await call(`v1/responses/${encodeURIComponent(id)}`, { method: "DELETE" });
    location.hash = "#/stories";
  } catch (error) {
    showError(error);
  }
}
