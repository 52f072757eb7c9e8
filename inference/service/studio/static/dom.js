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

/** "1 image", "2 images". */
export const count = (number, noun, nouns = `${noun}s`) =>
  `${number} ${number === 1 ? noun : nouns}`;

/** A message of the service as a sentence. */
export function sentence(message) {
  const text = message[0]?.toUpperCase() + message.slice(1);
  return /[.!?…]$/.test(text) ? text : `${text}.`;
}

let ids = 0;
/** An id that no other element has. */
export const uniqueId = (prefix) => `${prefix}-${++ids}`;
