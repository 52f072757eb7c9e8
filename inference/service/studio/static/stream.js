// Server-sent events of an answer to a POST, which EventSource cannot make.

/** The events of a streamed answer, parsed. */
export async function* events(response) {
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
    reader.cancel().catch(() => {}); // whoever stops reading does not want the rest
  }
}

const dataOf = (block) =>
  block
    .split(/\r?\n/)
    .filter((line) => line.startsWith("data:"))
    .map((line) => line.slice(5).trimStart())
    .join("\n");
