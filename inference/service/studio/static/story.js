// A result on the page, which grows with the events of its generation.

import { count, make, sentence } from "./dom.js";
import { downloadButtons } from "./download.js";
import { StepCard } from "./step.js";

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

const attemptName = ({ step, iteration }) => `Step ${step}, attempt ${iteration + 1}`;

export class StoryView {
  /**
   * @param {string} title the request
   * @param {{label?: string, options?: string, pictures?: string[],
   *   onSuggestion?: (text: string) => void}} more label: name in a comparison; options: as text;
   *   pictures: URIs of the input images; onSuggestion: the user chose another request
   */
  constructor(title, { label = "", options = "", pictures = [], onSuggestion = null } = {}) {
    this.onSuggestion = onSuggestion;
    this.created = this.ended = performance.now();
    this.status = "queued";
    this.refusal = null;
    this.suggestions = [];
    this.label = label;
    this.cards = new Map(); // step number -> StepCard
    this.drawn = this.accepted = this.rejected = 0;
    this.id = null;
    this.state = make("p.state", {}, "Sending …");
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
      this.#header(title, options, pictures),
      this.overview,
      this.steps,
      this.footer,
    );
  }

  /** Shows an event; returns a message about it, or null. */
  update(event) {
    const message = this.#apply(event);
    if (message) this.state.textContent = message;
    return message && (this.label ? `${this.label}: ${message}` : message);
  }

  /** For a comparison; `accepted`: attempts. */
  numbers() {
    const { status, drawn: attempts, accepted } = this;
    const seconds = (this.ended - this.created) / 1000;
    return { status: STATUS_NAMES[status], steps: this.cards.size, attempts, accepted, seconds };
  }

  /** Ends it without an event of the service. */
  end(status, message = null) {
    return this.update({ type: "ended", status, message, versions: {} });
  }

  #header(title, options, pictures) {
    const images = pictures.map((uri, index) =>
      make("li", {}, make("img", { src: uri, alt: `Input image ${index + 1}` })),
    );
    return make(
      "header",
      {},
      make("h2", {}, this.label ? make("span.label", {}, this.label) : null, title),
      options ? make("p.options-text", {}, options) : null,
      images.length ? make("ul.uploads", {}, ...images) : null,
      this.state,
      this.progress,
      this.simulation,
      this.plan,
    );
  }

  #apply(event) {
    const card = this.cards.get(event.step);
    switch (event.type) {
      case "begun":
        if (this.id) this.#restart();
        this.id = event.id;
        return "Queued …";
      case "reconnecting":
        return "Connection lost. Reconnecting …";
      case "planning":
        return "Planning …";
      case "interleave.simulated":
        return this.#showSimulation(event);
      case "interleave.planned":
        return this.#showPlan(event);
      case "interleave.step.started":
        card.start();
        if (!card.step.draws) this.progress.value += 1;
        return `Step ${event.step} of ${this.cards.size}: ${card.step.name}.`;
      case "interleave.attempt.drawn":
        this.drawn += 1;
        card.showAttempt(event);
        return `${attemptName(event)}: judging.`;
      case "interleave.attempt.judged":
        card.showVerdict(event);
        this[event.accepted ? "accepted" : "rejected"] += 1;
        return `${attemptName(event)}: ${event.accepted ? "accepted" : "rejected"}.`;
      case "interleave.step.settled":
        card.finish(event);
        this.progress.value += 1;
        return null;
      case "ended":
        return this.#showEnd(event);
    }
    return null;
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
    const lines = [notice, ...remarks, ...missing];
    this.simulation.replaceChildren(...lines.map((line) => make("p", {}, line)));
    this.simulation.hidden = false;
    return null;
  }

  #showPlan({ reasoning, steps }) {
    for (const step of steps) {
      const card = new StepCard(step);
      this.cards.set(step.number, card);
      this.steps.append(card.element);
      this.thumbnails.append(card.thumbnail);
    }
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

  #showEnd({ status, message, versions }) {
    for (const card of this.cards.values()) card.generationEnded();
    Object.assign(this, { status, ended: performance.now() });
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
    const parts = [
      this.suggestions.length && this.onSuggestion ? this.#suggestionList() : null,
      this.id && this.cards.size ? downloadButtons(this.id) : null,
      agents.length ? models : null,
    ];
    return parts.filter(Boolean);
  }
}
