// Progress in words, for screen readers.

import { byId } from "./dom.js";

// Events may come faster than they can be read out: only the newest is announced, at intervals.
const INTERVAL = 800; // milliseconds

let pending = null;
let timer = null;

/** Announces a message, once a screen reader has had time for the one before. */
export function announce(message) {
  pending = message;
  timer ??= setTimeout(flush, 30);
}

function flush() {
  timer = null;
  if (pending === null) return;
  byId("announcements").textContent = pending;
  pending = null;
  timer = setTimeout(flush, INTERVAL);
}
