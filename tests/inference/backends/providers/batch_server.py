"""The batch APIs of the provider in `weather.py`."""

import json
from typing import Any

from aiohttp import web

from tests.inference.backends.providers.answer_shapes import (
    Gemini,
    OpenAI,
    gemini_parts,
    openai_parts,
)
from warehouse import EncodedImage


class Batches:
    """Both providers' batch APIs: a batch is answered at once, and done after some looks."""

    def __init__(self, handler: Any, seen: Any) -> None:
        self._handler, self._seen = handler, seen
        self._files: dict[str, str] = {}

    def routes(self) -> list[web.RouteDef]:
        return [
            web.post("/v1/files", self.upload),
            web.get("/v1/files/{id}/content", self.content),
            web.post("/v1/batches", self.create),
            web.get("/{version}/batches", self.listed),
            web.get("/{version}/batches/{id}", self.get),
        ]

    async def upload(self, request: web.Request) -> web.Response:
        form = await request.post()
        name = f"file-{len(self._files)}"
        self._files[name] = form["file"].file.read().decode()  # type: ignore[union-attr]
        head = {"object": "file", "bytes": 1, "created_at": 0, "filename": "x", "status": "ok"}
        return web.json_response({"id": name, "purpose": "batch", **head})

    async def content(self, request: web.Request) -> web.Response:
        return web.Response(text=self._files[request.match_info["id"]])

    async def create(self, request: web.Request) -> web.Response:
        body = await request.json()
        lines = map(json.loads, self._files[body["input_file_id"]].splitlines())
        answers = [await self._openai_line(line) for line in lines]
        output = f"file-{len(self._files)}"
        self._files[output] = "\n".join(map(json.dumps, answers))
        name = f"batch-{len(self._seen.batches)}"
        self._seen.batches[name] = {
            "id": name,
            "object": "batch",
            "endpoint": body["endpoint"],
            "completion_window": "24h",
            "created_at": 0,
            "input_file_id": body["input_file_id"],
            "output_file_id": output,
            "metadata": body["metadata"],
            "looks": 0,
            "size": len(answers),
        }
        return web.json_response(self._openai_state(name, looked=False))

    async def listed(self, request: web.Request) -> web.Response:
        """Newest first, for either provider."""
        names = list(reversed(self._seen.batches))
        if request.headers.get("x-goog-api-key"):
            return web.json_response({"operations": [self._gemini_state(n, False) for n in names]})
        data = [self._openai_state(name, looked=False) for name in names]
        return web.json_response({"object": "list", "data": data, "has_more": False})

    async def get(self, request: web.Request) -> web.Response:
        name = request.match_info["id"]
        if request.headers.get("x-goog-api-key"):
            return web.json_response(self._gemini_state(f"batches/{name}", True))
        return web.json_response(self._openai_state(name, looked=True))

    async def gemini(self, request: web.Request) -> web.Response:
        batch = (await request.json())["batch"]
        requests = batch["inputConfig"]["requests"]["requests"]
        name = f"batches/b{len(self._seen.batches)}"
        self._seen.batches[name] = {
            "display": batch["displayName"],
            "answers": [await self._gemini_line(line) for line in requests],
            "looks": 0,
            "size": len(requests),
        }
        return web.json_response(self._gemini_state(name, False))

    async def _openai_line(self, line: Any) -> Any:
        body = line["body"]
        texts, pictures = openai_parts(body["messages"])
        answer = await self._one(body, OpenAI(body["model"]), texts, pictures)
        return {"id": "x", "custom_id": line["custom_id"], **answer}

    async def _gemini_line(self, line: Any) -> Any:
        texts, pictures = gemini_parts(line["request"]["contents"])
        answer = await self._one(line["request"], Gemini(False), texts, pictures)
        body = answer["response"] and {"response": answer["response"]["body"]}
        return {"metadata": line["metadata"], **(body or {"error": answer["error"]})}

    async def _one(
        self, body: Any, api: Any, texts: list[str], pictures: list[EncodedImage]
    ) -> Any:
        kind = self._seen.weather.next()
        self._seen.met[kind or "fine"] += 1
        if kind == "error":
            return {"response": None, "error": {"code": 13, "message": "lost"}}
        if kind == "empty":
            return {"response": {"status_code": 200, "body": api.empty()}, "error": None}
        self._seen.answered[json.dumps(body, sort_keys=True)] += 1
        content = await self._handler._answer(api, texts, pictures)
        return {"response": {"status_code": 200, "body": content}, "error": None}

    def _done(self, name: str, looked: bool) -> tuple[dict[str, Any], bool]:
        batch = self._seen.batches[name]
        batch["looks"] += looked
        return batch, batch["looks"] > self._seen.polls

    def _openai_state(self, name: str, looked: bool) -> Any:
        batch, done = self._done(name, looked)
        return batch | {"status": "completed" if done else "in_progress"}

    def _gemini_state(self, name: str, looked: bool) -> Any:
        batch, done = self._done(name, looked)
        state = "BATCH_STATE_SUCCEEDED" if done else "BATCH_STATE_RUNNING"
        metadata: dict[str, Any] = {"displayName": batch["display"], "state": state}
        if done:
            metadata["output"] = {"inlinedResponses": {"inlinedResponses": batch["answers"]}}
        return {"name": name, "metadata": metadata}
