// The page: the address decides which view is shown.

import { getJson } from "./api.js";
import { listRuns, prepareBenchmarks } from "./benchmarks.js";
import { clearStage, fillComposer, prepareComposer } from "./composer.js";
import { byId, make } from "./dom.js";
import { closeStory, listStories, openStory, prepareLibrary } from "./library.js";
import { closeReview, openReview, prepareReview } from "./review.js";

const VIEWS = {
  "view-new": { path: /^#\/$/, enter: () => {} },
  "view-stories": { path: /^#\/stories$/, enter: () => listStories() },
  "view-benchmarks": { path: /^#\/benchmarks$/, enter: () => listRuns() },
  "view-review": { path: /^#\/review(?:\/([\w.-]+))?$/, enter: (shard) => openReview(shard) },
  "view-story": { path: /^#\/stories\/([\w-]+)$/, enter: (id) => openStory(id) },
};

/** Shows the view of the address and returns it; null where the address is an anchor. */
function showView() {
  const hash = location.hash || "#/";
  const match = Object.entries(VIEWS).find(([, view]) => view.path.test(hash));
  if (!match) return null;
  const [name, view] = match;
  closeStory();
  closeReview();
  for (const each of Object.keys(VIEWS)) byId(each).hidden = each !== name;
  for (const link of document.querySelectorAll("nav a")) {
    link.ariaCurrent = link.getAttribute("href") === hash ? "page" : null;
  }
  view.enter(...view.path.exec(hash).slice(1));
  return byId(name);
}

async function showExamples() {
  const examples = await getJson("studio/static/examples.json");
  byId("examples").replaceChildren(...examples.map(exampleItem));
}

function exampleItem({ category, title, text }) {
  const image = make("img", {
    src: `studio/static/examples/${category}.png`,
    alt: "",
    width: 96,
    height: 96,
    loading: "lazy",
  });
  const label = make("span", {}, make("span.category", {}, title), make("span.text", {}, text));
  const button = make("button.example", { type: "button" }, image, label);
  button.addEventListener("click", () => fillComposer({ text }));
  return make("li", {}, button);
}

prepareComposer();
prepareLibrary();
prepareBenchmarks();
prepareReview();
showExamples();
byId("new-story").addEventListener("click", clearStage);
addEventListener("hashchange", () => showView()?.querySelector("h1").focus());
showView();
