// A step of a result on the page: its image, its text, and its rejected attempts.

import { count, make, uniqueId } from "./dom.js";
import { zoomable } from "./viewer.js";

const TINY = 96; // pixels: images up to this width are enlarged without smoothing

export class StepCard {
  /**
   * @param {{name: string, text: string, has_image: boolean}} step
   * @param {number} number as it is shown, from 1 on
   */
  constructor(step, number) {
    this.step = step;
    this.number = number;
    this.attempts = new Map(); // iteration -> {drawn, verdict}, the two events
    this.id = uniqueId("step");
    this.state = make("span.badge", {}, "Waiting");
    this.frame = make("div.frame", {}, this.#number());
    this.unused = make("ol.attempts");
    this.unusedTitle = make("summary");
    this.unusedSection = make("details.rejected", { hidden: true }, this.unusedTitle, this.unused);
    this.details = make("details.how", { hidden: true });
    this.missing = make("div.missing", { hidden: true });
    this.element = this.#card();
    this.thumbnail = this.#thumbnail();
    this.#setState("waiting", "Waiting");
  }

  /** The chosen image as a data URI, or the last attempt at it; null: there is none. */
  get image() {
    return this.frame.querySelector("img")?.src ?? null;
  }

  /** Says beside the image what it lacks. */
  showMissing(lines) {
    this.missing.replaceChildren(...lines.map((line) => make("p", {}, line)));
    this.missing.hidden = !lines.length;
  }

  /** The loop has reached this step. */
  start() {
    if (this.step.has_image) this.#setState("drawing", "Drawing …");
    else this.#setState("text", "Text only");
  }

  showAttempt(event) {
    const image = make("img", {
      src: event.uri ?? "",
      alt: this.#altText(event.iteration),
      decoding: "async",
    });
    this.attempts.set(event.iteration, { drawn: event, verdict: null });
    this.#showImage(image, this.#fileName(event.iteration));
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
    const { name, text: caption, has_image: hasImage } = this.step;
    const text = make(
      "div.step-text",
      {},
      make("p.step-head", {}, make("span", {}, `Step ${this.number}`), this.state),
      make("h3", {}, name),
      make("p.words", {}, caption),
      this.missing,
      this.details,
    );
    const parts = hasImage ? [this.frame, text, this.unusedSection] : [text];
    return make("li.step", { id: this.id, tabIndex: -1 }, ...parts);
  }

  #thumbnail() {
    const name = make("span.visually-hidden", {}, `Step ${this.number}: ${this.step.name}`);
    return make("li", {}, make("a", { href: `#${this.id}` }, this.#number(), name));
  }

  #number() {
    return make("span.number", { ariaHidden: "true" }, String(this.number));
  }

  #setState(state, label) {
    this.element.dataset.state = this.thumbnail.dataset.state = state;
    this.state.textContent = label;
  }

  #showImage(image, name) {
    image.onload = () => image.classList.toggle("tiny", image.naturalWidth <= TINY);
    this.frame.replaceChildren(zoomable(image, name));
    this.thumbnail
      .querySelector(".number, img")
      ?.replaceWith(make("img", { src: image.src, alt: "" }));
  }

  #showChosen({ drawn, verdict }) {
    this.#unusedItem(drawn.iteration)?.remove();
    this.#showImage(
      make("img", { src: drawn.uri ?? "", alt: this.step.text || this.step.name }),
      `step-${this.number}`,
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
    const facts = make("div", {}, heading, attemptFacts(drawn, verdict));
    const item = make("li", {}, zoomable(image, this.#fileName(drawn.iteration)), facts);
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

  #fileName(iteration) {
    return `step-${this.number}-attempt-${iteration + 1}`;
  }

  #altText(iteration) {
    return `Attempt ${iteration + 1} at: ${this.step.text || this.step.name}`;
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
