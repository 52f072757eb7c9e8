// A step of a result on the page: its image, its text, and its rejected attempts.

import { count, make, uniqueId } from "./dom.js";

const TINY = 96; // pixels: images up to this width are enlarged without smoothing

export class StepCard {
  /** @param {{number: number, name: string, words: string, draws: boolean}} step */
  constructor(step) {
    this.step = step;
    this.attempts = new Map(); // iteration -> {drawn, verdict}, the two events
    this.id = uniqueId("step");
    this.state = make("span.badge", {}, "Waiting");
    this.frame = make("div.frame", {}, this.#number());
    this.unused = make("ol.attempts");
    this.unusedTitle = make("summary");
    this.unusedSection = make("details.rejected", { hidden: true }, this.unusedTitle, this.unused);
    this.details = make("details.how", { hidden: true });
    this.element = this.#card();
    this.thumbnail = this.#thumbnail();
    this.#setState("waiting", "Waiting");
  }

  /** The loop has reached this step. */
  start() {
    if (this.step.draws) this.#setState("drawing", "Drawing …");
    else this.#setState("text", "Text only");
  }

  showAttempt(event) {
    const image = make("img", {
      src: event.uri ?? "",
      alt: this.#altText(event.iteration),
      decoding: "async",
    });
    this.attempts.set(event.iteration, { drawn: event, verdict: null });
    this.#showImage(image);
    this.#setState("judging", "Judging …");
  }

  showVerdict(event) {
    const attempt = this.attempts.get(event.iteration);
    attempt.verdict = event;
    if (event.accepted) return;
    this.#addUnused(attempt);
    this.#setState("drawing", `Attempt ${event.iteration + 1} was rejected. Drawing again …`);
  }

  /** The step has ended. `iteration`: of the attempt that is used, if any. */
  finish({ accepted, iteration }) {
    const chosen = this.attempts.get(iteration);
    for (const attempt of this.attempts.values())
      if (attempt !== chosen && attempt.verdict) this.#addUnused(attempt);
    if (chosen) this.#showChosen(chosen);
    if (accepted)
      this.#setState("accepted", iteration ? `Accepted at attempt ${iteration + 1}` : "Accepted");
    else this.#setState("exhausted", chosen ? "Not accepted, but used" : "Not accepted");
  }

  /** The generation has ended, so that an unfinished step stays unfinished. */
  generationEnded() {
    if (["waiting", "drawing", "judging"].includes(this.element.dataset.state))
      this.#setState("skipped", "Not finished");
  }

  #card() {
    const { number, name, words, draws } = this.step;
    const text = make(
      "div.step-text",
      {},
      make("p.step-head", {}, make("span", {}, `Step ${number}`), this.state),
      make("h3", {}, name),
      make("p.words", {}, words),
      this.details,
    );
    const parts = draws ? [this.frame, text, this.unusedSection] : [text];
    return make("li.step", { id: this.id, tabIndex: -1 }, ...parts);
  }

  #thumbnail() {
    const name = make("span.visually-hidden", {}, `Step ${this.step.number}: ${this.step.name}`);
    return make("li", {}, make("a", { href: `#${this.id}` }, this.#number(), name));
  }

  #number() {
    return make("span.number", { ariaHidden: "true" }, String(this.step.number));
  }

  #setState(state, label) {
    this.element.dataset.state = this.thumbnail.dataset.state = state;
    this.state.textContent = label;
  }

  #showImage(image) {
    image.onload = () => image.classList.toggle("tiny", image.naturalWidth <= TINY);
    this.frame.replaceChildren(image);
    this.thumbnail
      .querySelector(".number, img")
      ?.replaceWith(make("img", { src: image.src, alt: "" }));
  }

  #showChosen({ drawn, verdict }) {
    this.#unusedItem(drawn.iteration)?.remove();
    this.#showImage(
      make("img", { src: drawn.uri ?? "", alt: this.step.words || this.step.name }),
    );
    this.details.replaceChildren(
      make("summary", {}, "Details"),
      attemptFacts(drawn, verdict),
    );
    this.details.hidden = false;
    this.#countUnused();
  }

  #addUnused({ drawn, verdict }) {
    if (this.#unusedItem(drawn.iteration)) return;
    const reason = verdict.accepted ? "not needed" : "rejected";
    const heading = make("h4", {}, `Attempt ${drawn.iteration + 1} – ${reason}`);
    const image = make("img", {
      src: drawn.uri ?? "",
      alt: this.#altText(drawn.iteration),
      loading: "lazy",
    });
    const item = make("li", {}, image, make("div", {}, heading, attemptFacts(drawn, verdict)));
    Object.assign(item.dataset, { iteration: drawn.iteration, accepted: verdict.accepted });
    this.unused.append(item);
    this.#countUnused();
  }

  #countUnused() {
    const items = [...this.unused.children];
    const kind = items.every((item) => item.dataset.accepted === "false") ? "rejected" : "other";
    this.unusedSection.hidden = items.length === 0;
    this.unusedTitle.textContent = count(items.length, `${kind} attempt`);
  }

  #unusedItem(iteration) {
    return this.unused.querySelector(`[data-iteration="${Number(iteration)}"]`);
  }

  #altText(iteration) {
    return `Attempt ${iteration + 1} at: ${this.step.words || this.step.name}`;
  }
}

/** How an attempt was made, and the critic's reasoning about it. */
function attemptFacts(drawn, verdict) {
  const facts = [
    ["Prompt", drawn.prompt],
    ["Critic’s reasoning", verdict?.reasoning],
    ["Rewritten prompt", verdict?.accepted ? null : verdict?.refined_prompt],
    ["Seed", String(drawn.seed)],
  ].filter(([, value]) => value);
  return make(
    "dl.facts",
    {},
    ...facts.map(([name, value]) => make("div", {}, make("dt", {}, name), make("dd", {}, value))),
  );
}
