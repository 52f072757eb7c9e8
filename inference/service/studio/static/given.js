// Pictures given with a request: chosen, dropped or pasted; they become data URIs.

import { dataUri } from "./api.js";
import { byId, count, make } from "./dom.js";
import { say } from "./news.js";

const given = []; // {name, uri}

export const givenPictures = () => given.map(({ uri }) => uri);

export function setGiven(pictures) {
  given.splice(0, given.length, ...pictures);
  show();
}

/** Lets the form take pictures; `fail` hears why one was not taken. */
export function takePictures(form, fail) {
  const files = byId("files");
  const take = (list) => add(list).catch((error) => fail(error.message));
  files.addEventListener("change", () => {
    take([...files.files]);
    files.value = ""; // the same file may be chosen again
  });
  form.addEventListener("paste", (event) => {
    const pasted = [...event.clipboardData.files];
    if (pasted.length) event.preventDefault();
    take(pasted);
  });
  form.addEventListener("dragover", (event) => {
    event.preventDefault();
    form.classList.add("target");
  });
  form.addEventListener("dragleave", () => form.classList.remove("target"));
  form.addEventListener("drop", (event) => {
    event.preventDefault();
    form.classList.remove("target");
    take([...event.dataTransfer.files]);
  });
}

async function add(files) {
  const wrong = files.find((file) => !byId("files").accept.split(",").includes(file.type));
  if (wrong) throw new Error(`${wrong.name} is no picture in PNG, JPEG or WebP.`);
  for (const file of files) given.push({ name: file.name, uri: await dataUri(file) });
  if (files.length) say(`${count(given.length, "picture")} given.`);
  show();
}

function show() {
  byId("given").replaceChildren(...given.map(shown));
}

function shown({ name, uri }, index) {
  const remove = make(
    "button.remove",
    { type: "button", ariaLabel: `Remove picture ${index + 1}, ${name}` },
    "×",
  );
  remove.addEventListener("click", () => {
    given.splice(index, 1);
    show();
    say(`Picture ${index + 1} removed.`);
    byId("request").focus();
  });
  return make("li", {}, make("img", { src: uri, alt: `Picture ${index + 1}, ${name}` }), remove);
}
