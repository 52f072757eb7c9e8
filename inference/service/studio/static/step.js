// A step of a story on the page: its picture, its words, and the attempts that were refused.

import { count, freshId, make } from "./dom.js";

const TINY = 96; // pixels across: smoothed, so small a picture would be a blur

export class StepCard {
  /** @param {{number: number, name: string, words: string, draws: boolean}} step */
  constructor(step) {
    this.step = step;
    this.attempts = new Map(); // iteration -> {drawn, verdict, item}
    this.id = freshId("step");
    this.state = make("span.badge", {}, "Waiting");
    this.frame = make(
      "div.frame",
      {},
      make("span.number", { ariaHidden: "true" }, String(step.number)),
    );
    this.pages = make("ol.attempts");
    this.summary = make("summary");
    this.refusals = make("details.refused", { hidden: true }, this.summary, this.pages);
    this.how = make("details.how", { hidden: true });
    this.element = this.#page();
    this.thumbnail = this.#thumbnail();
    this.#be("waiting", "Waiting");
  }

  /** The loop has turned to this step. */
  start() {
    if (this.step.draws) this.#be("drawing", "Drawing …");
    else this.#be("told", "Told in words");
  }

  drawn(event) {
    const image = make("img", {
      src: event.uri ?? "",
      alt: this.#alt(event.iteration),
      decoding: "async",
    });
    this.attempts.set(event.iteration, { drawn: event, verdict: null });
    this.#hang(image);
    this.#be("judging", "The critic is looking …");
  }

  judged(event) {
    const attempt = this.attempts.get(event.iteration);
    attempt.verdict = event;
    if (!event.accepted) this.#refuse(attempt);
    const next = `Attempt ${event.iteration + 1} was refused. Drawing again …`;
    if (!event.accepted) this.#be("drawing", next);
  }

  /** What comes of the step is known. */
  settled({ accepted, iteration }) {
    const chosen = this.attempts.get(iteration);
    for (const attempt of this.attempts.values())
      if (attempt !== chosen && attempt.verdict) this.#refuse(attempt);
    if (chosen) this.#choose(chosen);
    if (accepted)
      this.#be("accepted", iteration ? `Accepted at attempt ${iteration + 1}` : "Accepted");
    else this.#be("exhausted", chosen ? "Not accepted, but used" : "Not accepted");
  }

  /** The story is over; a step that has not come to an end never will. */
  leave() {
    if (["waiting", "drawing", "judging"].includes(this.element.dataset.state))
      this.#be("left", "Not told");
  }

  #page() {
    const { number, name, words, draws } = this.step;
    const tale = make(
      "div.tale",
      {},
      make("p.eyebrow", {}, make("span", {}, `Step ${number}`), this.state),
      make("h3", {}, name),
      make("p.words", {}, words),
      this.how,
    );
    const parts = draws ? [this.frame, tale, this.refusals] : [tale];
    return make("li.step", { id: this.id, tabIndex: -1 }, ...parts);
  }

  #thumbnail() {
    const name = make("span.unseen", {}, `Step ${this.step.number}: ${this.step.name}`);
    const number = make("span.number", { ariaHidden: "true" }, String(this.step.number));
    const link = make("a", { href: `#${this.id}` }, number, name);
    return make("li", {}, link);
  }

  #be(state, words) {
    this.element.dataset.state = this.thumbnail.dataset.state = state;
    this.state.textContent = words;
  }

  #hang(image) {
    image.onload = () => image.classList.toggle("tiny", image.naturalWidth <= TINY);
    this.frame.replaceChildren(image);
    this.thumbnail
      .querySelector(".number, img")
      ?.replaceWith(make("img", { src: image.src, alt: "" }));
  }

  #choose({ drawn, verdict }) {
    this.#item(drawn.iteration)?.remove();
    this.#hang(make("img", { src: drawn.uri ?? "", alt: this.step.words || this.step.name }));
    this.how.replaceChildren(
      make("summary", {}, "How this picture was made"),
      account(drawn, verdict),
    );
    this.how.hidden = false;
    this.#count();
  }

  #refuse({ drawn, verdict }) {
    if (this.#item(drawn.iteration)) return;
    const heading = make(
      "h4",
      {},
      `Attempt ${drawn.iteration + 1} – ${verdict.accepted ? "not needed" : "refused"}`,
    );
    const image = make("img", {
      src: drawn.uri ?? "",
      alt: this.#alt(drawn.iteration),
      loading: "lazy",
    });
    const item = make("li", {}, image, make("div", {}, heading, account(drawn, verdict)));
    Object.assign(item.dataset, { iteration: drawn.iteration, accepted: verdict.accepted });
    this.pages.append(item);
    this.#count();
  }

  #count() {
    const items = [...this.pages.children];
    const kind = items.every((item) => item.dataset.accepted === "false") ? "refused" : "other";
    this.refusals.hidden = items.length === 0;
    this.summary.textContent = count(items.length, `${kind} attempt`);
  }

  #item(iteration) {
    return this.pages.querySelector(`[data-iteration="${Number(iteration)}"]`);
  }

  #alt(iteration) {
    return `Attempt ${iteration + 1} at: ${this.step.words || this.step.name}`;
  }
}

/** How an attempt was made, and what the critic said of it. */
function account(drawn, verdict) {
  const facts = [
    ["Prompt", drawn.prompt],
    ["The critic’s reasoning", verdict?.reasoning],
    ["Rewritten prompt", verdict?.accepted ? null : verdict?.refined_prompt],
    ["Seed", String(drawn.seed)],
  ];
  const told = facts.filter(([, value]) => value);
  return make(
    "dl.account",
    {},
    ...told.map(([name, value]) => make("div", {}, make("dt", {}, name), make("dd", {}, value))),
  );
}
