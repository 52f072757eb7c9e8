// From a request to the events of its story, told live or kept from earlier.
//
// Both are the extension's own events (`interleave.*`), where `interleave.attempt.drawn` has got a
// `uri` to show, between `begun` {id}, `planning` {} and `ended` {status, message, versions}.

import { ApiError, call, picture, post } from "./api.js";
import { events } from "./stream.js";

const OVER = new Set(["response.completed", "response.incomplete", "response.failed"]);

/**
 * Has a request told, and yields what happens.
 * @param {{text: string, pictures: string[], rules: object}} request pictures: data URIs
 * @param {AbortSignal} signal stops it, at the service as well
 */
export async function* tell(request, signal) {
  let begun = null;
  const cancel = () => begun && post(`${pathOf(begun)}/cancel`, {}).catch(() => {});
  signal.addEventListener("abort", cancel, { once: true });
  try {
    for await (const event of told(await post("v1/responses", bodyOf(request), signal))) {
      begun ??= event.id;
      yield event;
    }
  } finally {
    signal.removeEventListener("abort", cancel);
  }
}

/** Watches a story that is being told, from its beginning on. */
export async function* follow(id, signal) {
  yield* told(await call(`${pathOf(id)}?stream=true`, { signal }));
}

const pathOf = (id) => `v1/responses/${encodeURIComponent(id)}`;

/** The events of a stream of the Responses API. */
async function* told(stream) {
  const uris = new Map(); // item and attempt -> a picture that has come ahead of its event
  for await (const event of events(stream)) {
    if (event.type === "response.created") {
      yield { type: "begun", id: event.response.id };
    } else if (event.type === "response.in_progress") {
      yield { type: "planning" };
    } else if (event.type === "response.image_generation_call.partial_image") {
      uris.set(`${event.item_id}/${event.partial_image_index}`, uriOf(event.partial_image_b64));
    } else if (event.type === "interleave.attempt.drawn") {
      const place = `${event.item_id}/${event.iteration}`;
      yield { ...event, uri: uris.get(place) };
      uris.delete(place);
    } else if (event.type.startsWith("interleave.")) {
      yield event;
    } else if (OVER.has(event.type)) {
      yield endOf(event.response);
      return;
    } else if (event.type === "error") {
      throw new ApiError(event.message);
    }
  }
  throw new ApiError("The connection ended before the story did.");
}

/** The events of a story that the service has kept. */
export async function* replay(response) {
  const told = response.interleave;
  yield { type: "begun", id: response.id };
  if (told.steps.length)
    yield {
      type: "interleave.planned",
      reasoning: told.reasoning ?? "",
      steps: told.steps.map(planned),
    };
  for (const step of told.steps) yield* replayed(step);
  yield endOf(response);
}

const planned = ({ number, name, words, prompt }) => ({
  number,
  name,
  words,
  draws: prompt !== null,
});

async function* replayed({ number: step, begun, accepted, iteration, attempts }) {
  if (!begun) return;
  yield { type: "interleave.step.started", step };
  for (const attempt of attempts) {
    yield {
      type: "interleave.attempt.drawn",
      step,
      ...attempt,
      uri: await picture(attempt.picture),
    };
    if (attempt.accepted !== null) yield { type: "interleave.attempt.judged", step, ...attempt };
  }
  if (accepted !== null) yield { type: "interleave.step.settled", step, accepted, iteration };
}

function endOf({ interleave, error, status }) {
  return {
    type: "ended",
    status: interleave?.status ?? status,
    message: error?.message ?? null,
    versions: interleave?.versions ?? {},
  };
}

const bodyOf = ({ text, pictures, rules }) => ({
  input: [{ role: "user", content: [...pictures.map(imagePart), { type: "input_text", text }] }],
  stream: true,
  interleave: rules,
});

const imagePart = (uri) => ({ type: "input_image", image_url: uri, detail: "auto" });

/** Formats tell themselves apart by their first bytes. */
const FORMATS = { iVBOR: "png", "/9j/": "jpeg", UklGR: "webp", R0lGO: "gif" };

function uriOf(base64) {
  const format = Object.entries(FORMATS).find(([start]) => base64.startsWith(start))?.[1] ?? "png";
  return `data:image/${format};base64,${base64}`;
}
