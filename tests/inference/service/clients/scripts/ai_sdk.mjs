// Vercel's AI SDK with its provider for OpenAI, with both APIs.

import { createOpenAI } from "@ai-sdk/openai";
import { Output, experimental_generateImage as generateImage, generateText, streamText, tool } from "ai";
import { z } from "zod";
import { QUESTION, URL, call, report } from "./calls.mjs";

globalThis.AI_SDK_LOG_WARNINGS = false;

const openai = createOpenAI({ baseURL: URL, apiKey: "none" });
const settings = { prompt: QUESTION, maxRetries: 0 };
const colour = tool({ description: "A colour", inputSchema: z.object({}), execute: () => "red" });
const schema = z.object({ colour: z.string() });

for (const [name, model] of [
  ["chat", openai.chat("interleave")],
  ["responses", openai.responses("interleave")],
]) {
  await call(`${name}: generateText`, async () => {
    const { text, usage } = await generateText({ ...settings, model, system: "Draw." });
    return text && usage.totalTokens !== undefined;
  });

  await call(`${name}: streamText`, async () => {
    let text = "";
    const result = streamText({ ...settings, model, onError: () => {} });
    for await (const part of result.fullStream) {
      if (part.type === "error") throw part.error;
      if (part.type === "text-delta") text += part.text;
    }
    return text;
  });

  await call(`${name}: conversation`, async () => {
    const messages = [{ role: "user", content: QUESTION }];
    const first = await generateText({ model, messages, maxRetries: 0 });
    messages.push(...first.response.messages, { role: "user", content: "Add a yellow sun" });
    return (await generateText({ model, messages, maxRetries: 0 })).text;
  });

  await call(`${name}: Output.object`, async () => {
    const output = Output.object({ schema });
    return (await generateText({ ...settings, model, output })).output;
  });

  await call(`${name}: tools`, () => generateText({ ...settings, model, tools: { colour } }));
}

const model = openai.responses("interleave");
const images = { image_generation: openai.tools.imageGeneration({ outputFormat: "webp" }) };

await call("responses: tool image_generation", async () => {
  const { staticToolResults } = await generateText({ ...settings, model, tools: images });
  return staticToolResults.length && staticToolResults.every(({ output }) => output.result);
});

await call("responses: tool image_generation, streamed", async () => {
  const result = streamText({ ...settings, model, tools: images });
  let last;
  for await (const part of result.fullStream) {
    if (part.type === "error") throw part.error;
    if (part.type === "tool-result") last = part.output.result;
  }
  return last;
});

await call("responses: conversation about an image", async () => {
  const messages = [{ role: "user", content: QUESTION }];
  const first = await generateText({ model, messages, tools: images, maxRetries: 0 });
  messages.push(...first.response.messages, { role: "user", content: "Add a yellow sun" });
  return (await generateText({ model, messages, tools: images, maxRetries: 0 })).text;
});

await call("responses: image input", async () => {
  const { staticToolResults } = await generateText({ ...settings, model, tools: images });
  const image = Buffer.from(staticToolResults[0].output.result, "base64");
  const content = [{ type: "text", text: "Add a yellow sun" }, { type: "image", image }];
  const messages = [{ role: "user", content }];
  return (await generateText({ model, messages, maxRetries: 0 })).text;
});

await call("generateImage", async () => {
  const settings = { prompt: QUESTION, maxRetries: 0 };
  return (await generateImage({ ...settings, model: openai.image("interleave") })).image.base64;
});

report();
