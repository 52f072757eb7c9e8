// Earlier stories: search them, open one.

import { call, getJson, picture } from "./api.js";
import { compose } from "./composer.js";
import { byId, count, make } from "./dom.js";
import { StoryView } from "./story.js";
import { follow, replay } from "./telling.js";

const dates = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "short" });
const UNDER_WAY = new Set(["queued", "in_progress"]);
const TYPING = 250; // milliseconds without a key: time to search

let following = 0;
let latest = 0; // answers to what is no longer asked are dropped
let typing = null;
let watching = null; // AbortController of the story that is open

export function prepareLibrary() {
  byId("search").addEventListener("submit", (event) => {
    event.preventDefault();
    browse();
  });
  byId("words").addEventListener("input", () => {
    clearTimeout(typing);
    typing = setTimeout(browse, TYPING);
  });
  byId("more").addEventListener("click", () => browse(following));
}

/** Lists the stories that the words are in, from an offset on. */
export async function browse(offset = 0) {
  const asked = ++latest;
  const query = new URLSearchParams({ words: byId("words").value.trim(), offset });
  try {
    const found = await getJson(`studio/stories?${query}`);
    if (asked === latest) shelve(found, offset);
  } catch (error) {
    byId("found").textContent = error.message;
  }
}

function shelve({ stories, next_offset: next }, offset) {
  const shelf = byId("shelf");
  if (!offset) shelf.replaceChildren();
  const items = stories.map(spine);
  shelf.append(...items);
  following = next ?? 0;
  byId("more").hidden = next === null;
  byId("found").textContent = foundWords(shelf.childElementCount, next !== null);
  if (offset) items[0]?.querySelector("a").focus();
}

function foundWords(stories, more) {
  if (!stories) return "No story has these words.";
  return `${count(stories, "story", "stories")}${more ? " so far" : ""}.`;
}

function spine({ id, text, created_at: created, status, cover, pictures }) {
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
    picture(sha256).then(
      (uri) => (image.src = uri),
      () => {},
    );
  return make("span.cover", {}, sha256 ? image : null);
}

/** Shows a kept story; watches it, if it is still being told. */
export async function open(id) {
  const { signal } = (watching = new AbortController());
  const stage = byId("kept");
  byId("again").hidden = byId("forget").hidden = true;
  stage.replaceChildren(make("p.help", {}, "Opening …"));
  try {
    await show(id, stage, signal);
  } catch (error) {
    if (signal.aborted) return;
    if (!stage.querySelector("article")) stage.replaceChildren();
    complain(error);
  }
}

const complain = (error) =>
  byId("kept").append(make("p.alert", { role: "alert" }, error.message));

async function show(id, stage, signal) {
  const kept = await getJson(`studio/stories/${encodeURIComponent(id)}`);
  const view = new StoryView(kept.text, { given: await Promise.all(kept.given.map(picture)) });
  if (signal.aborted) return;
  stage.replaceChildren(view.element);
  byId("again").hidden = byId("forget").hidden = false;
  byId("again").onclick = () => retell(kept);
  byId("forget").onclick = () => forget(id);
  const events = UNDER_WAY.has(kept.status) ? follow(id, signal) : replay(kept.response);
  for await (const event of events) view.note(event);
}

/** Another view is shown: nobody looks at the story any more. */
export const close = () => watching?.abort();

async function retell({ text, given, response }) {
  const pictures = await Promise.all(given.map(named));
  addEventListener(
    "hashchange",
    () => compose({ text, pictures, rules: response.interleave.rules }),
    { once: true },
  );
  location.hash = "#/";
}

async function forget(id) {
  if (!confirm("Delete this story for good?")) return;
  try {
    await call(`v1/responses/${encodeURIComponent(id)}`, { method: "DELETE" });
    location.hash = "#/stories";
  } catch (error) {
    complain(error);
  }
}

const named = async (sha256, index) => ({
  name: `picture ${index + 1}`,
  uri: await picture(sha256),
});
