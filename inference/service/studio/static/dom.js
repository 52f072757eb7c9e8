// Creating elements. Text from outside becomes text nodes or checked attributes, never markup.

/**
 * An element with these properties and children; strings become text.
 * @param {string} name "tag" or "tag.class.class"
 */
export function make(name, properties = {}, ...children) {
  const [tag, ...classes] = name.split(".");
  const element = document.createElement(tag);
  element.classList.add(...classes);
  for (const [key, value] of Object.entries(properties)) {
    if (key in element) element[key] = value;
    else element.setAttribute(key, value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

export const byId = (id) => document.getElementById(id);

/** Shows a message in an element of role alert; hides the element without one. */
export function setAlert(element, message) {
  element.textContent = message ?? "";
  element.hidden = !message;
}

/** Enter sends the form of a text field, Shift + Enter begins a line. */
export function submitOnEnter(event) {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  event.currentTarget.form.requestSubmit();
}

/** "1 image", "2 images". */
export const count = (number, noun, nouns = `${noun}s`) =>
  `${number} ${number === 1 ? noun : nouns}`;

/** A message of the service as a sentence. */
export function sentence(message) {
  const text = message[0]?.toUpperCase() + message.slice(1);
  return /[.!?…]$/.test(text) ? text : `${text}.`;
}

/** "12 s", "2 min 05 s". */
export function duration(seconds) {
  const whole = Math.max(0, Math.round(seconds));
  const rest = String(whole % 60);
  return whole < 60 ? `${rest} s` : `${Math.floor(whole / 60)} min ${rest.padStart(2, "0")} s`;
}

let ids = 0;
/** An id that no other element has. */
export const uniqueId = (prefix) => `${prefix}-${++ids}`;
