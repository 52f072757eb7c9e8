// From a request to the events of its generation, live or replayed by the service.
//
// They are the extension's own events (`interleave.*`), with a `uri` added to
// `interleave.attempt.drawn`, between `begun` {id}, `planning` {} and
// `ended` {status, message, versions}. After `reconnecting` {} they begin again.

import { ApiError, call, post } from "./api.js";
import { sentence } from "./dom.js";
import { reconnecting } from "./reconnect.js";

const ENDINGS = new Set(["response.completed", "response.incomplete", "response.failed"]);
const OWN_EVENTS = { "Interleave-Events": "true" };
// By the first characters of their base64.
const IMAGE_FORMATS = { iVBOR: "png", "/9j/": "jpeg", UklGR: "webp", R0lGO: "gif" };

/**
 * Starts a generation and yields its events; a service that is restarted continues it.
 * @param {{text: string, pictures: string[], model?: string, options: object}} request
 *   pictures: data URIs
 * @param {AbortSignal} signal cancels it, also in the service
 */
export async function* generate(request, signal) {
  let id = null;
  const headers = { "Idempotency-Key": randomKey(), ...OWN_EVENTS };
  const send = () => convert(post("v1/responses", bodyOf(request), signal, headers));
  const cancel = () => id && post(`${pathOf(id)}/cancel`, {}).catch(() => {});
  signal.addEventListener("abort", cancel, { once: true });
  try {
    for await (const event of reconnecting(send, signal)) {
      id ??= event.id;
      yield event;
    }
  } finally {
    signal.removeEventListener("abort", cancel);
  }
}

/** All events of a generation, from its first one; of a running one as they happen. */
export async function* follow(id, signal) {
  const open = () => call(`${pathOf(id)}?stream=true`, { headers: OWN_EVENTS, signal });
  yield* reconnecting(() => convert(open()), signal);
}

const pathOf = (id) => `v1/responses/${encodeURIComponent(id)}`;

/** `crypto.randomUUID` exists on HTTPS and on this machine only. */
const randomKey = () =>
  Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) =>
    byte.toString(16).padStart(2, "0"),
  ).join("");

/** The events above, from the promise of a stream of the Responses API. */
async function* convert(opened) {
  const response = await opened;
  const uris = new Map(); // item and attempt -> an image that came before its event
  for await (const event of readEvents(response)) {
    if (event.type === "response.created") {
      yield { type: "begun", id: event.response.id };
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

function endOf({ interleave, error, status }) {
  return {
    type: "ended",
    status: interleave?.status ?? status,
    message: error?.message ?? null,
    versions: interleave?.versions ?? {},
  };
}

const bodyOf = ({ text, pictures, model, options }) => ({
  model,
  input: [{ role: "user", content: [...pictures.map(imagePart), { type: "input_text", text }] }],
  stream: true,
  interleave: options,
});

const imagePart = (uri) => ({ type: "input_image", image_url: uri, detail: "auto" });

function uriOf(base64) {
  const format = Object.entries(IMAGE_FORMATS).find(([start]) => base64.startsWith(start))?.[1];
  return `data:image/${format ?? "png"};base64,${base64}`;
}
