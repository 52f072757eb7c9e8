"""A server that answers requests as the rules of a dialect say (`rules.yaml`), and records them;
and generators of the images backend, from profiles."""

import asyncio
import base64
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from aiohttp import web

from inference.backends.factory import Backends
from inference.roles import Generator
from tests.helpers.app_server import running_app
from warehouse import EncodedImage, Home

RULES: dict[str, Any] = yaml.safe_load(Path(__file__).with_name("rules.yaml").read_text("utf-8"))


@dataclass
class RecordedRequest:
    """A request that the rules allow."""

    endpoint: str
    fields: dict[str, Any]
    images: list[EncodedImage]
    mask: EncodedImage | None = None
    ignored: list[str] = field(default_factory=list)


@dataclass
class RulesServer:
    """A server of one dialect with one model."""

    dialect: str
    model: str
    url: str = ""
    requests: list[RecordedRequest] = field(default_factory=list)
    asked: int = 0  # for its models
    delay: float = 0.0  # of that answer, in seconds
    card: dict[str, Any] = field(default_factory=dict)

    @property
    def rules(self) -> dict[str, Any]:
        return RULES[self.dialect]

    async def models(self, _: web.Request) -> web.Response:
        self.asked += 1
        await asyncio.sleep(self.delay)
        card = {"id": self.model, "object": "model", "owned_by": self.rules["owned_by"]}
        return web.json_response(
            {"object": "list", "data": [card | self.rules["card"] | self.card]}
        )

    async def images(self, request: web.Request) -> web.Response:
        endpoint = request.match_info["endpoint"]
        read = self._form if endpoint == "edits" else self._json
        try:
            recorded = await read(request, endpoint)
            self._check(recorded)
        except ValueError as error:
            return web.json_response(
                {"error": {"message": str(error), "type": "invalid_request_error", "code": None}},
                status=self.rules["status"],
            )
        self.requests.append(recorded)
        return web.json_response({"created": 0, "data": [self._answer(recorded.fields)]})

    async def _json(self, request: web.Request, endpoint: str) -> RecordedRequest:
        if request.content_type != "application/json":
            raise ValueError(f"JSON is expected, not {request.content_type}")
        return RecordedRequest(endpoint, await request.json(), [])

    async def _form(self, request: web.Request, endpoint: str) -> RecordedRequest:
        if request.content_type != "multipart/form-data":
            raise ValueError(f"a form is expected, not {request.content_type}")
        recorded = RecordedRequest(endpoint, {}, [])
        for name, value in (await request.post()).items():
            if isinstance(value, str):
                recorded.fields[name] = value
            elif name not in self.rules["files"]:
                raise ValueError(f"unknown file {name}")
            elif name == "mask":
                recorded.mask = EncodedImage(value.file.read())
            else:
                recorded.images.append(EncodedImage(value.file.read()))
        if not recorded.images:
            raise ValueError("image is required")
        most = self.rules["references"]
        if most and len(recorded.images) > most:
            raise ValueError(f"at most {most} images are supported by this model")
        return recorded

    def _check(self, recorded: RecordedRequest) -> None:
        rules = dict(self.rules[recorded.endpoint])
        for name, narrower in self.rules.get("models", {}).get(self.model, {}).items():
            if name in rules:
                rules[name] = rules[name] | narrower
        for name, rule in rules.items():
            if rule.get("required") and name not in recorded.fields:
                raise ValueError(f"{name}: field required")
        for name, value in recorded.fields.items():
            rule = rules.get(name, {"absent": True})
            if rule.get("absent") and self.rules["unknown"] == "reject":
                raise ValueError(f"Unknown parameter: '{name}'.")
            if rule.get("absent"):
                recorded.ignored.append(name)
            elif problem := self._problem(rule, value, recorded.endpoint == "edits"):
                raise ValueError(f"{name}: {problem}, not {value!r}")

    def _problem(self, rule: dict[str, Any], value: Any, is_text: bool) -> str | None:
        """Why a value is invalid; those of a form are texts."""
        if rule.get("served") and value != self.model:
            return f"server is running '{self.model}'"
        if "values" in rule and value not in rule["values"]:
            return f"must be one of {rule['values']}"
        if rule.get("integer") or rule.get("number"):
            try:
                number = float(value) if is_text else value
            except ValueError:
                return "must be a number"
            if isinstance(number, bool | str) or (rule.get("integer") and number != int(number)):
                return "must be a number"
            low, high = rule.get("range", (number, number))
            return None if low <= number <= high else f"must be from {low} to {high}"
        return _size_problem(rule, value) if rule.get("size") and value != "auto" else None

    def _answer(self, fields: dict[str, Any]) -> dict[str, str]:
        if fields.get("response_format", self.rules["answers"]) == "url":
            return {"url": f"{self.url}/v1/images/1/content"}
        size = fields.get("size", "64x64")
        width, height = (64, 64) if size == "auto" else map(int, size.split("x"))
        form = fields.get("output_format", "png")
        data = EncodedImage.white((width, height)).encoded(form).data
        return {"b64_json": base64.b64encode(data).decode()}


def _size_problem(rule: dict[str, Any], value: str) -> str | None:
    try:
        sides = sorted(map(int, value.split("x")))
    except ValueError:
        return "must be WIDTHxHEIGHT"
    if len(sides) != 2 or sides[0] < 1:
        return "must be WIDTHxHEIGHT"
    if any(side % rule.get("multiple", 1) for side in sides):
        return f"must be divisible by {rule['multiple']}"
    if sides[1] > rule.get("ratio", sides[1]) * sides[0]:
        return "is outside of 1:3 to 3:1"
    within = sides[1] <= rule.get("longest", sides[1]) and sides[0] <= rule.get(
        "shortest", sides[0]
    )
    return None if within else "is too large"


@contextmanager
def rules_server(dialect: str, model: str, **card: Any) -> Iterator[RulesServer]:
    """A server on a free port until the block ends. `card`: more of what it says of its model."""
    state = RulesServer(dialect, model, card=card)
    app = web.Application(client_max_size=2**26)
    app.router.add_get("/v1/models", state.models)
    app.router.add_post("/v1/images/{endpoint}", state.images)
    with running_app(app) as state.url:
        yield state


ROLES = {"planner": "sketch", "critic": "sketch", "scorer": "sketch", "generator": "images"}


def images_profile(*urls: str, **model: Any) -> Backends:
    """Sketch agents with a generator at these servers."""
    endpoints = [{"url": f"{url}/v1", "concurrency": 2} for url in urls]
    settings = {"endpoints": endpoints, "timeout_seconds": 20, "generator": model}
    return Backends.model_validate({"roles": ROLES, "images": settings})


def images_generator(*urls: str, **model: Any) -> Generator:
    return images_profile(*urls, **model).build(Home("memory://images")).generator


def generate(
    generator: Generator, prompt: str, images: Sequence[EncodedImage] = (), seed: int = 1
) -> EncodedImage:
    return asyncio.run(generator.generate(prompt, images, seed))
