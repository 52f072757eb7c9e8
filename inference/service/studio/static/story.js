// A result on the page, which grows with the events of its generation.

import { count, duration, make, sentence } from "./dom.js";
import { downloadButtons } from "./download.js";
import { followUpForm } from "./followup.js";
import { StepCard } from "./step.js";
import { zoomable } from "./viewer.js";

const LONGEST_TITLE = 160; // characters

const ENDINGS = {
  complete: "Complete.",
  exhausted: "Complete, but the critic did not accept every image.",
  stopped: "Stopped: no attempt was accepted.",
  refused: "", // the message says why
  failed: "The request failed.",
  cancelled: "Cancelled.",
  interrupted: "Interrupted before it was finished. Run the request again.",
};
/** Status of a generation -> how lists name it. */
export const STATUS_NAMES = {
  queued: "Not finished",
  in_progress: "Running",
  complete: "Complete",
  exhausted: "Complete, not every image accepted",
  stopped: "Stopped",
  refused: "Not possible",
  failed: "Failed",
  cancelled: "Cancelled",
  interrupted: "Interrupted",
};

/** The address of results: one, or several side by side. */
export const addressOf = (ids) => `#/generations/${ids.map(encodeURIComponent).join("+")}`;

/** A request for people: without the tags of the images that come before it. */
export const textOf = (text) => text.replace(/^(\s*<image>\s*)+/, "");

/** A request as a heading. */
export function titleOf(text) {
  const title = textOf(text).replaceAll("<image>", "[image]");
  if (title.length <= LONGEST_TITLE) return title;
  return `${title.slice(0, LONGEST_TITLE).replace(/\s+\S*$/, "")} …`;
}

const attemptName = ({ number }, { iteration }) => `Step ${number}, attempt ${iteration + 1}`;

function waitingText({ position, expected_seconds: seconds }) {
  const time = seconds === null ? "" : `, about ${duration(Math.max(1, seconds))}`;
  return `Waiting: position ${position} in the queue${time}.`;
}

export class StoryView {
  /**
   * @param {string} text the request
   * @param {{label?: string, options?: string, inputImages?: string[], stored?: boolean,
   *   follows?: {id: string, text: string}, onSuggestion?: (text: string) => void,
   *   onFollowUp?: (text: string, view: StoryView) => void}} more label: name in a comparison;
   *   options: as text; inputImages: URIs of the input images; follows: the result before;
   *   onSuggestion: the user chose another request; onFollowUp: the user continues from it
   */
  constructor(text, more = {}) {
    const { label = "", options = "", stored = true, onSuggestion, onFollowUp } = more;
    Object.assign(this, { text, stored, onSuggestion, onFollowUp });
    this.created = performance.now();
    this.joined = false; // it began before the page showed it
    this.seconds = this.position = null; // how long it took; its place in the queue
    this.status = "queued";
    this.refusal = null;
    this.suggestions = [];
    this.missing = [];
    this.label = label;
    this.cards = new Map(); // step number -> StepCard
    this.drawn = this.accepted = this.rejected = 0;
    this.id = null;
    this.state = make("p.state", {}, "Sending …");
    this.elapsed = make("span.elapsed", { role: "timer" });
    this.progress = make("progress", { ariaLabel: "Finished steps", hidden: true });
    this.plan = make("details.plan", { hidden: true });
    this.simulation = make("div.help", { hidden: true });
    this.thumbnails = make("ol");
    this.overview = make(
      "nav.overview",
      { ariaLabel: `Steps${label && `, ${label}`}`, hidden: true },
      this.thumbnails,
    );
    this.steps = make("ol.steps");
    this.footer = make("footer");
    this.element = make(
      "article.story",
      { ariaBusy: "true" },
      this.#header(options, more),
      this.overview,
      this.steps,
      this.footer,
    );
    this.clock = setInterval(() => this.#showElapsed(), 1000);
  }

  /** The last image as a data URI; null: there is none. */
  get image() {
    return [...this.cards.values()].findLast((card) => card.image)?.image ?? null;
  }

  /** Shows an event; returns a message about it, or null. */
  update(event) {
    const message = this.#apply(event);
    if (message) this.state.textContent = message;
    if (event.type === "queued" && !this.#moved(event)) return null;
    return message && (this.label ? `${this.label}: ${message}` : message);
  }

  /** For a comparison; `accepted`: attempts. */
  numbers() {
    const { status, drawn: attempts, accepted, seconds } = this;
    return { status: STATUS_NAMES[status], steps: this.cards.size, attempts, accepted, seconds };
  }

  /** Ends it without an event of the service. */
  end(status, message = null) {
    return this.update({ type: "ended", status, message, versions: {} });
  }

  #header(options, { inputImages = [], follows = null }) {
    const images = inputImages.map((uri, index) => {
      const image = make("img", { src: uri, alt: `Input image ${index + 1}` });
      return make("li", {}, zoomable(image, `input-${index + 1}`));
    });
    const title = titleOf(this.text);
    const link = follows && make("a", { href: addressOf([follows.id]) }, titleOf(follows.text));
    return make(
      "header",
      {},
      link && make("p.help", {}, "Follows: ", link),
      make("h2", {}, this.label ? make("span.label", {}, this.label) : null, title),
      title.endsWith(" …") ? this.#wholeRequest() : null,
      options ? make("p.options-text", {}, options) : null,
      images.length ? make("ul.uploads", {}, ...images) : null,
      make("div.state-line", {}, this.state, this.elapsed),
      this.progress,
      this.simulation,
      this.plan,
    );
  }

  #wholeRequest() {
    const text = make("p.whole", {}, textOf(this.text));
    return make("details.plan", {}, make("summary", {}, "Show the whole request"), text);
  }

  #apply(event) {
    const card = this.cards.get(event.step);
    switch (event.type) {
      case "created":
        return this.#showBegun(event);
      case "queued":
        return waitingText(event);
      case "reconnecting":
        return "Connection lost. Reconnecting …";
      case "planning":
        this.status = "in_progress";
        return "Planning …";
      case "interleave.simulated":
        return this.#showSimulation(event);
      case "interleave.planned":
        return this.#showPlan(event);
      case "interleave.step.started":
        card.start();
        if (!card.step.has_image) this.progress.value += 1;
        return `Step ${card.number} of ${this.cards.size}: ${card.step.name}.`;
      case "interleave.attempt.drawn":
        this.drawn += 1;
        card.showAttempt(event);
        return `${attemptName(card, event)}: judging.`;
      case "interleave.attempt.judged":
        card.showVerdict(event);
        this[event.accepted ? "accepted" : "rejected"] += 1;
        return `${attemptName(card, event)}: ${event.accepted ? "accepted" : "rejected"}.`;
      case "interleave.step.settled":
        card.finish(event);
        this.progress.value += 1;
        return null;
      case "ended":
        return this.#showEnd(event);
    }
    return null;
  }

  #showBegun({ id, seconds }) {
    if (this.id) this.#restart();
    this.id = id;
    this.status = "queued";
    this.joined = seconds !== undefined;
    if (this.joined) this.created = performance.now() - 1000 * seconds;
    return "Queued …";
  }

  /** Whether the place in the queue has changed. */
  #moved({ position }) {
    const moved = position !== this.position;
    this.position = position;
    return moved;
  }

  #showElapsed() {
    if (!this.element.isConnected) return clearInterval(this.clock);
    this.elapsed.textContent = duration((performance.now() - this.created) / 1000);
  }

  /** All events come again; the element keeps its height, so that the page does not scroll. */
  #restart() {
    this.element.style.minHeight = `${this.element.offsetHeight}px`;
    this.cards.clear();
    this.drawn = this.accepted = this.rejected = 0;
    this.steps.replaceChildren();
    this.thumbnails.replaceChildren();
  }

  /** That the images are simulated, and what they lack. */
  #showSimulation({ notice, not_drawn, remarks, refusal = null, suggestions = [] }) {
    Object.assign(this, { refusal, suggestions });
    const missing = not_drawn.length && !refusal ? [`Not drawn: ${not_drawn.join(", ")}.`] : [];
    this.missing = [...remarks, ...missing];
    const lines = this.missing.map((line) => make("p.missing", {}, line));
    this.simulation.replaceChildren(make("p", {}, notice), ...lines);
    this.simulation.hidden = false;
    return null;
  }

  #showPlan({ reasoning, steps }) {
    const inputImages = (steps[0]?.number ?? 1) - 1; // planners number the input images, too
    for (const step of steps) {
      const card = new StepCard(step, step.number - inputImages);
      this.cards.set(step.number, card);
      this.steps.append(card.element);
      this.thumbnails.append(card.thumbnail);
    }
    const last = steps.findLast((step) => step.has_image);
    if (last) this.cards.get(last.number).showMissing(this.missing);
    this.overview.hidden = false;
    Object.assign(this.progress, { max: steps.length, value: 0, hidden: false });
    if (reasoning)
      this.plan.replaceChildren(
        make("summary", {}, "Planner’s reasoning"),
        make("p.reasoning", {}, reasoning),
      );
    this.plan.hidden = !reasoning;
    return `The plan has ${count(steps.length, "step")}.`;
  }

  #showEnd({ status, message, versions, seconds = null }) {
    for (const card of this.cards.values()) card.generationEnded();
    clearInterval(this.clock);
    this.status = status;
    this.seconds = this.joined ? seconds : (performance.now() - this.created) / 1000;
    this.elapsed.textContent = this.seconds >= 1 ? duration(this.seconds) : "";
    this.element.style.minHeight = "";
    this.element.ariaBusy = "false";
    this.element.dataset.status = status;
    this.progress.hidden = true;
    this.footer.replaceChildren(...this.#footerParts(versions));
    return `${ENDINGS[status] ?? status} ${this.#explanation(status, message)}`.trim();
  }

  #explanation(status, message) {
    if (status === "interrupted") return "";
    if (status === "refused" && this.refusal) return this.refusal;
    return message ? sentence(message) : this.#summary();
  }

  #summary() {
    return `${count(this.drawn, "image")} drawn, ${this.rejected} rejected.`;
  }

  /** Requests that can be illustrated, after one that cannot. */
  #suggestionList() {
    const items = this.suggestions.map((text) => {
      const button = make("button.button.quiet", { type: "button" }, text);
      button.addEventListener("click", () => this.onSuggestion(text));
      return make("li", {}, button);
    });
    return make("div.suggestions", {}, make("h3", {}, "Try instead"), make("ul.row", {}, ...items));
  }

  #footerParts(versions) {
    const agents = Object.entries(versions).map(([role, name]) =>
      make("div", {}, make("dt", {}, role), make("dd", {}, name)),
    );
    const models = make(
      "details.versions",
      {},
      make("summary", {}, "Models used"),
      make("dl.facts", {}, ...agents),
    );
    const isStored = this.stored && this.id && this.cards.size;
    const parts = [
      this.suggestions.length && this.onSuggestion ? this.#suggestionList() : null,
      isStored && this.onFollowUp ? followUpForm((text) => this.onFollowUp(text, this)) : null,
      isStored ? downloadButtons(this.id) : null,
      agents.length ? models : null,
    ];
    return parts.filter(Boolean);
  }
}
