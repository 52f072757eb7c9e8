"""Dialects of OpenAI's images API: which parameters a server takes, and what it calls them; and the
sizes and values that OpenAI's own models take.

Sources: openai-python 3.52.0 (`types/image_generate_params.py`, `image_edit_params.py`); vLLM-Omni
`entrypoints/openai/protocol/images.py` at 00a3619 and `edit_images` at 005fd8e; SGLang
`multimodal_gen/runtime/entrypoints/openai/image_api.py` at 0230ddc.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

DialectName = Literal["openai", "vllm-omni", "sglang", "ours"]

_DIFFUSION = {
    "size": "size",
    "seed": "seed",
    "steps": "num_inference_steps",
    "guidance": "guidance_scale",
    "negative_prompt": "negative_prompt",
    "output_format": "output_format",
}
_COMPRESSION = {"output_compression": "output_compression"}
_BACKGROUND = {"background": "background"}
_HOSTED = ("size", "quality", "background", "output_format", "output_compression")


@dataclass(frozen=True)
class Dialect:
    """What requests of one kind of servers may say.

    Args:
        generation, edit: names of our parameters -> fields of the request.
        as_base64: whether it has to be told to answer with images instead of addresses.
        mask: whether an edit may have a mask.
    """

    name: DialectName
    generation: Mapping[str, str]
    edit: Mapping[str, str]
    as_base64: bool = True
    mask: bool = False

    def fields(self, parameters: Mapping[str, object], is_edit: bool) -> dict[str, object]:
        """Fields of a request for parameters that are set; those it has no field for are left out.

        The profile's were checked by `unknown`; every request has a seed, wanted or not.
        """
        names = self.edit if is_edit else self.generation
        known = {names[name]: value for name, value in parameters.items() if name in names}
        return ({"response_format": "b64_json"} if self.as_base64 else {}) | known

    def unknown(self, parameters: Mapping[str, object], mask: bool = False) -> list[str]:
        """Names of parameters, among those that are set, for which it has no field."""
        fields = {*self.generation, *self.edit, "seed"}
        unknown = [name for name in parameters if name not in fields]
        return [*unknown, "mask"] if mask and not self.mask else unknown


_HOSTED_FIELDS = {name: name for name in _HOSTED}

DIALECTS: Mapping[DialectName, Dialect] = {
    "openai": Dialect(
        "openai",
        generation=_HOSTED_FIELDS | {"moderation": "moderation"},
        edit=_HOSTED_FIELDS | {"input_fidelity": "input_fidelity"},
        as_base64=False,
        mask=True,
    ),
    "vllm-omni": Dialect(
        "vllm-omni", generation=_DIFFUSION, edit=_DIFFUSION | _COMPRESSION | _BACKGROUND
    ),
    "sglang": Dialect(
        "sglang",
        generation=_DIFFUSION | _COMPRESSION | _BACKGROUND,
        edit=_DIFFUSION | _COMPRESSION | _BACKGROUND,
    ),
    "ours": Dialect(
        "ours", generation=_DIFFUSION | _COMPRESSION, edit=_DIFFUSION | _COMPRESSION, mask=True
    ),
}
assert set(DIALECTS) == set(get_args(DialectName))

# A server that does not say what it is: the fields that all open servers share.
DEFAULT: DialectName = "vllm-omni"
_OWNERS: Mapping[str, DialectName] = {
    "interleave-foundry": "ours",
    "sglang": "sglang",
    "vllm": "vllm-omni",
    "openai": "openai",
    "system": "openai",  # OpenAI's name of itself
}


def dialect_of_owner(owned_by: str | None) -> DialectName:
    """By `owned_by` of a model in `/v1/models`."""
    return _OWNERS.get(owned_by or "", DEFAULT)


MAX_REFERENCES = 16
_OPENAI_HOST = "api.openai.com"
_STANDARD_SIZES = ((1024, 1024), (1536, 1024), (1024, 1536))
_STEP, _MAX_RATIO, _MAX_SIDES = 16, 3, (3840, 2160)
_QUALITIES = ("auto", "low", "medium", "high")
_RETIRED = ("dall-e-2", "dall-e-3")


@dataclass(frozen=True)
class OpenAIModel:
    """Rules of the models whose names begin with `prefix`."""

    prefix: str
    any_size: bool = False
    qualities: tuple[str, ...] = _QUALITIES
    input_fidelity: tuple[str, ...] = ()


# The first that fits counts.
_MODELS = (
    OpenAIModel("gpt-image-1-mini", input_fidelity=("low",)),
    OpenAIModel("gpt-image-1", input_fidelity=("low", "high")),
    OpenAIModel("gpt-image-2.", any_size=True, qualities=(*_QUALITIES, "xhigh", "max")),
    OpenAIModel("gpt-image-", any_size=True),
    OpenAIModel("chatgpt-image-", input_fidelity=("low", "high")),
)


def is_openai(model: str, urls: Sequence[str | None]) -> bool:
    """Whether a model is OpenAI's by its name, or by all of its endpoints; None is OpenAI's own."""
    named = model in _RETIRED or _rules(model) is not None
    return named or all(url is None or _OPENAI_HOST in url for url in urls)


def drawn_size(model: str, size: str) -> str:
    """The size that a model draws for a wanted one: of all that it takes, the nearest in shape.

    Models of any size get sides that are multiples of 16. Raises ValueError if none is near.
    """
    width, height = map(int, size.split("x"))
    rules = _rules(model)
    if rules is None:
        return size
    if not rules.any_size:
        shape = width / height
        nearest = min(
            _STANDARD_SIZES,
            key=lambda each: max(shape * each[1] / each[0], each[0] / each[1] / shape),
        )
        return "{}x{}".format(*nearest)
    width, height = (max(_STEP, round(side / _STEP) * _STEP) for side in (width, height))
    longer, shorter = max(width, height), min(width, height)
    if longer > _MAX_RATIO * shorter or longer > _MAX_SIDES[0] or shorter > _MAX_SIDES[1]:
        raise ValueError(f"size: {model} draws up to 3840x2160, in shapes from 1:3 to 3:1")
    return f"{width}x{height}"


def problem_with(model: str, parameters: Mapping[str, object]) -> str | None:
    """Why a model does not take a value, and what to do; None: it takes all."""
    if model in _RETIRED:
        return f"model: OpenAI has retired {model}; name another, such as gpt-image-2"
    rules = _rules(model)
    if rules is None:
        return None
    for name, allowed in (("quality", rules.qualities), ("input_fidelity", rules.input_fidelity)):
        if parameters.get(name) in (None, *allowed):
            continue
        values = f"takes {' or '.join(allowed)}" if allowed else "has none; leave it out"
        return f"{name}: {model} {values}"
    return None


def _rules(model: str) -> OpenAIModel | None:
    """None: a name that is not OpenAI's, such as a deployment's."""
    return next((known for known in _MODELS if model.startswith(known.prefix)), None)
