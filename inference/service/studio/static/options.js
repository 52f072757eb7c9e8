// The options of a request, once or, for a comparison, twice.

import { byId, uniqueId } from "./dom.js";

class OptionsForm {
  constructor() {
    this.element = byId("options-template").content.cloneNode(true).firstElementChild;
    for (const label of this.element.querySelectorAll("label")) this.#connect(label);
  }

  setTitle(title) {
    this.element.querySelector("legend").textContent = title;
  }

  /** The options that differ from the service's defaults. */
  get() {
    const options = {};
    for (const field of this.#fields()) {
      if (field.type === "checkbox") {
        if (!field.checked) options[field.dataset.name] = false;
      } else if (field.value !== "") {
        options[field.dataset.name] = field.type === "number" ? Number(field.value) : field.value;
      }
    }
    return options;
  }

  set(options) {
    for (const field of this.#fields()) {
      const value = options[field.dataset.name];
      if (field.type === "checkbox") field.checked = value ?? true;
      else field.value = value ?? "";
    }
  }

  /** The options of `get` as text. */
  describe() {
    const parts = Object.entries(this.get()).map(
      ([name, value]) => `${this.#labelOf(name)}: ${this.#valueText(name, value)}`,
    );
    return parts.join(" · ") || "default settings";
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

  #valueText(name, value) {
    const field = this.#field(name);
    if (field.type === "checkbox") return value ? "yes" : "no";
    return field.selectedOptions?.[0].textContent ?? String(value);
  }

  #connect(label) {
    const field = this.#field(label.dataset.for);
    const help = label.closest(".field").querySelector(".help");
    field.id = label.htmlFor = uniqueId(label.dataset.for);
    help.id = uniqueId("help");
    field.setAttribute("aria-describedby", help.id);
  }
}

const first = new OptionsForm();
const second = new OptionsForm();

/** The forms in use: one, or two for a comparison. */
export const optionForms = () => (byId("comparing").checked ? [first, second] : [first]);

export function setOptions(options) {
  byId("comparing").checked = false;
  show();
  first.set(options);
}

export function prepareOptions() {
  byId("options").append(first.element, second.element);
  byId("comparing").addEventListener("change", show);
  show();
}

function show() {
  const comparing = byId("comparing").checked;
  first.setTitle(comparing ? "Setting A" : "Settings of the story");
  second.setTitle("Setting B");
  second.element.hidden = second.element.disabled = !comparing;
  byId("options").classList.toggle("two", comparing);
}
