"""Response and request formats of both providers and of the images API."""

import base64
import json
from dataclasses import dataclass
from typing import Any

from aiohttp import web

from warehouse import EncodedImage

Parts = tuple[list[str], list[EncodedImage]]


@dataclass
class OpenAI:
    model: str

    def text(self, text: str, **message: Any) -> Any:
        choice = {
            "index": 0,
            "finish_reason": "stop",
            "message": {"role": "assistant", "content": text, **message},
        }
        usage = {"prompt_tokens": 1000, "completion_tokens": 100, "total_tokens": 1100}
        head = {"id": "c1", "object": "chat.completion", "created": 0, "model": self.model}
        return {**head, "choices": [choice], "usage": usage}

    def json(self, content: Any) -> Any:
        return self.text(json.dumps(content))

    def refusal(self) -> Any:
        return self.text("", refusal="I would rather not")

    def empty(self) -> Any:
        return {**self.text(""), "choices": []}

    def error(self, _status: int, message: str) -> Any:
        return {"error": {"message": message, "code": None, "type": "x"}}


class Images(OpenAI):
    returns_image = True

    def __init__(self) -> None:
        super().__init__("images")

    def image(self, image: EncodedImage) -> Any:
        return {"created": 0, "data": [{"b64_json": base64.b64encode(image.data).decode()}]}

    def text(self, text: str, **message: Any) -> Any:
        return {"created": 0, "data": [{"b64_json": text}]}

    def empty(self) -> Any:
        return {"created": 0, "data": []}


@dataclass
class Gemini:
    returns_image: bool

    def _content(self, parts: list[Any], finish: str = "STOP") -> Any:
        content = {"role": "model", "parts": parts}
        usage = {"promptTokenCount": 1000, "candidatesTokenCount": 60, "thoughtsTokenCount": 40}
        candidate = {"content": content, "finishReason": finish, "index": 0}
        return {"candidates": [candidate], "usageMetadata": usage}

    def text(self, text: str) -> Any:
        return self._content([{"text": text}])

    def json(self, content: Any) -> Any:
        return self.text(json.dumps(content))

    def image(self, image: EncodedImage) -> Any:
        data = base64.b64encode(image.data).decode()
        return self._content([{"inlineData": {"mimeType": "image/png", "data": data}}])

    def refusal(self) -> Any:
        return self._content([], "PROHIBITED_CONTENT")

    def empty(self) -> Any:
        return {"candidates": []}

    def error(self, status: int, message: str) -> Any:
        return {"error": {"code": status, "message": message, "status": "X"}}


def openai_parts(messages: list[Any]) -> Parts:
    parts = [p for m in messages if m["role"] == "user" for p in m["content"]]
    urls = [p["image_url"]["url"] for p in parts if p["type"] == "image_url"]
    images = [EncodedImage(base64.b64decode(url.split(",", 1)[1])) for url in urls]
    return [p["text"] for p in parts if p["type"] == "text"], images


async def image_request(request: web.Request) -> tuple[dict[str, Any], list[EncodedImage]]:
    """Fields and images of a JSON body or of a form with files."""
    if request.content_type == "application/json":
        return await request.json(), []
    form = await request.post()
    files = [value for value in form.values() if isinstance(value, web.FileField)]
    fields = {name: value for name, value in form.items() if isinstance(value, str)}
    images = [EncodedImage(file.file.read()) for file in files]
    return fields | {"images": [image.sha256 for image in images]}, images


def gemini_parts(contents: list[Any]) -> Parts:
    parts = [p for c in contents if c["role"] == "user" for p in c["parts"]]
    data = [p["inlineData"]["data"] for p in parts if "inlineData" in p]
    images = [EncodedImage(base64.urlsafe_b64decode(d + "==")) for d in data]
    return [p["text"] for p in parts if "text" in p], images


def is_white(image: EncodedImage) -> bool:
    return image.image.getextrema() == ((255, 255),) * 3
