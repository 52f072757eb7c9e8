"""The batch APIs of the server in `faulty_provider.py`."""

import json
from typing import Any

from aiohttp import web

from tests.inference.backends.providers.api_formats import (
    Gemini,
    OpenAI,
    Parts,
    gemini_parts,
    openai_parts,
)


class BatchServer:
    """Both providers' batch APIs: answers at once, reports a batch as done after some polls."""

    def __init__(self, handler: Any, provider: Any) -> None:
        self._handler, self._provider = handler, provider
        self._files: dict[str, str] = {}

    def routes(self) -> list[web.RouteDef]:
        return [
            web.post("/v1/files", self.upload),
            web.get("/v1/files/{id}/content", self.content),
            web.post("/v1/batches", self.create),
            web.get("/{version}/batches", self.list_batches),
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
        name = f"batch-{len(self._provider.batches)}"
        given = {key: body[key] for key in ("endpoint", "input_file_id", "metadata")}
        head = {"id": name, "object": "batch", "completion_window": "24h", "created_at": 0}
        state = {"output_file_id": output, "polls": 0, "size": len(answers)}
        self._provider.batches[name] = head | given | state
        return web.json_response(self._openai_state(name, polled=False))

    async def list_batches(self, request: web.Request) -> web.Response:
        """Newest first, for either provider."""
        names = list(reversed(self._provider.batches))
        if request.headers.get("x-goog-api-key"):
            return web.json_response({"operations": [self._gemini_state(n, False) for n in names]})
        data = [self._openai_state(name, polled=False) for name in names]
        return web.json_response({"object": "list", "data": data, "has_more": False})

    async def get(self, request: web.Request) -> web.Response:
        name = request.match_info["id"]
        if request.headers.get("x-goog-api-key"):
            return web.json_response(self._gemini_state(f"batches/{name}", True))
        return web.json_response(self._openai_state(name, polled=True))

    async def gemini(self, request: web.Request) -> web.Response:
        batch = (await request.json())["batch"]
        requests = batch["inputConfig"]["requests"]["requests"]
        name = f"batches/b{len(self._provider.batches)}"
        self._provider.batches[name] = {
            "display": batch["displayName"],
            "answers": [await self._gemini_line(line) for line in requests],
            "polls": 0,
            "size": len(requests),
        }
        return web.json_response(self._gemini_state(name, False))

    async def _openai_line(self, line: Any) -> Any:
        body = line["body"]
        answer = await self._answer(body, OpenAI(body["model"]), openai_parts(body["messages"]))
        return {"id": "x", "custom_id": line["custom_id"], **answer}

    async def _gemini_line(self, line: Any) -> Any:
        asked = line["request"]
        answer = await self._answer(asked, Gemini(False), gemini_parts(asked["contents"]))
        body = answer["response"] and {"response": answer["response"]["body"]}
        return {"metadata": line["metadata"], **(body or {"error": answer["error"]})}

    async def _answer(self, body: Any, api: Any, parts: Parts) -> Any:
        kind = self._provider.schedule.next()
        self._provider.outcomes[kind or "ok"] += 1
        if kind == "error":
            return {"response": None, "error": {"code": 13, "message": "lost"}}
        if kind == "empty":
            return {"response": {"status_code": 200, "body": api.empty()}, "error": None}
        self._provider.answered[json.dumps(body, sort_keys=True)] += 1
        content = await self._handler.answer(api, parts)
        return {"response": {"status_code": 200, "body": content}, "error": None}

    def _done(self, name: str, polled: bool) -> tuple[dict[str, Any], bool]:
        batch = self._provider.batches[name]
        batch["polls"] += polled
        return batch, batch["polls"] > self._provider.polls

    def _openai_state(self, name: str, polled: bool) -> Any:
        batch, done = self._done(name, polled)
        return batch | {"status": "completed" if done else "in_progress"}

    def _gemini_state(self, name: str, polled: bool) -> Any:
        batch, done = self._done(name, polled)
        state = "BATCH_STATE_SUCCEEDED" if done else "BATCH_STATE_RUNNING"
        metadata: dict[str, Any] = {"displayName": batch["display"], "state": state}
        if done:
            metadata["output"] = {"inlinedResponses": {"inlinedResponses": batch["answers"]}}
        return {"name": name, "metadata": metadata}
