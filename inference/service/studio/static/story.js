// A story on the page, which grows with the events of its generation.

import { count, make } from "./dom.js";
import { downloadButtons } from "./download.js";
import { StepCard } from "./step.js";

const ENDINGS = {
  complete: "The story is complete.",
  exhausted: "The story is finished; the critic did not accept every picture.",
  stopped: "The story ends here: a step was not accepted.",
  refused: "", // the message says why
  failed: "Something went wrong.",
  cancelled: "The story was cancelled.",
  interrupted: "The service was interrupted. Create the story again.",
};

const attemptName = ({ step, iteration }) => `Step ${step}, attempt ${iteration + 1}`;

export class StoryView {
  /**
   * @param {string} title the request
   * @param {{label?: string, options?: string, pictures?: string[]}} more label: A or B of a
   *   comparison; options: as text; pictures: URIs of those in the request
   */
  constructor(title, { label = "", options = "", pictures = [] } = {}) {
    this.label = label;
    this.cards = new Map(); // step number -> StepCard
    this.drawn = 0;
    this.rejected = 0;
    this.id = null;
    this.state = make("p.state", {}, "Sending …");
    this.progress = make("progress", { ariaLabel: "Finished steps", hidden: true });
    this.plan = make("details.plan", { hidden: true });
    this.simulation = make("div.help", { hidden: true });
    this.thumbnails = make("ol");
    this.overview = make(
      "nav.overview",
      { ariaLabel: `Steps of the story${label && ` ${label}`}`, hidden: true },
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

  /** Ends the story without an event of the service. */
  end(status, message = null) {
    return this.update({ type: "ended", status, message, versions: {} });
  }

  #header(title, options, pictures) {
    const images = pictures.map((uri, index) =>
      make("li", {}, make("img", { src: uri, alt: `Input picture ${index + 1}` })),
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
        this.id = event.id;
        return "Queued …";
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
        return `${attemptName(event)}: the critic is judging.`;
      case "interleave.attempt.judged":
        card.showVerdict(event);
        if (!event.accepted) this.rejected += 1;
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

  /** What a demo world says about itself, and what it leaves out. */
  #showSimulation({ notice, not_drawn, remarks }) {
    const missing = not_drawn.length ? [`Not drawn here: ${not_drawn.join(", ")}.`] : [];
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
        make("summary", {}, "The planner’s reasoning"),
        make("p.reasoning", {}, reasoning),
      );
    this.plan.hidden = !reasoning;
    return `The plan has ${count(steps.length, "step")}.`;
  }

  #showEnd({ status, message, versions }) {
    for (const card of this.cards.values()) card.storyEnded();
    this.element.ariaBusy = "false";
    this.element.dataset.status = status;
    this.progress.hidden = true;
    this.footer.replaceChildren(...this.#footerParts(versions));
    const ending = ENDINGS[status] ?? status;
    return `${ending} ${message ?? this.#summary()}`.trim();
  }

  #summary() {
    return `${count(this.drawn, "picture")} drawn, ${this.rejected} rejected.`;
  }

  #footerParts(versions) {
    const agents = Object.entries(versions).map(([role, name]) =>
      make("div", {}, make("dt", {}, role), make("dd", {}, name)),
    );
    const models = make(
      "details.versions",
      {},
      make("summary", {}, "Models"),
      make("dl.facts", {}, ...agents),
    );
    const parts = [
      this.id && this.cards.size ? downloadButtons(this.id) : null,
      agents.length ? models : null,
    ];
    return parts.filter(Boolean);
  }
}
