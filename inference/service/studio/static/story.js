// A story on the page, growing with its events.

import { count, make } from "./dom.js";
import { downloads } from "./download.js";
import { StepCard } from "./step.js";

const ENDINGS = {
  complete: "The story is complete.",
  exhausted: "The story is told; the critic was not content with every picture.",
  stopped: "The story stops here: a step was not accepted.",
  refused: "This request cannot be told.",
  failed: "Something went wrong.",
  cancelled: "The story was stopped.",
  interrupted: "The service was interrupted. Tell it again, and it goes on.",
};

const placeOf = ({ step, iteration }) => `Step ${step}, attempt ${iteration + 1}`;

export class StoryView {
  /**
   * @param {string} title what was asked for
   * @param {{label?: string, rules?: string, given?: string[]}} more label: A or B of a comparison
   */
  constructor(title, { label = "", rules = "", given = [] } = {}) {
    this.label = label;
    this.cards = new Map(); // step number -> StepCard
    this.drawn = 0;
    this.refused = 0;
    this.id = null;
    this.state = make("p.state", {}, "Sending …");
    this.bar = make("progress", { ariaLabel: "Steps that are done", hidden: true });
    this.plan = make("details.plan", { hidden: true });
    this.strip = make("ol");
    this.overview = make(
      "nav.strip",
      { ariaLabel: `Steps of the story${label && ` ${label}`}`, hidden: true },
      this.strip,
    );
    this.steps = make("ol.steps");
    this.foot = make("footer");
    const heading = make("h2", {}, label ? make("span.label", {}, label) : null, title);
    const pictures = given.map((uri, index) =>
      make("li", {}, make("img", { src: uri, alt: `Given picture ${index + 1}` })),
    );
    const head = make(
      "header",
      {},
      heading,
      rules ? make("p.rules-said", {}, rules) : null,
      pictures.length ? make("ul.given", {}, ...pictures) : null,
      this.state,
      this.bar,
      this.plan,
    );
    this.element = make(
      "article.story",
      { ariaBusy: "true" },
      head,
      this.overview,
      this.steps,
      this.foot,
    );
  }

  /** Takes in an event, and says in words what it means. */
  note(event) {
    const words = this.#noted(event);
    if (words) this.state.textContent = words;
    return words && (this.label ? `${this.label}: ${words}` : words);
  }

  /** It ended without the service's own word. */
  end(status, message = null) {
    return this.note({ type: "ended", status, message, versions: {} });
  }

  #noted(event) {
    const card = this.cards.get(event.step);
    switch (event.type) {
      case "begun":
        this.id = event.id;
        return "Waiting for its turn …";
      case "planning":
        return "The planner is thinking …";
      case "interleave.planned":
        return this.#planned(event);
      case "interleave.step.started":
        card.start();
        if (!card.step.draws) this.bar.value += 1;
        return `Step ${event.step} of ${this.cards.size}: ${card.step.name}.`;
      case "interleave.attempt.drawn":
        this.drawn += 1;
        card.drawn(event);
        return `${placeOf(event)}: the critic is looking.`;
      case "interleave.attempt.judged":
        card.judged(event);
        if (!event.accepted) this.refused += 1;
        return `${placeOf(event)}: ${event.accepted ? "accepted" : "refused"}.`;
      case "interleave.step.settled":
        card.settled(event);
        this.bar.value += 1;
        return null;
      case "ended":
        return this.#ended(event);
    }
    return null;
  }

  #planned({ reasoning, steps }) {
    for (const step of steps) {
      const card = new StepCard(step);
      this.cards.set(step.number, card);
      this.steps.append(card.element);
      this.strip.append(card.thumbnail);
    }
    this.overview.hidden = false;
    Object.assign(this.bar, { max: steps.length, value: 0, hidden: false });
    if (reasoning)
      this.plan.replaceChildren(
        make("summary", {}, "The planner’s reasoning"),
        make("p.reasoning", {}, reasoning),
      );
    this.plan.hidden = !reasoning;
    return `The plan has ${count(steps.length, "step")}.`;
  }

  #ended({ status, message, versions }) {
    for (const card of this.cards.values()) card.leave();
    this.element.ariaBusy = "false";
    this.element.dataset.status = status;
    this.bar.hidden = true;
    this.foot.replaceChildren(...this.#colophon(versions));
    const ending = ENDINGS[status] ?? status;
    return message ? `${ending} ${message}` : `${ending} ${this.#figures()}`;
  }

  #figures() {
    return `${count(this.drawn, "picture")} drawn, ${this.refused} refused.`;
  }

  #colophon(versions) {
    const players = Object.entries(versions).map(([role, name]) =>
      make("div", {}, make("dt", {}, role), make("dd", {}, name)),
    );
    return [
      this.id && this.cards.size ? downloads(this.id) : null,
      players.length
        ? make(
            "details.versions",
            {},
            make("summary", {}, "Who made it"),
            make("dl.account", {}, ...players),
          )
        : null,
    ].filter(Boolean);
  }
}
