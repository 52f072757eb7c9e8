// The page: the address decides which view is shown.

import { getJson } from "./api.js";
import { listRuns, prepareBenchmarks } from "./benchmarks.js";
import { prepareBranches, showBranches } from "./branches.js";
import { clearStage, fillComposer, leaveStage, prepareComposer, useImage } from "./composer.js";
import { prepareCosts, showCosts } from "./costs.js";
import { byId, make, setAlert } from "./dom.js";
import { closeGenerations, listGenerations, openGenerations, prepareLibrary } from "./library.js";
import { closeReview, openReview, prepareReview } from "./review.js";
import { loadSettings } from "./settings.js";
import { prepareViewer } from "./viewer.js";

const RETRY_INTERVAL = 2000; // milliseconds
const VIEWS = {
  "view-new": { path: /^#\/$/, enter: () => {} },
  "view-generations": { path: /^#\/generations$/, enter: () => listGenerations() },
  "view-benchmarks": { path: /^#\/benchmarks$/, enter: () => listRuns() },
  "view-review": { path: /^#\/review(?:\/([\w.-]+))?$/, enter: (shard) => openReview(shard) },
  "view-branches": { path: /^#\/branches$/, enter: () => showBranches() },
  "view-costs": { path: /^#\/costs$/, enter: () => showCosts() },
  "view-generation": { path: /^#\/generations\/([\w-]+(?:\+[\w-]+)*)$/, enter: (ids) => openGenerations(ids.split("+")) },
  "view-unknown": { path: /^#\//, enter: () => {} },
};

/** Shows the view of the address and returns it; null where there is none. */
function showView() {
  const hash = location.hash || "#/";
  const match = Object.entries(VIEWS).find(([, view]) => view.path.test(hash));
  if (!match) return null;
  const [name, view] = match;
  closeGenerations();
  leaveStage();
  closeReview();
  byId("viewer").close();
  for (const each of Object.keys(VIEWS)) byId(each).hidden = each !== name;
  for (const link of document.querySelectorAll("nav a")) {
    link.ariaCurrent = link.getAttribute("href") === hash ? "page" : null;
  }
  view.enter(...view.path.exec(hash).slice(1));
  return byId(name);
}

/** Links within the page move the focus; the address stays that of the view. */
function followAnchor(event) {
  const anchor = event.target.closest('a[href^="#"]:not([href^="#/"])');
  if (!anchor) return;
  event.preventDefault();
  const target = byId(anchor.hash.slice(1));
  target.scrollIntoView();
  target.focus({ preventScroll: true });
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

/** Waits for a service that is starting. */
async function waitForService() {
  const alert = byId("composer-error");
  for (;;) {
    try {
      await loadSettings();
      return setAlert(alert, null);
    } catch (error) {
      setAlert(alert, `${error.message} Trying again …`);
      await new Promise((resolve) => setTimeout(resolve, RETRY_INTERVAL));
    }
  }
}

await waitForService();
prepareComposer();
prepareLibrary();
prepareViewer(useImage);
prepareBenchmarks();
prepareReview();
prepareBranches();
prepareCosts();
showExamples();
byId("new-request").addEventListener("click", clearStage);
addEventListener("click", followAnchor);
addEventListener("hashchange", () => showView()?.querySelector("h1").focus());
showView();
