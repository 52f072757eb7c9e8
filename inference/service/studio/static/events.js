// From a request to the events of its generation, live or replayed by the service.
//
// They are the extension's own events (`interleave.*`), with a `uri` added to
// `interleave.attempt.drawn`, between `begun` {id}, `planning` {} and
// `ended` {status, message, versions}.

import { ApiError, call, post } from "./api.js";

const ENDINGS = new Set(["response.completed", "response.incomplete", "response.failed"]);
const OWN_EVENTS = { "Interleave-Events": "true" };
// By the first characters of their base64.
const IMAGE_FORMATS = { iVBOR: "png", "/9j/": "jpeg", UklGR: "webp", R0lGO: "gif" };

/**
 * Starts a generation and yields its events.
 * @param {{text: string, pictures: string[], options: object}} request pictures: data URIs
 * @param {AbortSignal} signal cancels it, also in the service
 */
export async function* generate(request, signal) {
  let id = null;
  const cancel = () => id && post(`${pathOf(id)}/cancel`, {}).catch(() => {});
  signal.addEventListener("abort", cancel, { once: true });
  try {
    for await (const event of convert(await start(request, signal))) {
      id ??= event.id;
      yield event;
    }
  } finally {
    signal.removeEventListener("abort", cancel);
  }
}

/** All events of a generation, from its first one; of a running one as they happen. */
export async function* follow(id, signal) {
  yield* convert(await call(`${pathOf(id)}?stream=true`, { headers: OWN_EVENTS, signal }));
}

const start = (request, signal) => post("v1/responses", bodyOf(request), signal, OWN_EVENTS);

const pathOf = (id) => `v1/responses/${encodeURIComponent(id)}`;

/** The events above, from a stream of the Responses API. */
async function* convert(response) {
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
      throw new ApiError(event.message);
    }
  }
  throw new ApiError("The connection was closed before the story was finished.");
}

/** Server-sent events of a response, parsed; EventSource cannot read the response of a POST. */
async function* readEvents(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  try {
    for (;;) {
      const { value, done } = await reader.read();
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

const bodyOf = ({ text, pictures, options }) => ({
  input: [{ role: "user", content: [...pictures.map(imagePart), { type: "input_text", text }] }],
  stream: true,
  interleave: options,
});

const imagePart = (uri) => ({ type: "input_image", image_url: uri, detail: "auto" });

function uriOf(base64) {
  const format = Object.entries(IMAGE_FORMATS).find(([start]) => base64.startsWith(start))?.[1];
  return `data:image/${format ?? "png"};base64,${base64}`;
}
