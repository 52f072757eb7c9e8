// The API key: requested only when the service requires one, stored in this tab only.

import { byId, setAlert } from "./dom.js";

const STORAGE_KEY = "interleave-key";
let pending = null; // the dialog is open

export const currentKey = () => sessionStorage.getItem(STORAGE_KEY);

/**
 * Asks the user for a key, unless it has changed since `used` was rejected.
 * @returns {Promise<boolean>} whether there is a new one to try
 */
export async function requestKey(used) {
  if (currentKey() !== used) return true;
  pending ??= openDialog(used !== null).finally(() => (pending = null));
  return pending;
}

function openDialog(rejected) {
  const dialog = byId("key-dialog");
  const field = byId("key");
  setAlert(byId("key-error"), rejected ? "This key isn't valid." : null);
  field.value = "";
  dialog.returnValue = "";
  byId("key-cancel").onclick = () => dialog.close();
  dialog.showModal();
  return new Promise((resolve) => {
    dialog.addEventListener(
      "close",
      () => {
        const key = dialog.returnValue === "use" && field.value.trim();
        if (key) sessionStorage.setItem(STORAGE_KEY, key);
        field.value = "";
        resolve(Boolean(key));
      },
      { once: true },
    );
  });
}
