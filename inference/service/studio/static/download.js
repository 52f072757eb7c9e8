// The buttons that download a result.

import { call } from "./api.js";
import { make, setAlert } from "./dom.js";

const FORMATS = { html: "HTML page", md: "Markdown", zip: "ZIP with images" };

/** Buttons that download a stored response. */
export function downloadButtons(id) {
  const alert = make("p.alert", { role: "alert", hidden: true });
  const buttons = Object.entries(FORMATS).map(([extension, name]) => {
    const button = make("button.button.quiet", { type: "button" }, name);
    button.addEventListener("click", () => download(id, extension, alert));
    return button;
  });
  const group = make(
    "div.row",
    { role: "group", ariaLabel: "Download" },
    make("span", {}, "Download:"),
    ...buttons,
  );
  return make("div.downloads", {}, group, alert);
}

async function download(id, extension, alert) {
  setAlert(alert, null);
  try {
    const response = await call(`studio/generations/${encodeURIComponent(id)}.${extension}`);
    save(await response.blob(), `story-${id}.${extension}`);
  } catch (error) {
    setAlert(alert, error.message);
  }
}

/** Lets the browser save a file. */
export function save(file, name) {
  const url = URL.createObjectURL(file);
  make("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
}
