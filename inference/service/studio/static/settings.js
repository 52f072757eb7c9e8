// What the service offers and permits: limits, defaults, available agents.

import { getJson } from "./api.js";
import { count } from "./dom.js";

const MEBIBYTE = 2 ** 20;
const ENVELOPE_BYTES = 100_000; // of a request's body, besides its text and its images
const TYPE_NAMES = { "image/png": "PNG", "image/jpeg": "JPEG", "image/webp": "WebP" };

/** `StudioSettings` of the OpenAPI document; null until `loadSettings` has ended. */
export let settings = null;

const TIMEOUT = 10_000; // milliseconds; a lost response must not leave the page waiting

export async function loadSettings() {
  settings = await getJson("studio/settings", { signal: AbortSignal.timeout(TIMEOUT) });
}

/** The agents that can be compared; none where there is one only. */
export function comparedModels() {
  const models = settings.models.filter((model) => model.compared);
  return models.length > 1 ? models : [];
}

/** Why the service would reject a request; null: it would not. */
export function problemOf(text, images) {
  const { limits } = settings;
  if (!text) return "Describe in words what you want to see.";
  const length = [...text].length;
  if (length > limits.text)
    return `The text has ${length} characters. The maximum is ${limits.text}.`;
  if (images.length > limits.images)
    return `The request has ${count(images.length, "image")}. The maximum is ${limits.images}.`;
  const bytes = images.reduce((sum, uri) => sum + uri.length, ENVELOPE_BYTES + 4 * length);
  if (images.length && bytes > limits.bytes)
    return `The images have more than ${sizeOf((limits.bytes * 3) / 4)} together. Remove some.`;
  return null;
}

/** Why the service would reject a file as an input image; null: it would not. */
export async function problemOfFile(file) {
  const { image_types: types, limits } = settings;
  if (!types.includes(file.type)) return `${file.name} isn't a ${namesOf(types)} image.`;
  if (file.size > limits.image_bytes)
    return `${file.name} has ${sizeOf(file.size)}. The maximum is ${sizeOf(limits.image_bytes)}.`;
  const bitmap = await createImageBitmap(file).catch(() => null);
  if (!bitmap) return `${file.name} can't be read as an image.`;
  const pixels = bitmap.width * bitmap.height;
  bitmap.close();
  if (pixels > limits.pixels)
    return `${file.name} has ${pixels} pixels. The maximum is ${limits.pixels}.`;
  return null;
}

/** "PNG, JPEG or WebP". */
function namesOf(types) {
  const names = types.map((type) => TYPE_NAMES[type] ?? type);
  return `${names.slice(0, -1).join(", ")} or ${names.at(-1)}`;
}

const sizeOf = (bytes) =>
  bytes < MEBIBYTE
    ? `${Math.ceil(bytes / 1024)} KiB`
    : `${Number((bytes / MEBIBYTE).toFixed(1))} MiB`;
