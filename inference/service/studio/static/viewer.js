// The dialog that shows an image large; there it is copied, saved, or used as an input.

import { byId, make } from "./dom.js";
import { save } from "./download.js";

const KEYS = { ArrowLeft: -1, ArrowRight: 1 };

let buttons = []; // of the images that the arrow keys go through
let index = 0;

/** @param {(image: {name: string, uri: string}) => void} onUse the image is wanted as an input */
export function prepareViewer(onUse) {
  const dialog = byId("viewer");
  dialog.addEventListener("keydown", ({ key }) => KEYS[key] && show(index + KEYS[key]));
  byId("viewer-previous").addEventListener("click", () => show(index - 1));
  byId("viewer-next").addEventListener("click", () => show(index + 1));
  byId("viewer-close").addEventListener("click", () => dialog.close());
  byId("viewer-copy").hidden = !navigator.clipboard?.write; // on HTTPS and on this machine only
  byId("viewer-copy").addEventListener("click", copy);
  byId("viewer-save").addEventListener("click", () => save(blobOf(shownImage().src), fileName()));
  byId("viewer-use").addEventListener("click", () => {
    dialog.close();
    onUse({ name: fileName(), uri: shownImage().src });
  });
  // A click beside the image.
  dialog.addEventListener("click", (event) => event.target === dialog && dialog.close());
}

/**
 * A button that opens an image.
 * @param {string} name of its file, without the ending
 */
export function zoomable(image, name) {
  const button = make("button.zoom", { type: "button", ariaHasPopup: "dialog" }, image);
  button.dataset.name = name;
  button.addEventListener("click", () => open(button));
  return button;
}

/** The other images are those of the result that are visible. */
function open(button) {
  buttons = [...button.closest(".story, .tree").querySelectorAll(".zoom")].filter((each) =>
    each.checkVisibility(),
  );
  byId("viewer-previous").hidden = byId("viewer-next").hidden = buttons.length < 2;
  show(buttons.indexOf(button));
  byId("viewer").showModal();
}

const shownImage = () => buttons[index].querySelector("img");
const typeOf = (uri) => uri.slice("data:".length, uri.indexOf(";"));
const fileName = () => `${buttons[index].dataset.name}.${typeOf(shownImage().src).split("/")[1]}`;

function show(position) {
  index = (position + buttons.length) % buttons.length;
  const { src, alt, naturalWidth } = shownImage();
  const place = buttons.length > 1 ? ` (${index + 1} of ${buttons.length})` : "";
  Object.assign(byId("viewer-image"), { src, alt, className: naturalWidth <= 96 ? "tiny" : "" });
  byId("viewer-caption").textContent = alt + place;
  byId("viewer-said").textContent = "";
}

async function copy() {
  const said = byId("viewer-said");
  try {
    await navigator.clipboard.write([new ClipboardItem({ "image/png": pngOf(shownImage()) })]);
    said.textContent = "Copied.";
  } catch {
    said.textContent = "The browser didn’t allow it. Save the image instead.";
  }
}

/** Clipboards take PNG only. */
function pngOf(image) {
  const canvas = make("canvas", { width: image.naturalWidth, height: image.naturalHeight });
  canvas.getContext("2d").drawImage(image, 0, 0);
  return new Promise((resolve) => canvas.toBlob(resolve, "image/png"));
}

/** The content policy does not let `fetch` read data URIs. */
function blobOf(uri) {
  const bytes = atob(uri.slice(uri.indexOf(",") + 1));
  return new Blob([Uint8Array.from(bytes, (each) => each.charCodeAt(0))], { type: typeOf(uri) });
}
