// What happens, in words, for those who do not see the page.

import { byId } from "./dom.js";

// A story may go faster than anybody can be told: what is newest is said, not too often.
const PAUSE = 800; // milliseconds

let waiting = null;
let timer = null;

/** Says it politely, once a screen reader has had time for what was said before. */
export function say(words) {
  waiting = words;
  timer ??= setTimeout(speak, 30);
}

function speak() {
  timer = null;
  if (waiting === null) return;
  byId("news").textContent = waiting;
  waiting = null;
  timer = setTimeout(speak, PAUSE);
}
