"""Profile settings of a generator behind an images endpoint, and dialects of that API: which
parameters a server takes, and what it calls them; and what OpenAI's own models take.

Sources: openai-python 3.52.0 (`types/image_generate_params.py`, `image_edit_params.py`); vLLM-Omni
`entrypoints/openai/protocol/images.py` at 00a3619 and `edit_images` at 005fd8e; SGLang
`multimodal_gen/runtime/entrypoints/openai/image_api.py` at 0230ddc.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal

from pydantic import Field, JsonValue, model_validator

from warehouse import EncodedImage

from ..providers.settings import EndpointSettings, RemoteGeneratorModel

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
# Names of all parameters; `seed` comes with each request.
_PARAMETERS = {name for each in DIALECTS.values() for name in (*each.generation, *each.edit)}

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


class ImagesGeneratorModel(RemoteGeneratorModel):
    """A generator behind an images endpoint, or two of them: `edit` draws all but first images."""

    dialect: DialectName | None = Field(
        None,
        description="Which parameters the server has: openai, vllm-omni, sglang or ours. null: by "
        "the host and the model's name, else by what the server's /v1/models says",
    )
    references: int | None = Field(
        None,
        ge=1,
        description="Most images of an edit; null: as the registry says, else any number. What the "
        "server says comes before both",
    )
    steps: int | None = Field(None, ge=1, description="null: the model's own number of steps")
    guidance: float | None = Field(None, ge=0, description="Guidance scale; null: the model's own")
    negative_prompt: str | None = Field(None, description="null: none")
    quality: Literal["auto", "low", "medium", "high", "xhigh", "max"] | None = Field(
        None, description="Of OpenAI's models; null: their own choice"
    )
    background: Literal["auto", "opaque", "transparent"] | None = Field(
        None, description="null: the model's own choice"
    )
    output_format: Literal["png", "jpeg", "webp"] | None = Field(
        None, description="null: the server's, which is png nearly everywhere"
    )
    output_compression: int | None = Field(
        None, ge=0, le=100, description="Of jpeg and webp; null: the server's own"
    )
    input_fidelity: Literal["low", "high"] | None = Field(
        None, description="How closely edits by OpenAI's models keep to the images; null: their own"
    )
    moderation: Literal["auto", "low"] | None = Field(
        None, description="Of first images by OpenAI's models; null: their own"
    )
    mask: Path | None = Field(
        None,
        description="Image whose transparent part is all that edits repaint; as large as what is "
        "edited. null: edits may change everything",
    )
    edit: "ImagesGeneratorModel | None" = Field(
        None,
        description="Another model, for edits: the one above draws first images only. null: it "
        "draws all",
    )

    @property
    def parameters(self) -> dict[str, JsonValue]:
        """What is set, by our names."""
        return self.model_dump(include=_PARAMETERS, exclude_none=True)

    @cached_property
    def mask_image(self) -> EncodedImage | None:
        return EncodedImage(self.mask.expanduser().read_bytes()) if self.mask else None

    def static_dialect(self, endpoints: Sequence[EndpointSettings]) -> DialectName | None:
        """The dialect, where no server has to be asked; None: the server will be."""
        if self.dialect:
            return self.dialect
        urls = [endpoint.server or endpoint.url for endpoint in endpoints]
        return "openai" if is_openai(self.model, urls) else None

    def problem(self, dialect: DialectName) -> str | None:
        """What a dialect does not have, and what to do; None: it has all."""
        unknown = DIALECTS[dialect].unknown(self.parameters, self.mask is not None)
        if unknown:
            return f"{', '.join(unknown)}: dialect {dialect} has no such parameter; leave it out"
        return problem_with(self.model, self.parameters) if dialect == "openai" else None

    def _hashed_settings(self) -> object:
        """Of one model alone; a mask counts by its content."""
        settings = self.model_dump(
            mode="json", exclude={"endpoints", "edit", "references"}, exclude_defaults=True
        )
        return settings | ({"mask": self.mask_image.sha256} if self.mask_image else {})

    @model_validator(mode="after")
    def _check(self) -> "ImagesGeneratorModel":
        if self.edit and self.edit.edit:
            raise ValueError("edit.edit: a generator has two models at most")
        if self.mask and not self.mask.expanduser().is_file():
            raise ValueError(f"mask: there is no file {self.mask}")
        if self.output_compression is not None and self.output_format not in ("jpeg", "webp"):
            raise ValueError("output_compression: set output_format to jpeg or webp as well")
        if self.background == "transparent" and self.output_format == "jpeg":
            raise ValueError("background: jpeg has no transparency; set output_format to png")
        return self
