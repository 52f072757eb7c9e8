// From a request to the events of its generation, live or replayed by the service.
//
// They are the extension's own events (`interleave.*`), with a `uri` added to
// `interleave.attempt.drawn`, between `created` {id}, `planning` {} and
// `ended` {status, message, versions, seconds}. After `reconnecting` {} they begin again. While a
// request waits, there may be `queued` {position, expected_seconds}.

import { ApiError, call, getJson, post } from "./api.js";
import { sentence } from "./dom.js";
import { reconnecting } from "./reconnect.js";

const ENDINGS = new Set(["response.completed", "response.incomplete", "response.failed"]);
const QUEUE_INTERVALS = [500, 2000]; // milliseconds; the last one repeats
const OWN_EVENTS = { "Interleave-Events": "true" };
// By the first characters of their base64.
const IMAGE_FORMATS = { iVBOR: "png", "/9j/": "jpeg", UklGR: "webp", R0lGO: "gif" };

/**
 * Starts a generation and yields its events; a service that is restarted continues it.
 * @param {{text: string, inputImages: string[], model?: string, options: object, stored: boolean,
 *   follows?: {id: string}, metadata?: object}} request
 *   inputImages: data URIs; stored: it goes on when nobody listens; follows: the response before
 * @param {AbortSignal} signal ends the listening
 */
export async function* generate(request, signal) {
  const headers = { "Idempotency-Key": randomKey(), ...OWN_EVENTS };
  const send = () => convert(post("v1/responses", bodyOf(request), signal, headers));
  yield* withQueue(reconnecting(send, signal));
}

/** All events of a generation, from its first one; of a running one as they happen. */
export async function* follow(id, signal) {
  const open = () => call(`${pathOf(id)}?stream=true`, { headers: OWN_EVENTS, signal });
  yield* withQueue(reconnecting(() => convert(open(), true), signal));
}

/** Ends a generation; returns when it has ended. */
export const cancel = (id) => post(`${pathOf(id)}/cancel`, {});

/** The events, with `queued` between `created` and what comes next. */
async function* withQueue(events) {
  let next = events.next();
  let waiting = null; // the id of a request of which nothing is known yet
  for (let polls = 0; ; polls += 1) {
    const delay = QUEUE_INTERVALS[Math.min(polls, QUEUE_INTERVALS.length - 1)];
    const result = await (waiting ? Promise.race([next, timer(delay)]) : next);
    if (!result) {
      const queue = await queueOf(waiting);
      if (queue) yield { type: "queued", ...queue };
      continue;
    }
    if (result.done) return;
    polls = -1;
    waiting = result.value.type === "created" ? result.value.id : null;
    yield result.value;
    next = events.next();
  }
}

const timer = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));

/** The place of a request in the queue, if it is still there. */
async function queueOf(id) {
  const response = await getJson(pathOf(id)).catch(() => null);
  return response?.status === "queued" ? response.interleave.queue : null;
}

const pathOf = (id) => `v1/responses/${encodeURIComponent(id)}`;

/** `crypto.randomUUID` exists on HTTPS and on this machine only. */
const randomKey = () =>
  Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) =>
    byte.toString(16).padStart(2, "0"),
  ).join("");

/**
 * The events above, from the promise of a stream of the Responses API.
 * @param {boolean} joined `created` says how many seconds ago it was
 */
async function* convert(opened, joined = false) {
  const response = await opened;
  const uris = new Map(); // item and attempt -> an image that came before its event
  for await (const event of readEvents(response)) {
    if (event.type === "response.created") {
      const { id, created_at: created } = event.response;
      yield { type: "created", id, ...(joined && { seconds: timeOf(response) - created }) };
    } else if (event.type === "response.in_progress") {
      yield { type: "planning" };
    } else if (event.type === "response.image_generation_call.partial_image") {
      uris.set(`${event.item_id}/${event.partial_image_index}`, uriOf(event.partial_image_b64));
    } else if (event.type === "interleave.attempt.drawn") {
      const key = `${event.item_id}/${event.iteration}`;
      yield { ...event, uri: uris.get(key) };
      uris.delete(key);
    } else if (event.type.startsWith("interleave.")) {
      yield event;
    } else if (ENDINGS.has(event.type)) {
      yield endOf(event.response);
      return;
    } else if (event.type === "error") {
      throw new ApiError(sentence(event.message));
    }
  }
  throw new ApiError("The connection was closed too early.", { temporary: true });
}

/** Seconds since 1970 by the clock of the service. */
const timeOf = (response) => Date.parse(response.headers.get("Date") ?? Date()) / 1000;

/** Server-sent events of a response, parsed; EventSource cannot read the response of a POST. */
async function* readEvents(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  try {
    for (;;) {
      const { value, done } = await reader.read().catch(lostConnection);
      if (done) return;
      const blocks = (rest + value).split(/\r?\n\r?\n/);
      rest = blocks.pop();
      yield* blocks
        .map(dataOf)
        .filter((data) => data && data !== "[DONE]")
        .map(JSON.parse);
    }
  } finally {
    reader.cancel().catch(() => {}); // closes the connection if the events are not read to the end
  }
}

function lostConnection(error) {
  if (error.name === "AbortError") throw error;
  throw new ApiError("The connection was lost.", { temporary: true });
}

const dataOf = (block) =>
  block
    .split(/\r?\n/)
    .filter((line) => line.startsWith("data:"))
    .map((line) => line.slice(5).trimStart())
    .join("\n");

function endOf({ interleave, error, status, created_at: started, completed_at: ended }) {
  return {
    type: "ended",
    status: interleave?.status ?? status,
    message: error?.message ?? null,
    versions: interleave?.versions ?? {},
    seconds: ended ? ended - started : null,
  };
}

const bodyOf = ({ text, inputImages, model, options, stored, follows, metadata }) => ({
  model,
  input: [{ role: "user", content: [...inputImages.map(imagePart), { type: "input_text", text }] }],
  stream: true,
  background: stored,
  store: stored,
  previous_response_id: follows?.id,
  metadata,
  interleave: options,
});

const imagePart = (uri) => ({ type: "input_image", image_url: uri, detail: "auto" });

function uriOf(base64) {
  const format = Object.entries(IMAGE_FORMATS).find(([start]) => base64.startsWith(start))?.[1];
  return `data:image/${format ?? "png"};base64,${base64}`;
}
