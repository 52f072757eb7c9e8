// Requests to begin with, one for each category.

import { getJson } from "./api.js";
import { compose } from "./composer.js";
import { byId, make } from "./dom.js";

export async function showExamples() {
  const examples = await getJson("studio/static/examples.json");
  byId("examples").replaceChildren(...examples.map(shown));
}

function shown({ category, title, text }) {
  const image = make("img", {
    src: `studio/static/examples/${category}.png`,
    alt: "",
    width: 96,
    height: 96,
    loading: "lazy",
  });
  const words = make("span", {}, make("span.category", {}, title), make("span.text", {}, text));
  const button = make("button.example", { type: "button" }, image, words);
  button.addEventListener("click", () => compose({ text }));
  return make("li", {}, button);
}
