// Input images of a request: chosen, dropped or pasted, and converted to data URIs.

import { announce } from "./announcer.js";
import { dataUri } from "./api.js";
import { byId, count, make } from "./dom.js";
import { problemOfFile, settings } from "./settings.js";

const uploads = []; // {name, uri}

export const uploadedUris = () => uploads.map(({ uri }) => uri);

export function setUploads(inputImages) {
  uploads.splice(0, uploads.length, ...inputImages);
  show();
}

/** Lets the form accept images; `onError` is called with a message for each other file. */
export function acceptUploads(form, onError) {
  const input = byId("files");
  input.accept = settings.image_types.join(",");
  const upload = (files) => add(files).catch((error) => onError(error.message));
  input.addEventListener("change", () => {
    upload([...input.files]);
    input.value = ""; // the same file may be chosen again
  });
  form.addEventListener("paste", (event) => {
    const files = [...event.clipboardData.files];
    if (files.length) event.preventDefault();
    upload(files);
  });
  form.addEventListener("dragover", (event) => {
    event.preventDefault();
    form.classList.add("drop-target");
  });
  form.addEventListener("dragleave", () => form.classList.remove("drop-target"));
  form.addEventListener("drop", (event) => {
    event.preventDefault();
    form.classList.remove("drop-target");
    upload([...event.dataTransfer.files]);
  });
}

async function add(files) {
  const problem = (await Promise.all(files.map(problemOfFile))).find(Boolean);
  if (problem) throw new Error(problem);
  for (const file of files) uploads.push({ name: file.name, uri: await dataUri(file) });
  if (files.length) announce(`${count(uploads.length, "image")} added.`);
  show();
}

function show() {
  byId("uploads").replaceChildren(...uploads.map(uploadItem));
}

function uploadItem({ name, uri }, index) {
  const remove = make(
    "button.remove",
    { type: "button", ariaLabel: `Remove image ${index + 1}, ${name}` },
    "×",
  );
  remove.addEventListener("click", () => {
    uploads.splice(index, 1);
    show();
    announce(`Image ${index + 1} removed.`);
    byId("request").focus();
  });
  return make("li", {}, make("img", { src: uri, alt: `Image ${index + 1}, ${name}` }), remove);
}
