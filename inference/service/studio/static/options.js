// The options of a request, once or, for a comparison, twice.

import { byId, make, uniqueId } from "./dom.js";
import { comparedModels, settings } from "./settings.js";

class OptionsForm {
  constructor() {
    this.element = byId("options-template").content.cloneNode(true).firstElementChild;
    for (const label of this.element.querySelectorAll("label")) this.#connect(label);
  }

  /** Offers what the service has, and permits what it permits. */
  prepare() {
    const { limits, models, conditioning } = settings;
    for (const name of ["t_max", "candidates", "max_steps"]) this.#field(name).max = limits[name];
    const choices = models.map(({ id, title, description }) =>
      make("option", { value: id }, `${title} – ${description}`),
    );
    this.#field("model").append(...choices);
    this.#show("model", comparedModels().length > 0);
    this.#show("conditioning", conditioning.length > 1);
    this.set({});
  }

  setTitle(title) {
    this.element.querySelector("legend").textContent = title;
  }

  /** The options that differ from the service's defaults. */
  get() {
    const options = {};
    for (const field of this.#fields()) {
      const value = valueOf(field);
      if (value !== null && value !== defaultOf(field)) options[field.dataset.name] = value;
    }
    return options;
  }

  /** Sets options; those that are left out, or not offered here, get their defaults. */
  set(options) {
    for (const field of this.#fields()) {
      const value = options[field.dataset.name] ?? defaultOf(field);
      if (field.type === "checkbox") field.checked = value;
      else field.value = value;
      if (field.value === "") field.value = defaultOf(field);
    }
  }

  /** The options of `get` as text. */
  describe() {
    const parts = Object.entries(this.get()).map(
      ([name, value]) => `${this.#labelOf(name)}: ${this.#valueText(name, value)}`,
    );
    return parts.join(" · ") || "Default settings";
  }

  #fields() {
    return [...this.element.querySelectorAll("[data-name]")];
  }

  #field(name) {
    return this.#fields().find((field) => field.dataset.name === name);
  }

  #show(name, shown) {
    this.#field(name).closest(".field").hidden = !shown;
  }

  #labelOf(name) {
    return this.element.querySelector(`label[data-for="${name}"]`).textContent;
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

/** null: the field is empty. */
function valueOf(field) {
  if (field.type === "checkbox") return field.checked;
  if (field.value === "") return null;
  return field.type === "number" ? Number(field.value) : field.value;
}

/** The profile's value; a choice that profiles do not make has its first value. */
const defaultOf = (field) => settings.defaults[field.dataset.name] ?? field.options?.[0]?.value;

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
  for (const form of [first, second]) form.prepare();
  byId("options").append(first.element, second.element);
  byId("comparing").addEventListener("change", show);
  show();
}

function show() {
  const comparing = byId("comparing").checked;
  first.setTitle(comparing ? "Setting A" : "Settings of the request");
  second.setTitle("Setting B");
  second.element.hidden = second.element.disabled = !comparing;
  byId("options").classList.toggle("two", comparing);
}
