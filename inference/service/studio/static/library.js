// Earlier stories: search, open, delete.

import { call, getJson, loadPicture } from "./api.js";
import { fillComposer } from "./composer.js";
import { byId, count, make } from "./dom.js";
import { follow } from "./events.js";
import { StoryView } from "./story.js";

const dates = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "short" });
const SEARCH_DELAY = 250; // milliseconds after the last key

let nextOffset = 0;
let newestSearch = 0; // responses to earlier searches are dropped
let searchTimer = null;
let open = null; // AbortController of the story that is shown

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

/** Lists the stories whose requests contain the search words, from an offset on. */
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

function showPage({ stories, next_offset: next }, offset) {
  const list = byId("story-list");
  if (!offset) list.replaceChildren();
  const items = stories.map(storyItem);
  list.append(...items);
  nextOffset = next ?? 0;
  byId("more").hidden = next === null;
  byId("found").textContent = resultText(list.childElementCount, next !== null);
  if (offset) items[0]?.querySelector("a").focus();
}

function resultText(stories, more) {
  if (!stories) return "No story has these words.";
  return `${count(stories, "story", "stories")}${more ? " so far" : ""}.`;
}

function storyItem({ id, text, created_at: created, status, cover, pictures }) {
  const time = new Date(created);
  const facts = make(
    "p.help",
    {},
    make("time", { dateTime: time.toISOString() }, dates.format(time)),
    ` · ${count(pictures, "picture")} · ${status}`,
  );
  const link = make("a", { href: `#/stories/${encodeURIComponent(id)}` }, text);
  return make("li", {}, coverOf(cover), make("div", {}, make("h2", {}, link), facts));
}

function coverOf(sha256) {
  const image = make("img", { alt: "", width: 96, height: 96 });
  if (sha256)
    loadPicture(sha256).then(
      (uri) => (image.src = uri),
      () => {},
    );
  return make("span.cover", {}, sha256 ? image : null);
}

/** Shows a stored story, or one that is still running. */
export async function openStory(id) {
  const { signal } = (open = new AbortController());
  const stage = byId("stored-story");
  byId("reuse").hidden = byId("delete").hidden = true;
  stage.replaceChildren(make("p.help", {}, "Opening …"));
  try {
    await showStory(id, stage, signal);
  } catch (error) {
    if (signal.aborted) return;
    if (!stage.querySelector("article")) stage.replaceChildren();
    showError(error);
  }
}

const showError = (error) =>
  byId("stored-story").append(make("p.alert", { role: "alert" }, error.message));

async function showStory(id, stage, signal) {
  const story = await getJson(`studio/stories/${encodeURIComponent(id)}`);
  const pictures = await Promise.all(story.given.map(loadPicture));
  const view = new StoryView(story.text, { pictures });
  if (signal.aborted) return;
  stage.replaceChildren(view.element);
  byId("reuse").hidden = byId("delete").hidden = false;
  byId("reuse").onclick = () => reuse(story);
  byId("delete").onclick = () => deleteStory(id);
  for await (const event of follow(id, signal)) view.update(event);
}

/** Another view is shown: stop following the story. */
export const closeStory = () => open?.abort();

/** Fills the form with the request of a story. */
async function reuse({ text, given, response }) {
  const pictures = await Promise.all(given.map(namedPicture));
  addEventListener(
    "hashchange",
    () => fillComposer({ text, pictures, options: response.interleave.rules }),
    { once: true },
  );
  location.hash = "#/";
}

async function deleteStory(id) {
  if (!confirm("Delete this story permanently?")) return;
  try {
    await call(`v1/responses/${encodeURIComponent(id)}`, { method: "DELETE" });
    location.hash = "#/stories";
  } catch (error) {
    showError(error);
  }
}

const namedPicture = async (sha256, index) => ({
  name: `picture ${index + 1}`,
  uri: await loadPicture(sha256),
});
