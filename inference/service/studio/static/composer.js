// The form of a request, and the stage on which results appear, alone or side by side.

import { announce } from "./announcer.js";
import { arrange } from "./comparison.js";
import { byId, setAlert, submitOnEnter } from "./dom.js";
import { cancel, generate } from "./events.js";
import { optionForms, prepareOptions, setOptions } from "./options.js";
import { comparedModels, problemOf } from "./settings.js";
import { StoryView, addressOf } from "./story.js";
import { acceptUploads, setUploads, uploadedUris } from "./uploads.js";

const NARROW = matchMedia("(max-width: 61.99rem)"); // the stage is below the form

const LONGEST_METADATA = 512; // characters of a value

// What the stage shows: { views, stored, replaces, controller, isNamed, isStopping }; controller:
// null when all have ended
let stage = null;

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
  byId("stop").addEventListener("click", stop);
  byId("compare").hidden = !comparedModels().length;
  byId("compare").addEventListener("click", () => compareAgents());
  byId("send").disabled = false;
}

/** Fills the form, ready to be sent. */
export function fillComposer({ text, inputImages = [], options = {} }) {
  byId("request").value = text;
  setUploads(inputImages);
  setOptions(options);
  byId("settings").open = Object.keys(optionForms()[0].get()).length > 0;
  byId("request").focus();
}

/** Shows the form with a request, and then calls `act`, with whether another view was shown. */
export function showComposer(request, act = () => {}) {
  const moves = byId("view-new").hidden;
  const fill = () => {
    fillComposer(request);
    act(moves);
  };
  if (!moves) return fill();
  addEventListener("hashchange", fill, { once: true });
  location.hash = "#/";
}

/** Shows the form with a request and sends it. */
export const runRequest = (request) =>
  showComposer(request, (moved) => submit(chosenVariants(), moved));

/** Shows the form with a request and sends it to all agents. */
export const compareRequest = (request) => showComposer(request, compareAgents);

/**
 * Sends a request that continues from a result.
 * @param {{id: string, text: string, image: string | null}} follows the result
 */
export function followUp(follows, text, options) {
  const send = (moved) => start({ text, inputImages: [], follows }, [{ options }], moved);
  if (byId("view-new").hidden) showComposer({ text: "", options }, send);
  else send(false);
}

/** Shows the form with an image; a text that is there is replaced by what the user types. */
export function useImage(image) {
  const [options, text] = [optionForms()[0].get(), byId("request").value];
  showComposer({ text, inputImages: [image], options }, () => byId("request").select());
}

/** Clears the stage, unless something is running. */
export function clearStage() {
  if (stage?.controller) return;
  stage = null;
  byId("stage").replaceChildren();
  byId("welcome").hidden = false;
}

/** Another address is shown: stored results go on without the page, others stay on the stage. */
export function leaveStage() {
  if (!stage?.stored) return;
  stage.controller?.abort();
  stage.controller = null;
  clearStage();
  showButtons(false);
}

const showError = (message) => setAlert(byId("composer-error"), message);

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
function compareAgents(replaces = false) {
  if (!byId("composer").reportValidity()) return;
  const options = optionForms()[0].get();
  submit(
    comparedModels().map(({ id, title, description }) => ({
      label: title,
      description,
      options: { ...options, model: id },
    })),
    replaces,
  );
}

/** Sends what the form has. */
const submit = (variants, replaces = false) =>
  start({ text: byId("request").value.trim(), inputImages: uploadedUris() }, variants, replaces);

/**
 * Runs a request once for each variant, on the stage.
 * @param {boolean} replaces its address takes the place of the present one in the browser's history
 */
async function start(request, variants, replaces) {
  if (stage?.controller) return showError("Another request is running. Stop it or wait for its end.");
  const { text, inputImages, follows } = request;
  const problem = problemOf(text, inputImages);
  showError(problem);
  if (problem) return;
  const stored = byId("stored").checked;
  const views = variants.map(({ label, description }) => {
    const shown = follows?.image ? [follows.image] : inputImages;
    const more = { inputImages: shown, label, options: description, stored, follows };
    return new StoryView(text, { ...more, onSuggestion: trySuggestion, onFollowUp: followUpHere });
  });
  const { elements, update } = arrange(views);
  const own = (stage = { views, stored, replaces, controller: new AbortController() });
  byId("stage").replaceChildren(...elements);
  byId("welcome").hidden = true;
  showButtons(true);
  if (NARROW.matches) byId("stage").scrollIntoView({ block: "start" });
  const runs = variants.map(({ label, description, options: { model, ...options } }, index) => {
    const metadata = label ? { label, description: description.slice(0, LONGEST_METADATA) } : {};
    return run(own, views[index], { ...request, model, options, stored, metadata }).finally(update);
  });
  await Promise.all(runs);
  own.controller = null;
  if (stage === own) showButtons(false);
}

const trySuggestion = (text) => runRequest({ text });

const followUpHere = (text, { id, text: before, image }) =>
  followUp({ id, text: before, image }, text, optionForms()[0].get());

async function run(own, view, request) {
  const { signal } = own.controller;
  try {
    for await (const event of generate(request, signal)) {
      if (event.type === "created") begin(own, event.id);
      const message = view.update(event);
      if (message) announce(message);
      if (event.type === "created") nameAddress(own);
    }
  } catch (error) {
    if (stage === own) announce(signal.aborted ? view.end("cancelled") : view.end("failed", error.message));
  }
}

/** Results that are stored have an address, at which a reload or another tab joins them. */
function nameAddress(own) {
  const ids = own.views.map((view) => view.id);
  if (!own.stored || own.isNamed || stage !== own || !ids.every(Boolean)) return;
  own.isNamed = true;
  history[own.replaces ? "replaceState" : "pushState"](null, "", addressOf(ids));
}

/** Ends what is running, in the service as well. */
function stop() {
  stage.isStopping = true;
  for (const { id } of stage.views) if (id) stopOne(stage, id);
}

/** A request whose id is not known yet is cancelled as soon as it is. */
function begin(own, id) {
  if (own.isStopping) stopOne(own, id);
}

/** A service that cannot be reached has lost it anyway. */
const stopOne = (own, id) => cancel(id).catch(() => own.controller?.abort());

function showButtons(isRunning) {
  const [stopButton, send] = [byId("stop"), byId("send")];
  const focused = document.activeElement;
  stopButton.hidden = !isRunning;
  send.hidden = isRunning;
  byId("compare").disabled = isRunning;
  // The button that was pressed disappears: move the focus to the other one.
  if (focused === stopButton) send.focus();
  if (focused === send || (isRunning && focused === document.body)) stopButton.focus();
}
