"""A request for a picture, what a model refuses, and what its pipeline is called with."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from warehouse import EncodedImage

from ...roles import UnusableAnswerError
from .registry import PictureModel
from .sampling_params import SamplingParams


@dataclass(frozen=True)
class GenerationSpec:
    """One picture to draw.

    Args:
        manner: complete: nothing is filled in any more.
        images: the last one is edited; models that look at references see them all.
        mask: white is repainted, black is kept; as large as the last picture.
    """

    prompt: str
    seed: int
    manner: SamplingParams
    images: tuple[EncodedImage, ...] = ()
    mask: EncodedImage | None = None

    @property
    def size(self) -> tuple[int, int] | None:
        """Width and height of what is drawn; None: the pipeline chooses."""
        if self.manner.pixels is None and self.mask is not None:
            return self.mask.image.size  # what is not repainted must stay where it is
        return self.manner.pixels

    def shape(self) -> tuple[object, ...]:
        """Drawings of one shape can be one batch."""
        sizes = tuple(image.image.size for image in self.images)
        return (*self.manner.model_dump().values(), sizes, self.mask is None)


class PipelineArguments:
    """How one model is asked: what it refuses, and its pipeline's words for the rest.

    Args:
        words: the parameters of the pipeline.
    """

    def __init__(self, name: str, model: PictureModel, words: frozenset[str]) -> None:
        self._name, self._model, self._words = name, model, words

    def check(self, drawing: GenerationSpec) -> None:
        """Refuse what cannot be drawn as it is asked for.

        Raises:
            BadAnswer: the model cannot do it, or would ignore a part of it.
            BadImageError: a picture cannot be decoded.
        """
        if reason := self._cannot(drawing) or self._would_ignore(drawing.manner):
            raise UnusableAnswerError(f"{self._name} {reason}")

    def batches(self, drawing: GenerationSpec) -> bool:
        """Whether the pipeline draws it together with others of its shape."""
        return self._model.together == "pictures" or (
            self._model.together == "texts" and not drawing.images
        )

    def arguments(self, drawings: Sequence[GenerationSpec]) -> dict[str, Any]:
        """Arguments of the pipeline for drawings of one shape, seeds aside."""
        first = drawings[0]
        said = {
            "prompt": [drawing.prompt for drawing in drawings],
            "num_inference_steps": first.manner.steps,
            **self._guidance(first.manner, len(drawings)),
            **self._size(first),
            **self._pictures(drawings),
        }
        return {word: value for word, value in said.items() if value is not None}

    def _cannot(self, drawing: GenerationSpec) -> str | None:
        can, images, mask = self._model.can, drawing.images, drawing.mask
        if mask is not None and "mask" not in can:
            return "takes no mask; leave it out, or name another generator"
        if not images and (mask is not None or "text" not in can):
            return "needs a picture to start from, and was given none"
        if mask is None and images and "edit" not in can:
            wanted = "needs a mask beside the picture" if "mask" in can else "draws from text alone"
            return f"{wanted}; name another generator to edit pictures"
        if mask is not None and mask.image.size != images[-1].image.size:
            return f"needs a mask as large as the picture, not {_by(mask)} for {_by(images[-1])}"
        return None

    def _would_ignore(self, manner: SamplingParams) -> str | None:
        if not (manner.negative_prompt or "").strip():
            return None
        distilled = self._model.guided_by != "true_cfg_scale" and "true_cfg_scale" in self._words
        if distilled or "negative_prompt" not in self._words:
            return "takes no negative prompt; leave it out"
        if not self._contrasts(manner):
            return f"ignores a negative prompt at guidance {manner.guidance}; raise that above 1"
        return None

    def _contrasts(self, manner: SamplingParams) -> bool:
        """Whether each step is drawn twice, for the prompt and against the negative one."""
        return manner.guidance is None or manner.guidance > 1

    def _guidance(self, manner: SamplingParams, count: int) -> dict[str, Any]:
        said: dict[str, Any] = {self._model.guided_by: manner.guidance}
        heard = "negative_prompt" in self._words and self._contrasts(manner)
        if heard and manner.negative_prompt is not None:
            said["negative_prompt"] = [manner.negative_prompt] * count
        return said

    def _size(self, drawing: GenerationSpec) -> dict[str, int]:
        if drawing.size is None or "height" not in self._words:
            return {}
        width, height = drawing.size
        said = {"width": width, "height": height}
        # Kontext scales whatever size to this many pixels.
        return said | ({"max_area": width * height} if "max_area" in self._words else {})

    def _pictures(self, drawings: Sequence[GenerationSpec]) -> dict[str, Any]:
        first = drawings[0]
        if not first.images:
            return {}
        if "references" in self._model.can:
            return {"image": [image.image for image in first.images]}
        said = {"image": _alone([drawing.images[-1].image for drawing in drawings])}
        if first.mask is not None:
            masks = [drawing.mask.image.convert("L") for drawing in drawings if drawing.mask]
            said["mask_image"] = _alone(masks)
        return said


def _alone(pictures: list[Any]) -> Any:
    """Some pipelines take one picture and no list of one."""
    return pictures[0] if len(pictures) == 1 else pictures


def _by(picture: EncodedImage) -> str:
    return "{}x{}".format(*picture.image.size)
