// The form of a new story, and the stage on which it is told, once or twice side by side.

import { byId, make, warn } from "./dom.js";
import { givenPictures, setGiven, takePictures } from "./given.js";
import { say } from "./news.js";
import { chosenRules, setRules, showRules } from "./rules.js";
import { StoryView } from "./story.js";
import { tell } from "./telling.js";

const NARROW = matchMedia("(max-width: 61.99rem)"); // the stage is below the form

let running = null; // AbortController of what is being told

export function prepareComposer() {
  const form = byId("composer");
  showRules();
  takePictures(form, (message) => warn(byId("composer-error"), message));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    if (!running) begin();
  });
  byId("request").addEventListener("keydown", sendOnEnter);
  byId("stop").addEventListener("click", () => running?.abort());
}

/** Fills the form, ready to be sent. */
export function compose({ text, pictures = [], rules = {} }) {
  byId("request").value = text;
  setGiven(pictures);
  setRules(rules);
  byId("settings").open = Object.keys(rules).length > 0;
  byId("request").focus();
}

/** Clears the stage, unless something is being told on it. */
export function clearStage() {
  if (running) return;
  byId("stage").replaceChildren();
  byId("welcome").hidden = false;
}

function sendOnEnter(event) {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  byId("composer").requestSubmit();
}

async function begin() {
  const text = byId("request").value.trim();
  if (!text) return warn(byId("composer-error"), "Say in words what shall be told.");
  warn(byId("composer-error"), null);
  const pictures = givenPictures();
  const settings = chosenRules();
  const views = settings.map((rules, index) =>
    viewOf(text, pictures, rules, index, settings.length),
  );
  setStage(views);
  busy(new AbortController());
  if (NARROW.matches) byId("stage").scrollIntoView({ block: "start" });
  await Promise.all(
    views.map((view, index) => run(view, { text, pictures, rules: settings[index].get() })),
  );
  busy(null);
}

function viewOf(text, given, rules, index, of) {
  return of === 1
    ? new StoryView(text, { given })
    : new StoryView(text, { given, label: "AB"[index], rules: rules.say() });
}

function setStage(views) {
  byId("welcome").hidden = true;
  byId("stage").replaceChildren(
    make(views.length > 1 ? "div.pair" : "div", {}, ...views.map((view) => view.element)),
  );
}

async function run(view, request) {
  const { signal } = running;
  try {
    for await (const event of tell(request, signal)) {
      const words = view.note(event);
      if (words) say(words);
    }
  } catch (error) {
    say(signal.aborted ? view.end("cancelled") : view.end("failed", error.message));
  }
}

function busy(controller) {
  const stop = byId("stop");
  const send = byId("send");
  const focused = document.activeElement;
  running = controller;
  stop.hidden = !running;
  send.hidden = Boolean(running);
  // The button that was pressed is gone: its place is taken by the other one.
  if (focused === stop) send.focus();
  if (focused === send) stop.focus();
}
