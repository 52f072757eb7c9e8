// The form of a new story, and the stage on which it appears, once or twice side by side.

import { announce } from "./announcer.js";
import { byId, make, setAlert } from "./dom.js";
import { generate } from "./events.js";
import { optionForms, prepareOptions, setOptions } from "./options.js";
import { StoryView } from "./story.js";
import { acceptUploads, setUploads, uploadedUris } from "./uploads.js";

const NARROW = matchMedia("(max-width: 61.99rem)"); // the stage is below the form

let running = null; // AbortController of the generations under way

export function prepareComposer() {
  const form = byId("composer");
  prepareOptions();
  acceptUploads(form, showError);
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    if (!running) submit();
  });
  byId("request").addEventListener("keydown", submitOnEnter);
  byId("stop").addEventListener("click", () => running?.abort());
}

/** Fills the form, ready to be sent. */
export function fillComposer({ text, pictures = [], options = {} }) {
  byId("request").value = text;
  setUploads(pictures);
  setOptions(options);
  byId("settings").open = Object.keys(options).length > 0;
  byId("request").focus();
}

/** Clears the stage, unless something is running. */
export function clearStage() {
  if (running) return;
  byId("stage").replaceChildren();
  byId("welcome").hidden = false;
}

const showError = (message) => setAlert(byId("composer-error"), message);

function submitOnEnter(event) {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  byId("composer").requestSubmit();
}

async function submit() {
  const text = byId("request").value.trim();
  if (!text) return showError("Describe in words what you want to see.");
  showError(null);
  const pictures = uploadedUris();
  const forms = optionForms();
  const views = forms.map((form, index) => createView(text, pictures, form, index, forms.length));
  showViews(views);
  setRunning(new AbortController());
  if (NARROW.matches) byId("stage").scrollIntoView({ block: "start" });
  await Promise.all(
    views.map((view, index) => run(view, { text, pictures, options: forms[index].get() })),
  );
  setRunning(null);
}

function createView(text, pictures, form, index, total) {
  return total === 1
    ? new StoryView(text, { pictures })
    : new StoryView(text, { pictures, label: "AB"[index], options: form.describe() });
}

function showViews(views) {
  byId("welcome").hidden = true;
  byId("stage").replaceChildren(
    make(views.length > 1 ? "div.pair" : "div", {}, ...views.map((view) => view.element)),
  );
}

async function run(view, request) {
  const { signal } = running;
  try {
    for await (const event of generate(request, signal)) {
      const message = view.update(event);
      if (message) announce(message);
    }
  } catch (error) {
    announce(signal.aborted ? view.end("cancelled") : view.end("failed", error.message));
  }
}

function setRunning(controller) {
  const stop = byId("stop");
  const send = byId("send");
  const focused = document.activeElement;
  running = controller;
  stop.hidden = !running;
  send.hidden = Boolean(running);
  // The button that was pressed disappears: move the focus to the other one.
  if (focused === stop) send.focus();
  if (focused === send) stop.focus();
}
