// Calls of the service, with the key where it wants one, and errors as people read them.

import { anotherKey, currentKey } from "./key.js";

export class ApiError extends Error {}

/**
 * An answer of the service; asks for a key and tries again where that is what is missing.
 * @throws {ApiError} anything but a good answer
 */
export async function call(path, options = {}) {
  for (;;) {
    const key = currentKey();
    const response = await reach(path, options, key);
    if (response.ok) return response;
    if (response.status !== 401 || !(await anotherKey(key))) throw await errorOf(response);
  }
}

export const getJson = async (path) => (await call(path)).json();

export function post(path, body, signal) {
  const headers = { "Content-Type": "application/json" };
  return call(path, { method: "POST", headers, body: JSON.stringify(body), signal });
}

async function reach(path, options, key) {
  const headers = { ...options.headers, ...(key ? { Authorization: `Bearer ${key}` } : {}) };
  try {
    return await fetch(path, { ...options, headers });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError("The service cannot be reached. Is it running?");
  }
}

async function errorOf(response) {
  const wait = Number(response.headers.get("Retry-After"));
  const later = wait ? ` Try again in ${Math.ceil(wait)} s.` : "";
  return new ApiError((await messageOf(response)) + later);
}

async function messageOf(response) {
  try {
    const message = (await response.json()).error.message;
    return typeof message === "string" ? message : fallback(response);
  } catch {
    return fallback(response);
  }
}

const fallback = (response) => `The service answered with an error (${response.status}).`;

const pictures = new Map();

/** A stored picture as a data URI: an <img> of its own could not bring the key. */
export function picture(sha256) {
  if (!pictures.has(sha256)) {
    const loading = load(sha256);
    pictures.set(sha256, loading);
    loading.catch(() => pictures.delete(sha256));
  }
  return pictures.get(sha256);
}

const load = async (sha256) =>
  dataUri(await (await call(`studio/pictures/${encodeURIComponent(sha256)}`)).blob());

/** The bytes of a file or an answer as a data URI. */
export function dataUri(blob) {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(reader.result);
    reader.onerror = () => reject(new ApiError(`${blob.name ?? "A picture"} cannot be read.`));
    reader.readAsDataURL(blob);
  });
}
