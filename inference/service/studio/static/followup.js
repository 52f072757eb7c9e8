// The form under a finished result: what follows it.

import { make, setAlert, submitOnEnter, uniqueId } from "./dom.js";
import { problemOf } from "./settings.js";

/** @param {(text: string) => void} onSend called with what the user wrote */
export function followUpForm(onSend) {
  const id = uniqueId("follow-up");
  const field = make("textarea", { id, rows: 2, placeholder: "Now add a blue house" });
  const help = make("p.help", { id: `${id}-help` }, "Continues from the last image as a new result.");
  field.setAttribute("aria-describedby", help.id);
  const alert = make("p.alert", { role: "alert", hidden: true });
  const button = make("button.button.primary", { type: "submit" }, "Continue");
  const label = make("label", { htmlFor: id }, "What next?");
  const form = make("form.follow-up.card", { autocomplete: "off" }, label, field, help, alert, button);
  field.addEventListener("keydown", submitOnEnter);
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const text = field.value.trim();
    const problem = problemOf(text, []);
    setAlert(alert, problem);
    if (!problem) onSend(text);
  });
  return form;
}
