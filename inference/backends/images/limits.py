"""The limits of a generator behind images endpoints, and where they come from.

In this order: its servers, the profile's `references`, the registry of generators by the model's
name, OpenAI's documentation, else none are known and every image is sent.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from schemas import FoundryError

from ...servers.settings import ImageServer, Server
from ..diffusers.model_selection import select_model
from ..diffusers.registry import GeneratorModel, load_registry
from ..generator_limits import GeneratorLimits, limits_of
from ..providers.settings import EndpointSettings
from .model_cards import ModelCard, model_card
from .openai_models import MAX_REFERENCES
from .settings import ImagesGeneratorModel

_UNKNOWN = GeneratorLimits(references=None, mask=True, negative_prompt=True)
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

    Args:
        servers: the profile's, which endpoints may name; those are started by the first call, so
            that they are not asked: what they serve is known.
    """
    cards, told = [], []
    for endpoint in endpoints:
        if endpoint.server:
            told += _of_server(servers.get(endpoint.server))
        elif card := _card(model, endpoint):
            cards.append(card)
            told += [card.limits] if card.limits else []
            told += [_text_only()] if card.task_type == _TEXT_ONLY else []
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


def _text_only() -> GeneratorLimits:
    return _UNKNOWN.model_copy(update={"references": 0, "mask": False})


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
