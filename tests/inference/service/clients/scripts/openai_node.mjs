// OpenAI's client for Node: its helper methods.

import OpenAI, { NotFoundError, toFile } from "openai";
import { zodResponseFormat, zodTextFormat } from "openai/helpers/zod";
import { z } from "zod";
import { QUESTION, URL, call, report } from "./calls.mjs";

const client = new OpenAI({ baseURL: URL, apiKey: "none", maxRetries: 0 });
const model = "interleave";
const ask = { model, input: QUESTION };
const chat = { model, messages: [{ role: "user", content: QUESTION }] };
const House = z.object({ colour: z.string() });
const parameters = { type: "object", properties: {}, additionalProperties: false };
const imagesOf = (response) => response.output.filter((item) => item.type === "image_generation_call");

const first = await client.responses.create(ask);

async function collect(stream) {
  const events = [];
  for await (const event of stream) events.push(event);
  return events;
}

await call("responses.create", () => first.output_text && first.usage && first.completed_at);

await call("responses.create(stream)", async () => {
  const events = await collect(await client.responses.create({ ...ask, stream: true }));
  return events.at(-1).type === "response.completed";
});

await call("responses.stream", async () => {
  const events = [];
  const stream = client.responses.stream(ask).on("event", (event) => events.push(event));
  const final = await stream.finalResponse();
  return final.output_text && events.every((event, n) => event.sequence_number === n);
});

await call("responses.stream(response_id)", async () => {
  const events = await collect(client.responses.stream({ response_id: first.id, starting_after: 3 }));
  return events.length && events.every((event, n) => event.sequence_number === n + 4);
});

await call("responses.create(background)", async () => {
  let response = await client.responses.create({ ...ask, background: true });
  while (["queued", "in_progress"].includes(response.status)) {
    response = await client.responses.retrieve(response.id);
  }
  return response.status === "completed";
});

await call("responses.retrieve", async () => (await client.responses.retrieve(first.id)).output_text);

await call("responses.cancel", async () => (await client.responses.cancel(first.id)).status);

await call("responses.inputItems.list", async () => {
  const items = await collect(client.responses.inputItems.list(first.id));
  return items[0].content[0].text === QUESTION;
});

await call("asResponse, withResponse", async () => {
  const raw = await client.responses.create(ask).asResponse();
  const { data } = await client.responses.create(ask).withResponse();
  return raw.status === 200 && data.output_text;
});

await call("previous_response_id", async () => {
  const input = "Add a yellow sun";
  const more = await client.responses.create({ model, input, previous_response_id: first.id });
  return more.interleave.input_images.length === 1;
});

await call("image_generation_call by id", async () => {
  const words = { role: "user", content: [{ type: "input_text", text: "Add a yellow sun" }] };
  const reference = { type: "image_generation_call", id: imagesOf(first)[0].id };
  const tools = [{ type: "image_generation" }];
  const edit = await client.responses.create({ model, input: [words, reference], tools });
  return edit.interleave.input_images.length === 1;
});

await call("tool image_generation", async () => {
  const tools = [{ type: "image_generation", output_format: "webp" }];
  const response = await client.responses.create({ ...ask, tools });
  return imagesOf(response).every(({ result }) => result.startsWith("UklGR"));
});

await call("partial_images", async () => {
  const tools = [{ type: "image_generation", partial_images: 1 }];
  const events = await collect(await client.responses.create({ ...ask, tools, stream: true }));
  return events.some((event) => event.type.endsWith("partial_image"));
});

await call("files", async () => {
  const data = Buffer.from(imagesOf(first)[0].result, "base64");
  const upload = await toFile(data, "house.png", { type: "image/png" });
  const file = await client.files.create({ file: upload, purpose: "vision" });
  const content = [
    { type: "input_image", file_id: file.id, detail: "auto" },
    { type: "input_text", text: "Add a yellow sun" },
  ];
  const response = await client.responses.create({ model, input: [{ role: "user", content }] });
  const same = await client.files.waitForProcessing(file.id);
  const listed = await collect(client.files.list());
  const bytes = Buffer.from(await (await client.files.content(file.id)).arrayBuffer());
  const deleted = (await client.files.delete(file.id)).deleted;
  const known = same.id === file.id && listed.some(({ id }) => id === file.id);
  return known && bytes.equals(data) && deleted && response.interleave.input_images.length === 1;
});

await call("responses.parse", () =>
  client.responses.parse({ ...ask, text: { format: zodTextFormat(House, "house") } }),
);

await call("function tools", () =>
  client.responses.create({
    ...ask,
    tools: [{ type: "function", name: "f", parameters, strict: true }],
  }),
);

await call("responses.compact", () => client.responses.compact(ask));

await call("responses.inputTokens.count", () => client.responses.inputTokens.count(ask));

await call("conversations", () => client.conversations.create({}));

await call("responses.delete", async () => {
  await client.responses.delete(first.id);
  return client.responses.retrieve(first.id).catch((error) => error instanceof NotFoundError);
});

await call("chat.completions.create", async () => {
  const completion = await client.chat.completions.create(chat);
  return completion.choices[0].message.content && completion.usage;
});

await call("chat.completions.create(stream)", async () => {
  const chunks = await collect(await client.chat.completions.create({ ...chat, stream: true }));
  return chunks.map((chunk) => chunk.choices[0].delta.content ?? "").join("");
});

await call("chat.completions.stream", () => client.chat.completions.stream(chat).finalContent());

await call("chat.completions.parse", () =>
  client.chat.completions.parse({ ...chat, response_format: zodResponseFormat(House, "house") }),
);

await call("chat.completions.runTools", async () => {
  const callback = () => "red";
  const definition = { name: "f", function: callback, parameters, description: "A colour" };
  const tools = [{ type: "function", function: definition }];
  return client.chat.completions.runTools({ ...chat, tools }).finalContent();
});

await call("images.generate", async () => {
  const answer = await client.images.generate({ model, prompt: QUESTION });
  return answer.data[0].b64_json && answer.usage;
});

await call("images.edit", async () => {
  const data = Buffer.from(imagesOf(first)[0].result, "base64");
  const image = await toFile(data, "house.png", { type: "image/png" });
  const answer = await client.images.edit({ model, image, prompt: "Add a yellow sun" });
  return answer.interleave.input_images.length === 1 && answer.data[0].b64_json;
});

await call("models", async () => {
  const models = await collect(client.models.list());
  return (await client.models.retrieve(models[0].id)).id;
});

report();
