// The page: which of its views is seen follows from the address.

import { clearStage, prepareComposer } from "./composer.js";
import { byId } from "./dom.js";
import { showExamples } from "./examples.js";
import { browse, open, prepareLibrary } from "./library.js";

const VIEWS = {
  "view-new": { path: /^#\/$/, enter: () => clearStage() },
  "view-stories": { path: /^#\/stories$/, enter: () => browse() },
  "view-story": { path: /^#\/stories\/([\w-]+)$/, enter: (id) => open(id) },
};

function follow() {
  const hash = location.hash || "#/";
  const chosen = Object.entries(VIEWS).find(([, view]) => view.path.test(hash));
  if (!chosen) return; // a place on the page, not a view
  const [name, view] = chosen;
  for (const each of Object.keys(VIEWS)) byId(each).hidden = each !== name;
  for (const link of document.querySelectorAll("nav a")) {
    if (link.getAttribute("href") === hash) link.ariaCurrent = "page";
    else link.ariaCurrent = null;
  }
  view.enter(...view.path.exec(hash).slice(1));
}

prepareComposer();
prepareLibrary();
showExamples();
addEventListener("hashchange", follow);
follow();
