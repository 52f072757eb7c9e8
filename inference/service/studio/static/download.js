// The buttons that save a story as a file.

import { call } from "./api.js";
import { make, warn } from "./dom.js";

const FORMATS = { html: "HTML page", md: "Markdown", zip: "ZIP with pictures" };

/** Buttons to download a kept story. */
export function downloads(id) {
  const wrong = make("p.alert", { role: "alert", hidden: true });
  const buttons = Object.entries(FORMATS).map(([ending, name]) => {
    const button = make("button.button.quiet", { type: "button" }, name);
    button.addEventListener("click", () => save(id, ending, wrong));
    return button;
  });
  const group = make(
    "div.row",
    { role: "group", ariaLabel: "Download the story" },
    make("span", {}, "Download:"),
    ...buttons,
  );
  return make("div.downloads", {}, group, wrong);
}

async function save(id, ending, wrong) {
  warn(wrong, null);
  try {
    const file = await (await call(`studio/stories/${encodeURIComponent(id)}.${ending}`)).blob();
    hand(file, `story-${id}.${ending}`);
  } catch (error) {
    warn(wrong, error.message);
  }
}

function hand(file, name) {
  const url = URL.createObjectURL(file);
  make("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
}
