"""Dialects of OpenAI's images API: which parameters a server takes, and what it calls them.

Sources: openai-python 3.52.0 (`types/image_generate_params.py`, `image_edit_params.py`); vLLM-Omni
`entrypoints/openai/protocol/images.py` at 00a3619 and `edit_images` at 005fd8e; SGLang
`multimodal_gen/runtime/entrypoints/openai/image_api.py` at 0230ddc.
"""

from collections.abc import Mapping
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
