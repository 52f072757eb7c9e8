// The settings of a request, once or, to compare, twice.

import { byId, freshId } from "./dom.js";

/** A fieldset of settings. */
class Rules {
  constructor() {
    this.element = byId("rules-template").content.cloneNode(true).firstElementChild;
    for (const label of this.element.querySelectorAll("label")) this.#join(label);
  }

  name(words) {
    this.element.querySelector("legend").textContent = words;
  }

  get() {
    const rules = {};
    for (const field of this.#fields()) {
      if (field.type === "checkbox") {
        if (!field.checked) rules[field.dataset.name] = false;
      } else if (field.value !== "") {
        rules[field.dataset.name] = field.type === "number" ? Number(field.value) : field.value;
      }
    }
    return rules;
  }

  set(rules) {
    for (const field of this.#fields()) {
      const value = rules[field.dataset.name];
      if (field.type === "checkbox") field.checked = value ?? true;
      else field.value = value ?? "";
    }
  }

  /** What differs from the service's own settings, in words. */
  say() {
    const told = Object.entries(this.get()).map(
      ([name, value]) => `${this.#labelOf(name)}: ${this.#wordsOf(name, value)}`,
    );
    return told.join(" · ") || "as the service is set";
  }

  #fields() {
    return [...this.element.querySelectorAll("[data-name]")];
  }

  #field(name) {
    return this.#fields().find((field) => field.dataset.name === name);
  }

  #labelOf(name) {
    return this.element.querySelector(`label[data-for="${name}"]`).textContent.toLowerCase();
  }

  #wordsOf(name, value) {
    const field = this.#field(name);
    if (field.type === "checkbox") return value ? "yes" : "no";
    return field.selectedOptions?.[0].textContent ?? String(value);
  }

  #join(label) {
    const field = this.#field(label.dataset.for);
    const help = label.closest(".field").querySelector(".help");
    field.id = label.htmlFor = freshId(label.dataset.for);
    help.id = freshId("help");
    field.setAttribute("aria-describedby", help.id);
  }
}

const first = new Rules();
const second = new Rules();

/** The settings asked for: one, or two to compare. */
export const chosenRules = () => (byId("comparing").checked ? [first, second] : [first]);

export function setRules(rules) {
  byId("comparing").checked = false;
  show();
  first.set(rules);
}

export function showRules() {
  byId("rules").append(first.element, second.element);
  byId("comparing").addEventListener("change", show);
  show();
}

function show() {
  const comparing = byId("comparing").checked;
  first.name(comparing ? "Setting A" : "Settings of the story");
  second.name("Setting B");
  second.element.hidden = second.element.disabled = !comparing;
  byId("rules").classList.toggle("two", comparing);
}
