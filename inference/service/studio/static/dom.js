// Making elements. What comes from outside only ever becomes text or a checked attribute.

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

/** Shows a message in an element of role alert, or hides it when there is none. */
export function warn(element, message) {
  element.textContent = message ?? "";
  element.hidden = !message;
}

/** "1 picture", "2 pictures". */
export const count = (number, noun, nouns = `${noun}s`) =>
  `${number} ${number === 1 ? noun : nouns}`;

let ids = 0;
/** An id that nothing else on the page has. */
export const freshId = (prefix) => `${prefix}-${++ids}`;
