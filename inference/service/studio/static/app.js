// The page: which of its views is seen follows from the address.

import { clearStage, prepareComposer } from "./composer.js";
import { byId } from "./dom.js";
import { showExamples } from "./examples.js";
import { browse, close, open, prepareLibrary } from "./library.js";

const VIEWS = {
  "view-new": { path: /^#\/$/, enter: () => {} },
  "view-stories": { path: /^#\/stories$/, enter: () => browse() },
  "view-story": { path: /^#\/stories\/([\w-]+)$/, enter: (id) => open(id) },
};

/** Shows the view of the address; null where that is but a place on the page. */
function follow() {
  const hash = location.hash || "#/";
  const chosen = Object.entries(VIEWS).find(([, view]) => view.path.test(hash));
  if (!chosen) return null;
  const [name, view] = chosen;
  close();
  for (const each of Object.keys(VIEWS)) byId(each).hidden = each !== name;
  for (const link of document.querySelectorAll("nav a")) {
    link.ariaCurrent = link.getAttribute("href") === hash ? "page" : null;
  }
  view.enter(...view.path.exec(hash).slice(1));
  return byId(name);
}

prepareComposer();
prepareLibrary();
showExamples();
byId("anew").addEventListener("click", clearStage);
addEventListener("hashchange", () => follow()?.querySelector("h1").focus());
follow();
