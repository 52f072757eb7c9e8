"""The loop as one writes it on OpenAI's SDK without this project: it keeps images alone, and
repeats everything after an error."""

import asyncio
import base64
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from openai import AsyncOpenAI


class Script:
    """Turns requests into images in a folder.

    Args:
        limits: concurrent calls of the generator, and of planner and critic.
        texts, formats: what planner and critic are told, and in what form they answer.
        white: the image before the first one.
    """

    def __init__(
        self,
        folder: Path,
        limits: Sequence[int],
        texts: Mapping[str, str],
        formats: Mapping[str, Any],
        white: bytes,
    ) -> None:
        self.folder, self.texts, self.formats, self.white = folder, texts, formats, white
        self.drawing, self.asking = map(asyncio.Semaphore, limits)

    async def run(self, url: str, requests: Sequence[str]) -> None:
        self.client = AsyncOpenAI(base_url=url, api_key="none", max_retries=0)
        await asyncio.gather(*map(self.illustrate, requests))

    async def illustrate(self, request: str) -> None:
        before = b""
        for step in (await self.ask("planner", request))["execution_plan"]:
            goal = prompt = step["prompt"]
            for attempt in range(5):
                image = await self.draw(prompt, before)
                text = f"{goal}\n{prompt if attempt else ''}"
                verdict = await self.ask("critic", text, before or self.white, image)
                if verdict["previous_step_success"]:
                    break
                prompt = verdict["refine_prompt"]
            before = image

    async def ask(self, role: str, text: str, *images: bytes) -> dict[str, Any]:
        urls = [f"data:image/png;base64,{base64.b64encode(image).decode()}" for image in images]
        parts: list[Any] = [{"type": "image_url", "image_url": {"url": url}} for url in urls]
        parts.append({"type": "text", "text": self.texts[role] + text})
        async with self.asking:
            answer = await self.client.chat.completions.create(
                model=role,
                messages=[{"role": "user", "content": parts}],
                response_format=self.formats[role],
            )
        return json.loads(answer.choices[0].message.content or "")

    async def draw(self, prompt: str, before: bytes) -> bytes:
        images, model = self.client.images, "generator"
        async with self.drawing:
            if before:
                answer = await images.edit(model=model, prompt=prompt, image=before)
            else:
                answer = await images.generate(model=model, prompt=prompt)
        image = base64.b64decode((answer.data or [])[0].b64_json or "")
        (self.folder / f"{hash(image)}.png").write_bytes(image)
        return image
