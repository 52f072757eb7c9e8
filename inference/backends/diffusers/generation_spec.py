"""A request for one image: validation for a model, and the arguments of its pipeline."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from warehouse import EncodedImage

from ...roles import UnusableAnswerError
from .registry import GeneratorModel, SamplingParams

_CANVAS_SIZE = (1024, 1024)  # where no size is wanted


@dataclass(frozen=True)
class GenerationSpec:
    """One image to generate; `params` are complete, with all defaults applied.

    The last of `images` is edited; models with references use them all. `mask`: as large as the
    last image; white is repainted, black stays.
    """

    prompt: str
    seed: int
    params: SamplingParams
    images: tuple[EncodedImage, ...] = ()
    mask: EncodedImage | None = None

    @property
    def size(self) -> tuple[int, int] | None:
        """Width and height of the result; None: the pipeline chooses."""
        if self.params.pixels is None and self.mask is not None:
            return self.mask.image.size  # what is not repainted must stay in place
        return self.params.pixels

    def batch_key(self) -> tuple[object, ...]:
        """Equal for specs that can share a batch. Decodes all images."""
        sizes = tuple(image.image.size for image in self.images)
        return (*self.params.model_dump().values(), sizes, self.mask is None)


def white_canvas(params: SamplingParams) -> EncodedImage:
    """What a model that only edits starts from."""
    return EncodedImage.white(params.pixels or _CANVAS_SIZE)


@dataclass(frozen=True)
class PipelineArguments:
    """Validates specs for one model; makes arguments of its pipeline, which has `parameters`."""

    name: str
    model: GeneratorModel
    parameters: frozenset[str]

    def check(self, spec: GenerationSpec) -> None:
        """Reject what the model cannot do, or a part of which it would ignore.

        Raises `UnusableAnswerError`, or `BadImageError` for an image that cannot be decoded.
        """
        if reason := self._unsupported(spec) or self._ignored(spec.params):
            raise UnusableAnswerError(f"{self.name} {reason}")

    def can_batch(self, spec: GenerationSpec) -> bool:
        together = self.model.together
        return together == "pictures" or (together == "texts" and not spec.images)

    def arguments(self, specs: Sequence[GenerationSpec]) -> dict[str, Any]:
        """Arguments of the pipeline for specs of one `batch_key`, without seeds."""
        first, params = specs[0], specs[0].params
        arguments: dict[str, Any] = {
            "prompt": [spec.prompt for spec in specs],
            "num_inference_steps": params.steps,
            self.model.guided_by: params.guidance,
        }
        if "negative_prompt" in self.parameters and _uses_negative_prompt(params):
            negative = params.negative_prompt
            arguments["negative_prompt"] = None if negative is None else [negative] * len(specs)
        if first.size and "height" in self.parameters:
            width, height = first.size
            arguments |= {"width": width, "height": height}
            if "max_area" in self.parameters:  # Kontext scales any size to this many pixels
                arguments["max_area"] = width * height
        arguments |= self._images(specs)
        return {name: value for name, value in arguments.items() if value is not None}

    def _unsupported(self, spec: GenerationSpec) -> str | None:
        can, images, mask = self.model.can, spec.images, spec.mask
        if mask is not None and "mask" not in can:
            return "takes no mask; leave it out, or name another generator"
        if not images and (mask is not None or "text" not in can):
            return "needs an image to start from, and got none"
        if mask is None and images and "edit" not in can:
            ability = "needs a mask with the image" if "mask" in can else "draws from text alone"
            return f"{ability}; name another generator to edit images"
        if mask is not None and mask.image.size != images[-1].image.size:
            sizes = "{}x{} for {}x{}".format(*mask.image.size, *images[-1].image.size)
            return f"needs a mask as large as the image, not {sizes}"
        return None

    def _ignored(self, params: SamplingParams) -> str | None:
        if not (params.negative_prompt or "").strip():
            return None
        names = self.parameters
        is_distilled = self.model.guided_by != "true_cfg_scale" and "true_cfg_scale" in names
        if is_distilled or "negative_prompt" not in names:
            return "takes no negative prompt; leave it out"
        if not _uses_negative_prompt(params):
            return f"ignores a negative prompt at guidance {params.guidance}; raise that above 1"
        return None

    def _images(self, specs: Sequence[GenerationSpec]) -> dict[str, Any]:
        first = specs[0]
        if not first.images:
            return {}
        if "references" in self.model.can:
            return {"image": [image.image for image in first.images]}
        arguments = {"image": _unwrap_single([spec.images[-1].image for spec in specs])}
        if first.mask is not None:
            masks = [spec.mask.image.convert("L") for spec in specs if spec.mask]
            arguments["mask_image"] = _unwrap_single(masks)
        return arguments


def _uses_negative_prompt(params: SamplingParams) -> bool:
    """Whether each step is computed twice, for the prompt and against the negative one."""
    return params.guidance is None or params.guidance > 1


def _unwrap_single(images: list[Any]) -> Any:
    """Some pipelines take an image but no list of one."""
    return images[0] if len(images) == 1 else images
