"""Prompts as tokens and pixels, by default in the format of LLaMA-Factory's template `qwen3_vl`.

One user turn, no system message, and the start of an empty assistant turn: trained answers begin
with `<think>` themselves. The checkpoint's own chat template is not used, because some versions of
it begin the answer with `<think>`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from PIL import Image

from warehouse import EncodedImage

from ...agent_prompts import IMAGE

if TYPE_CHECKING:
    import torch

_IMAGE_PAD = "<|image_pad|>"


@dataclass(frozen=True)
class PromptLayout:
    """Templates: `turn` surrounds a user's text, `image` each image.

    `{}` is replaced by the surrounded content, `{number}` by the image's number, from 1.
    """

    turn: str = "<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n"
    image: str = "<|vision_start|>{}<|vision_end|>"


@dataclass(frozen=True)
class AgentQuery:
    """A user turn with an `<image>` per image, and the token limit of its answer.

    `seed` is used where answers are sampled.
    """

    text: str
    images: tuple[EncodedImage, ...] = ()
    max_new_tokens: int = 1024
    seed: int = 0


@dataclass(frozen=True)
class Prompt:
    """An encoded query.

    `pixels` is patches x values and `grids` images x 3 (time, rows, columns of patches).
    """

    tokens: list[int]
    limit: int
    pixels: "torch.Tensor | None" = None
    grids: "torch.Tensor | None" = None
    seed: int = 0

    @property
    def max_length(self) -> int:
        """Tokens of the prompt and its longest answer."""
        return len(self.tokens) + self.limit


@dataclass(frozen=True)
class PromptBatch:
    """Prompts of one batch: `inputs` as `decode` takes them; token limit and seed per prompt."""

    inputs: "dict[str, torch.Tensor]"
    limits: Sequence[int]
    seeds: Sequence[int] = ()


class Encoder:
    """Encodes queries for one checkpoint.

    Args:
        tokenizer, image_processor: those of transformers, from the checkpoint's folder.
        resize: applied to an image before the image processor.
    """

    def __init__(
        self,
        tokenizer: Any,
        image_processor: Any,
        resize: Callable[[Image.Image], Image.Image],
        layout: PromptLayout | None = None,
    ) -> None:
        self._tokenizer, self._image_processor, self._resize = tokenizer, image_processor, resize
        self._layout = layout or PromptLayout()
        self._image_token = tokenizer.convert_tokens_to_ids(_IMAGE_PAD)

    def encode(self, query: AgentQuery) -> Prompt:
        """Raises `BadImageError` for an image that cannot be decoded."""
        if not query.images:
            tokens = self._tokens(query.text, [])
            return Prompt(tokens, query.max_new_tokens, seed=query.seed)
        images = [self._resize(image.image) for image in query.images]
        processed = self._image_processor(images=images, return_tensors="pt")
        pixels, grids = processed["pixel_values"], processed["image_grid_thw"]
        counts = (grids.prod(-1) // self._image_processor.merge_size**2).tolist()
        tokens = self._tokens(query.text, counts)
        return Prompt(tokens, query.max_new_tokens, pixels, grids, query.seed)

    def pad(self, prompts: Sequence[Prompt], device: str) -> PromptBatch:
        """A batch of prompts, padded on the left."""
        import torch

        longest = max(len(prompt.tokens) for prompt in prompts)
        padding = [longest - len(prompt.tokens) for prompt in prompts]
        pad_token = self._tokenizer.pad_token_id
        tokens = torch.tensor(
            [[pad_token] * count + p.tokens for count, p in zip(padding, prompts, strict=True)]
        )
        mask = torch.tensor([[0] * count + [1] * (longest - count) for count in padding])
        token_types = (tokens == self._image_token).int()
        inputs = {"input_ids": tokens, "attention_mask": mask, "mm_token_type_ids": token_types}
        inputs |= _concatenate_images(prompts)
        on_device = {name: tensor.to(device) for name, tensor in inputs.items()}
        limits, seeds = [prompt.limit for prompt in prompts], [prompt.seed for prompt in prompts]
        return PromptBatch(on_device, limits, seeds)

    def decode(self, tokens: Sequence[int]) -> str:
        return str(self._tokenizer.decode(tokens, skip_special_tokens=True))

    def _tokens(self, text: str, counts: Sequence[int]) -> list[int]:
        """Tokens of a turn.

        Args:
            counts: visual tokens of each image.
        """
        first, *rest = (_escape_special_tokens(piece) for piece in text.split(IMAGE))
        if len(rest) != len(counts):
            raise ValueError(f"{len(rest)} image placeholders for {len(counts)} images")
        pieces = (
            self._layout.image.format(_IMAGE_PAD * count, number=number) + piece
            for number, (count, piece) in enumerate(zip(counts, rest, strict=True), start=1)
        )
        turn = self._layout.turn.format("".join((first, *pieces)))
        return list(self._tokenizer.encode(turn, add_special_tokens=False))


def _escape_special_tokens(text: str) -> str:
    """Text in which nothing is parsed as a special token, such as `<|im_end|>`."""
    return text.replace("<|", "< |")


def _concatenate_images(prompts: Sequence[Prompt]) -> "dict[str, torch.Tensor]":
    import torch

    pixels = [prompt.pixels for prompt in prompts if prompt.pixels is not None]
    grids = [prompt.grids for prompt in prompts if prompt.grids is not None]
    if not pixels:
        return {}
    return {"pixel_values": torch.cat(pixels), "image_grid_thw": torch.cat(grids)}
