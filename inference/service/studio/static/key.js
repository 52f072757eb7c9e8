// The API key: asked for only when the service wants one, kept in this tab only.

import { byId, warn } from "./dom.js";

const PLACE = "interleave-key";
let asking = null;

export const currentKey = () => sessionStorage.getItem(PLACE);

/**
 * Asks for a key, unless another request has got one since `used` was refused.
 * @returns {Promise<boolean>} whether there is one to try now
 */
export async function anotherKey(used) {
  if (currentKey() !== used) return true;
  asking ??= ask(used !== null).finally(() => (asking = null));
  return asking;
}

function ask(refused) {
  const dialog = byId("key-dialog");
  const field = byId("key");
  warn(byId("key-wrong"), refused ? "The service does not know this key." : null);
  field.value = "";
  dialog.returnValue = "";
  byId("key-cancel").onclick = () => dialog.close();
  dialog.showModal();
  return new Promise((resolve) => {
    dialog.addEventListener(
      "close",
      () => {
        const given = dialog.returnValue === "use" && field.value.trim();
        if (given) sessionStorage.setItem(PLACE, given);
        field.value = "";
        resolve(Boolean(given));
      },
      { once: true },
    );
  });
}
