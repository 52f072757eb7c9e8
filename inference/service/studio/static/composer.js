// The form of a request, and the stage on which results appear, alone or side by side.

import { announce } from "./announcer.js";
import { ComparisonTable } from "./comparison.js";
import { byId, make, setAlert } from "./dom.js";
import { generate } from "./events.js";
import { optionForms, prepareOptions, setOptions } from "./options.js";
import { comparedModels, problemOf } from "./settings.js";
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
    submit(chosenVariants());
  });
  // A field with a problem must be visible for the browser's message.
  form.addEventListener("invalid", () => (byId("settings").open = true), { capture: true });
  byId("request").addEventListener("keydown", submitOnEnter);
  byId("stop").addEventListener("click", () => running?.abort());
  byId("compare").hidden = !comparedModels().length;
  byId("compare").addEventListener("click", compareAgents);
  byId("send").disabled = false;
}

/** Fills the form, ready to be sent. */
export function fillComposer({ text, pictures = [], options = {} }) {
  byId("request").value = text;
  setUploads(pictures);
  setOptions(options);
  byId("settings").open = Object.keys(optionForms()[0].get()).length > 0;
  byId("request").focus();
}

/** Shows the form with a request, and then calls `act`. */
export function showComposer(request, act = () => {}) {
  const fill = () => {
    fillComposer(request);
    act();
  };
  if (!byId("view-new").hidden) return fill();
  addEventListener("hashchange", fill, { once: true });
  location.hash = "#/";
}

/** Shows the form with a request and sends it. */
export const runRequest = (request) => showComposer(request, () => submit(chosenVariants()));

/** Shows the form with a request and sends it to all agents. */
export const compareRequest = (request) => showComposer(request, compareAgents);

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

/** The settings of the form: one, or two that are compared. */
function chosenVariants() {
  const forms = optionForms();
  if (forms.length === 1) return [{ options: forms[0].get() }];
  return forms.map((form, index) => ({
    label: "AB"[index],
    description: form.describe(),
    options: form.get(),
  }));
}

/** The same request, images and seed for every choice of agents. */
function compareAgents() {
  if (!byId("composer").reportValidity()) return;
  const options = optionForms()[0].get();
  submit(
    comparedModels().map(({ id, title, description }) => ({
      label: title,
      description,
      options: { ...options, model: id },
    })),
  );
}

async function submit(variants) {
  if (running) return showError("Another request is running. Stop it or wait for its end.");
  const text = byId("request").value.trim();
  const pictures = uploadedUris();
  const problem = problemOf(text, pictures);
  showError(problem);
  if (problem) return;
  const views = variants.map(
    ({ label, description }) =>
      new StoryView(text, { pictures, label, options: description, onSuggestion: trySuggestion }),
  );
  const update = showViews(views);
  setRunning(new AbortController());
  if (NARROW.matches) byId("stage").scrollIntoView({ block: "start" });
  const runs = variants.map(({ options: { model, ...options } }, index) =>
    run(views[index], { text, pictures, model, options }).finally(update),
  );
  await Promise.all(runs);
  setRunning(null);
}

const trySuggestion = (text) => runRequest({ text });

/** Puts results on the stage; returns what to call when one of them has ended. */
function showViews(views) {
  const elements = views.map((view) => view.element);
  byId("welcome").hidden = true;
  if (views.length === 1) {
    byId("stage").replaceChildren(...elements);
    return () => {};
  }
  const table = new ComparisonTable(views);
  byId("stage").replaceChildren(table.element, make("div.columns", {}, ...elements));
  return () => table.update();
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
  byId("compare").disabled = Boolean(running);
  // The button that was pressed disappears: move the focus to the other one.
  if (focused === stop) send.focus();
  if (focused === send) stop.focus();
}
