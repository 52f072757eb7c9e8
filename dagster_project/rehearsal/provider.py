"""A local server that speaks the APIs of hosted models, and answers that stand in for theirs."""

import base64
import hashlib
import json
import random
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from PIL import Image

from inference.agent_prompts.formatting import PLAN_KEY, REFINE_KEY, SUCCESS_KEY
from warehouse import EncodedImage

_THOUGHT = "rehearsal"
_DRAWN = "Draw a meadow with a red house at the bottom left."
_ADDED = "Add a green tree at the bottom right. Keep everything else unchanged."
_REWRITTEN = "Draw a meadow with a large red house at the bottom left."
_ACCEPTED = 0.5  # share of verdicts
_BEST, _WORST = 10.0, 4.0  # scores of an attempt
_SEMANTICS, _QUALITY = ("edit_success", "over_edit"), ("naturalness", "artifacts")
_SIDE = 192
_PATCHES = 4
_SIZE = re.compile(rb"(\d{2,4})x(\d{2,4})")
_CRITERION = re.compile(r"^\s*(\d+)\.", re.M)
# In the prompts of judges (`inference/agent_prompts`), and in instructions without a schema.
_CRITERIA, _SCHEMA_LABEL = "Criteria", "Its JSON schema: "
_TOKENS = {"prompt": 1000, "completion": 100}


def answer(fields: frozenset[str], chance: random.Random, criteria: int = 1) -> dict[str, Any]:
    """An answer with these fields, beside `reasoning`; of other fields it is empty.

    Args:
        fields: properties of the answer's schema (`structured.py` in `backends/providers`).
        criteria: how many are to be judged.
    """
    values: dict[str, Any] = {"reasoning": _THOUGHT}
    if PLAN_KEY in fields:
        values[PLAN_KEY] = plan()
    if SUCCESS_KEY in fields:
        values |= verdict(chance.random() < _ACCEPTED)
    grades = [name for name in (*_SEMANTICS, *_QUALITY) if name in fields]
    values |= {name: round(chance.uniform(_WORST, _BEST), 1) for name in grades}
    if "terms" in fields:
        values["terms"] = []
    if "picture_criteria" in fields:
        picture, text = "A house is to be seen.", "The text names a house."
        values |= {"image_count": None, "picture_criteria": [picture], "text_criteria": [text]}
    if "answers" in fields:
        values["answers"] = [
            {"number": n, "met": chance.random() < _ACCEPTED} for n in range(1, criteria + 1)
        ]
    return values


def plan() -> list[dict[str, Any]]:
    """Two steps, each drawn and told; the sketch world's generator understands them as well."""
    steps = (("House", _DRAWN, "A house."), ("Tree", _ADDED, "A tree grows beside it."))
    return [
        {
            "step_number": number,
            "step_name": name,
            "instruction": prompt,
            "prompt": prompt,
            "auxiliary_text": text,
        }
        for number, (name, prompt, text) in enumerate(steps, 1)
    ]


def verdict(accepted: bool) -> dict[str, Any]:
    return {SUCCESS_KEY: accepted, REFINE_KEY: "" if accepted else _REWRITTEN}


def json_answers() -> list[str]:
    """Compact JSON for every schema that the decoding of a model on vLLM may be held to."""
    schemas = [
        frozenset({PLAN_KEY}),
        frozenset(_SEMANTICS),
        frozenset(_QUALITY),
        frozenset({*_SEMANTICS, *_QUALITY}),
        frozenset({"terms"}),
        frozenset({"picture_criteria"}),
        frozenset({"answers"}),
    ]
    chance = random.Random(0)
    contents = [answer(fields, chance, criteria=2) for fields in schemas]
    contents += [{"reasoning": _THOUGHT, **verdict(accepted)} for accepted in (True, False)]
    return [json.dumps(content, separators=(",", ":")) for content in contents]


def tagged_answers() -> list[str]:
    """In the form of trained agents, each readable as a plan and as a verdict."""
    contents = [{PLAN_KEY: plan(), **verdict(accepted)} for accepted in (True, False)]
    return [
        f"<think>{_THOUGHT}</think>\n<answer>{json.dumps(content)}</answer>" for content in contents
    ]


def edit_scores() -> list[str]:
    """In the form of EditScore, out of 25."""
    return [json.dumps({"reasoning": _THOUGHT, "score": [n, n]}) for n in (12, 22)]


@contextmanager
def local_provider() -> Iterator[str]:
    """Its address, such as http://127.0.0.1:41234; it ends with the context."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    thread = threading.Thread(target=server.serve_forever, name="provider", daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """Health checks list the models."""
        self._send({"object": "list", "data": [], "models": []})

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        if "/images/" in self.path:
            self._send(_openai_image(body))
        elif self.path.endswith("/chat/completions"):
            self._send(_openai_chat(json.loads(body)))
        elif ":generateContent" in self.path:
            self._send(_gemini(json.loads(body)))
        else:
            self._send({"error": {"message": f"{self.path} is not rehearsed"}}, 404)

    def _send(self, content: dict[str, Any], status: int = 200) -> None:
        data = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:
        pass


def _openai_chat(request: dict[str, Any]) -> dict[str, Any]:
    form = request.get("response_format", {}).get("json_schema", {}).get("schema", {})
    message = {"role": "assistant", "content": _text(form, request)}
    choice = {"index": 0, "finish_reason": "stop", "message": message}
    usage = {f"{name}_tokens": count for name, count in _TOKENS.items()}
    return {
        "id": "rehearsal",
        "object": "chat.completion",
        "created": 0,
        "model": request["model"],
        "choices": [choice],
        "usage": usage | {"total_tokens": sum(_TOKENS.values())},
    }


def _openai_image(body: bytes) -> dict[str, Any]:
    """Of the size that is asked for, in JSON or a form."""
    asked = _SIZE.search(body)
    size = (int(asked[1]), int(asked[2])) if asked else (_SIDE, _SIDE)
    image = _picture(_chance(body), size)
    return {"created": 0, "data": [{"b64_json": base64.b64encode(image.data).decode()}]}


def _gemini(request: dict[str, Any]) -> dict[str, Any]:
    config = request.get("generationConfig", {})
    if "IMAGE" in config.get("responseModalities", ()):
        image = _picture(_chance(json.dumps(request).encode()), (_SIDE, _SIDE))
        data = base64.b64encode(image.data).decode()
        part: dict[str, Any] = {"inlineData": {"mimeType": image.mime, "data": data}}
    else:
        schema = config.get("responseJsonSchema") or config.get("responseSchema") or {}
        part = {"text": _text(schema, request)}
    content = {"role": "model", "parts": [part]}
    usage = {"promptTokenCount": _TOKENS["prompt"], "candidatesTokenCount": _TOKENS["completion"]}
    candidate = {"content": content, "finishReason": "STOP", "index": 0}
    return {"candidates": [candidate], "usageMetadata": usage}


def _text(schema: dict[str, Any], request: dict[str, Any]) -> str:
    """An answer by the schema, by the one in the instructions, or else a trained agent's."""
    texts = "\n".join(_strings(request))
    if not schema and _SCHEMA_LABEL in texts:
        schema, _ = json.JSONDecoder().raw_decode(texts.partition(_SCHEMA_LABEL)[2])
    chance = _chance(json.dumps(request).encode())
    if not schema:
        return chance.choice(tagged_answers())
    criteria = _CRITERION.findall(texts.rpartition(_CRITERIA)[2])
    return json.dumps(answer(frozenset(schema["properties"]), chance, len(criteria)))


def _strings(content: Any) -> Iterator[str]:
    """All texts of a request."""
    if isinstance(content, dict):
        for name, value in content.items():
            if isinstance(value, str) and name in ("text", "content"):
                yield value
            else:
                yield from _strings(value)
    if isinstance(content, list):
        for value in content:
            yield from _strings(value)


def _chance(content: bytes) -> random.Random:
    return random.Random(hashlib.sha256(content).hexdigest())


def _picture(chance: random.Random, size: tuple[int, int]) -> EncodedImage:
    """A few coloured patches."""
    pixels = chance.randbytes(3 * _PATCHES**2)
    patches = Image.frombytes("RGB", (_PATCHES, _PATCHES), pixels)
    return EncodedImage.of(patches.resize(size, Image.Resampling.NEAREST))
