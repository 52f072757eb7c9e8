"""The limits of a generator behind images endpoints, and where they come from.

In this order: its servers, which are asked once in `/v1/models`, the profile's `references`, the
registry of generators by the model's name, OpenAI's documentation, else none are known and every
image is sent.
"""

import asyncio
import math
import threading
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

from pydantic import BaseModel, Field, ValidationError

from schemas import FoundryError

from ...servers.settings import ImageServer, Server
from ..diffusers.backend import select_model
from ..diffusers.registry import GeneratorModel, load_registry
from ..providers.settings import EndpointSettings
from .dialects import MAX_REFERENCES, DialectName, ImagesGeneratorModel, dialect_of_owner

FORMATS = ("png", "jpeg", "webp")


class GeneratorLimits(BaseModel, frozen=True, extra="ignore"):
    """Field `limits` of a model in our images server's `/v1/models`."""

    references: int | None = Field(
        description="Most images of an edit that it looks at; 0: it draws from text alone; null: "
        "no limit is known"
    )
    mask: bool = Field(description="Whether it repaints inside a mask itself")
    negative_prompt: bool = Field(description="Whether it can be told what not to draw")
    max_pixels: int | None = Field(None, description="Most pixels of an image; null: not known")
    side_multiple: int = Field(1, description="Sides of an image are multiples of it")
    square: bool = Field(False, description="Whether it draws squares only")
    output_formats: tuple[str, ...] = Field(FORMATS, description="Of its answers")
    partial_images: int = Field(0, description="Most partial images of a stream")

    def problem_with_size(self, size: str) -> str | None:
        """Why an image of `WIDTHxHEIGHT` cannot be drawn."""
        width, height = map(int, size.split("x"))
        if self.max_pixels and width * height > self.max_pixels:
            return f"{size} has more than {self.max_pixels} pixels"
        if width % self.side_multiple or height % self.side_multiple:
            return f"the sides of {size} are no multiples of {self.side_multiple}"
        if self.square and width != height:
            return f"{size} is no square"
        return None


def limits_of(model: GeneratorModel) -> GeneratorLimits:
    """The limits of a generator of the registry."""
    edits = {"edit", "mask"} & set(model.can)
    return GeneratorLimits(
        references=model.max_reference_images if edits else 0,
        mask="mask" in model.can,
        negative_prompt="negative_prompt" in model.can,
        partial_images=3 if (model.defaults.steps or 0) > 1 else 0,
    )


_TIMEOUT_SECONDS = 3.0
_MAX_BYTES = 2**20
_ASK_AGAIN_SECONDS = 60.0  # after no answer


class ModelCard(BaseModel, extra="ignore", frozen=True):
    """A model of a server: `limits` are ours, `root` vLLM-Omni's, the last two SGLang's."""

    id: str
    owned_by: str | None = None
    root: str | None = None
    limits: GeneratorLimits | None = None
    task_type: str | None = None
    pipeline_class: str | None = None

    @property
    def dialect(self) -> DialectName:
        return dialect_of_owner(self.owned_by)


class _ModelList(BaseModel, extra="ignore"):
    data: tuple[ModelCard, ...] = ()


# Base URL -> its models, and until when that counts.
_answers: dict[str, tuple[Sequence[ModelCard], float]] = {}
_locks: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)


def model_card(url: str, key: str | None, model: str) -> ModelCard | None:
    """What a server says of a model; None: nothing. It may wait for seconds: not in event loops.

    `url`: base URL of the API, such as http://127.0.0.1:8010/v1. `key`: the key itself.
    """
    url = url.rstrip("/")
    with _locks[url]:
        cards, until = _answers.get(url, ((), 0.0))
        if until < time.monotonic():
            cards, until = _answers[url] = _ask(url, key)
    return _named(cards, model)


async def find_card(url: str, key: str | None, model: str) -> ModelCard | None:
    """`model_card` for event loops: in a thread where the server has to be asked."""
    _, until = _answers.get(url.rstrip("/"), ((), 0.0))
    if until >= time.monotonic():
        return model_card(url, key, model)
    return await asyncio.to_thread(model_card, url, key, model)


def _ask(url: str, key: str | None) -> tuple[Sequence[ModelCard], float]:
    """Its models, and until when to ask no more. An answer that is no list of models has none."""
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    try:
        with urlopen(Request(f"{url}/models", headers=headers), timeout=_TIMEOUT_SECONDS) as answer:
            return _ModelList.model_validate_json(answer.read(_MAX_BYTES)).data, math.inf
    except (HTTPError, ValidationError):
        return (), math.inf
    except (URLError, OSError):
        return (), time.monotonic() + _ASK_AGAIN_SECONDS


def _named(cards: Sequence[ModelCard], model: str) -> ModelCard | None:
    """The card of a model; a server with one model has no other."""
    named = (card for card in cards if card.id == model)
    return next(named, cards[0] if len(cards) == 1 else None)


_UNKNOWN = GeneratorLimits(references=None, mask=True, negative_prompt=True)
_DRAWS_TEXT_ALONE = GeneratorLimits(references=0, mask=False, negative_prompt=True)
_TEXT_ONLY = "T2I"  # SGLang's task_type of models that edit nothing


@dataclass(frozen=True)
class KnownLimits:
    """`source`: where they come from, for people. `told`: by the server that draws."""

    limits: GeneratorLimits
    source: str
    told: bool = False

    @property
    def max_reference_images(self) -> int | None:
        """See `max_reference_images` in `inference/roles.py`: an edit has one image at least."""
        references = self.limits.references
        return references if references is None else max(1, references)

    def problem(self, model: ImagesGeneratorModel) -> str | None:
        """What the server will refuse of a profile's settings; None: nothing that it tells."""
        if not self.told:
            return None
        if (model.negative_prompt or "").strip() and not self.limits.negative_prompt:
            return f"{model.model} takes no negative prompt: leave negative_prompt out"
        problem = self.limits.problem_with_size(model.size) if model.size else None
        return problem and f"{problem}: choose another size"

    def __str__(self) -> str:
        most = self.limits.references
        images = {None: "any number of images", 0: "draws from text alone", 1: "one image"}
        negative = "negative prompts" if self.limits.negative_prompt else "no negative prompts"
        return f"{images.get(most, f'{most} images')}, {negative} ({self.source})"


def find_limits(
    model: ImagesGeneratorModel,
    endpoints: Sequence[EndpointSettings],
    servers: Mapping[str, Server],
) -> KnownLimits:
    """Limits of a model; its servers are asked where they can be, so not in event loops.

    `servers`: the profile's, which endpoints may name; those are started by the first call, so that
    they are not asked: what they serve is known.
    """
    cards, told = [], []
    for endpoint in endpoints:
        if endpoint.server:
            told += _of_server(servers.get(endpoint.server))
        elif card := _card(model, endpoint):
            cards.append(card)
            told += [card.limits] if card.limits else []
            told += [_DRAWS_TEXT_ALONE] if card.task_type == _TEXT_ONLY else []
    if told:
        return KnownLimits(_strictest(told), "told by its server", told=True)
    if model.references is not None:
        limits = _UNKNOWN.model_copy(update={"references": model.references})
        return KnownLimits(limits, "the profile's `references`")
    if entry := _registered(model.model, cards):
        return KnownLimits(limits_of(entry), "the registry of generators")
    if model.static_dialect(endpoints) == "openai":
        documented = {"references": MAX_REFERENCES, "negative_prompt": False}
        return KnownLimits(_UNKNOWN.model_copy(update=documented), "OpenAI's documentation")
    return KnownLimits(_UNKNOWN, "nobody tells: set `references`")


def _card(model: ImagesGeneratorModel, endpoint: EndpointSettings) -> ModelCard | None:
    if endpoint.url is None or model.static_dialect([endpoint]) == "openai":
        return None
    try:
        return model_card(endpoint.url, endpoint.secret(), model.model)
    except FoundryError:  # no key, which is said elsewhere
        return None


def _of_server(server: Server | None) -> list[GeneratorLimits]:
    """Limits of what a server of ours will serve; none: it is another program, or unknown."""
    if not isinstance(server, ImageServer) or server.pipeline is None:
        return []
    try:
        return [limits_of(select_model(server.pipeline).model)]
    except FoundryError:  # no such model, which is said elsewhere
        return []


def _strictest(told: Sequence[GeneratorLimits]) -> GeneratorLimits:
    """What all of them take: a call goes to any."""
    references = [each.references for each in told if each.references is not None]
    pixels = [each.max_pixels for each in told if each.max_pixels is not None]
    return told[0].model_copy(
        update={
            "references": min(references, default=None),
            "max_pixels": min(pixels, default=None),
            "negative_prompt": all(each.negative_prompt for each in told),
            "mask": all(each.mask for each in told),
        }
    )


def _registered(model: str, cards: Sequence[ModelCard]) -> GeneratorModel | None:
    """By its name here or at its makers', or by what its server says that it is."""
    registry = load_registry()
    for name in (model, *(card.root for card in cards)):
        entry = name and (registry.models.get(name) or registry.of_model(name))
        if entry:
            return entry
    pipelines = (card.pipeline_class for card in cards if card.pipeline_class)
    return next(filter(None, map(registry.of_pipeline, pipelines)), None)
