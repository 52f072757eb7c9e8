// Calls of the service, with the API key where one is required; errors as readable messages.

import { sentence } from "./dom.js";
import { currentKey, requestKey } from "./key.js";

export class ApiError extends Error {
  /** @param {{status?: number, temporary?: boolean}} more temporary: a later call may succeed */
  constructor(message, { status = null, temporary = false } = {}) {
    super(message);
    Object.assign(this, { status, temporary });
  }
}

/**
 * A successful response of the service; asks the user for a key where one is missing or wrong.
 * @throws {ApiError} any other response
 */
export async function call(path, options = {}) {
  for (;;) {
    const key = currentKey();
    const response = await send(path, options, key);
    if (response.ok) return response;
    if (response.status !== 401 || !(await requestKey(key))) throw await errorOf(response);
  }
}

export const getJson = async (path, options) => (await call(path, options)).json();

export function post(path, body, signal, more = {}) {
  const headers = { "Content-Type": "application/json", ...more };
  return call(path, { method: "POST", headers, body: JSON.stringify(body), signal });
}

async function send(path, options, key) {
  const headers = { ...options.headers, ...(key ? { Authorization: `Bearer ${key}` } : {}) };
  try {
    return await fetch(path, { ...options, headers });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError("The service can't be reached. Is it running?", { temporary: true });
  }
}

const TEMPORARY = new Set([429, 502, 503, 504]);

async function errorOf(response) {
  const seconds = Number(response.headers.get("Retry-After"));
  const hint = seconds ? ` Try again in ${Math.ceil(seconds)} s.` : "";
  const { status } = response;
  return new ApiError((await messageOf(response)) + hint, {
    status,
    temporary: TEMPORARY.has(status),
  });
}

async function messageOf(response) {
  try {
    const message = (await response.json()).error.message;
    return typeof message === "string" ? sentence(message) : fallback(response);
  } catch {
    return fallback(response);
  }
}

const fallback = (response) => `The service returned an error (${response.status}).`;

const loadedImages = new Map(); // address -> promise of a data URI

/**
 * A stored image as a data URI: the request of an <img> would not carry the API key.
 * @param {string} owner whose image it is: "generations/ID" or "reviews/SHARD"
 */
export function loadImage(owner, sha256) {
  const path = `studio/${owner}/pictures/${encodeURIComponent(sha256)}`;
  if (!loadedImages.has(path)) {
    const loading = fetchPicture(path);
    loadedImages.set(path, loading);
    loading.catch(() => loadedImages.delete(path));
  }
  return loadedImages.get(path);
}

const fetchPicture = async (path) => dataUri(await (await call(path)).blob());

/** The bytes of a file or a response as a data URI. */
export function dataUri(blob) {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(reader.result);
    reader.onerror = () => reject(new ApiError(`${blob.name ?? "An image"} can't be read.`));
    reader.readAsDataURL(blob);
  });
}
