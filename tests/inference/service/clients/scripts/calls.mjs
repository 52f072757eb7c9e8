// Runs the calls of a client one after the other and prints how each one ended, as JSON;
// see calls.py for the outcomes.

export const URL = process.argv[2];
export const QUESTION = "A red house beside a tree";

const REFUSED = /"?([a-z_.0-9]+): (?:(?!: ).)*? not supported here/;
const outcomes = {};

export async function call(name, run) {
  try {
    outcomes[name] = (await run()) ? "works" : "failed: empty";
  } catch (error) {
    outcomes[name] = outcomeOf(error);
  }
}

export const report = () => console.log(JSON.stringify(outcomes));

function outcomeOf(error) {
  const text = [error, error.cause, error.lastError].map((each) => each?.message ?? "").join("\n");
  const refused = text.match(REFUSED);
  if (refused) return `refused: ${refused[1]}`;
  if (/Not Found|Method Not Allowed/.test(text)) return "not offered";
  return `failed: ${text}`.slice(0, 300);
}
