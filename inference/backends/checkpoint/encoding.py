"""Prompts as tokens and pixels, by default in the format of LLaMA-Factory's template `qwen3_vl`.

One user turn, no system message, and the start of an empty assistant turn: trained answers begin
with `<think>` themselves. The checkpoint's own chat template is not used, because some versions of
it begin the answer with `<think>`. Images are resized before the model's image processor, with
Pillow's default filter, so that they become the same pixels as in training.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from PIL import Image

from warehouse import EncodedImage

from ...agent_prompts.templates import IMAGE
from .constrained import FormName

if TYPE_CHECKING:
    import torch

MANY_IMAGES = 5
"""From so many images of a query on, the authors' agents get each of them smaller."""

_IMAGE_PAD = "<|image_pad|>"
# Limits of the vision tower's patches (Qwen2-VL); images beyond the ratio get the replacement.
_MIN_SIDE = 28
_MAX_RATIO, _REPLACEMENT_RATIO = 200, 180


Resize = Callable[[Image.Image], Image.Image]
Decoding = Literal["greedy", "own", "sampled"]
"""How the next token is chosen: `own` as the model's generation_config says, `sampled` with its
temperature also where it says greedy."""


@dataclass(frozen=True)
class PromptLayout:
    """Templates: `turn` surrounds a user's text, `image` each image.

    `{}` is replaced by the surrounded content, `{number}` by the image's number, from 1.
    """

    turn: str = "<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n"
    image: str = "<|vision_start|>{}<|vision_end|>"


@dataclass(frozen=True)
class AgentQuery:
    """A user turn with an `<image>` per image; `seed` is used where answers are sampled.

    `form`: of the answer, which is then greedy and has it; None: the model writes what it likes.
    """

    text: str
    images: tuple[EncodedImage, ...] = ()
    max_new_tokens: int = 1024
    seed: int = 0
    decoding: Decoding = "greedy"
    form: FormName | None = None


@dataclass(frozen=True)
class Prompt:
    """`pixels` is patches x values and `grids` images x 3 (time, rows, columns of patches)."""

    query: AgentQuery
    tokens: list[int]
    pixels: "torch.Tensor | None" = None
    grids: "torch.Tensor | None" = None

    @property
    def max_length(self) -> int:
        """Tokens of the prompt and its longest answer."""
        return len(self.tokens) + self.query.max_new_tokens


@dataclass(frozen=True)
class Encoder:
    """Encodes queries for one checkpoint.

    Before the image processor, images are resized: by `resize`, or by `resize_many` where a query
    has `MANY_IMAGES` or more.
    """

    tokenizer: Any
    image_processor: Any
    resize: Resize
    layout: PromptLayout
    resize_many: Resize | None = None

    def encode(self, query: AgentQuery) -> Prompt:
        """Raises `BadImageError` for an image that cannot be decoded."""
        if not query.images:
            return Prompt(query, self._tokens(query.text, []))
        many = len(query.images) >= MANY_IMAGES
        resize = self.resize_many if many and self.resize_many else self.resize
        images = [resize(image.image) for image in query.images]
        processed = self.image_processor(images=images, return_tensors="pt")
        pixels, grids = processed["pixel_values"], processed["image_grid_thw"]
        counts = (grids.prod(-1) // self.image_processor.merge_size**2).tolist()
        return Prompt(query, self._tokens(query.text, counts), pixels, grids)

    def pad(self, prompts: Sequence[Prompt], device: str) -> "dict[str, torch.Tensor]":
        """A batch of prompts as `decode` takes it, padded on the left."""
        import torch

        longest = max(len(prompt.tokens) for prompt in prompts)
        padding = [longest - len(prompt.tokens) for prompt in prompts]
        pad_token = self.tokenizer.pad_token_id
        tokens = torch.tensor(
            [[pad_token] * count + p.tokens for count, p in zip(padding, prompts, strict=True)]
        )
        mask = torch.tensor([[0] * count + [1] * (longest - count) for count in padding])
        token_types = (tokens == self.tokenizer.convert_tokens_to_ids(_IMAGE_PAD)).int()
        inputs = {"input_ids": tokens, "attention_mask": mask, "mm_token_type_ids": token_types}
        if pixels := [prompt.pixels for prompt in prompts if prompt.pixels is not None]:
            grids = [prompt.grids for prompt in prompts if prompt.grids is not None]
            inputs |= {"pixel_values": torch.cat(pixels), "image_grid_thw": torch.cat(grids)}
        return {name: tensor.to(device) for name, tensor in inputs.items()}

    def decode(self, tokens: Sequence[int]) -> str:
        return str(self.tokenizer.decode(tokens, skip_special_tokens=True))

    def _tokens(self, text: str, counts: Sequence[int]) -> list[int]:
        """Tokens of a turn, with so many visual tokens for each image."""
        # Nothing in the text is parsed as a special token, such as `<|im_end|>`.
        first, *rest = text.replace("<|", "< |").split(IMAGE)
        if len(rest) != len(counts):
            raise ValueError(f"{len(rest)} image placeholders for {len(counts)} images")
        pieces = (
            self.layout.image.format(_IMAGE_PAD * count, number=number) + piece
            for number, (count, piece) in enumerate(zip(counts, rest, strict=True), start=1)
        )
        turn = self.layout.turn.format("".join((first, *pieces)))
        return list(self.tokenizer.encode(turn, add_special_tokens=False))


def resize_to_pixels(image: Image.Image, least: int, most: int) -> Image.Image:
    """`image` with at least and at most so many pixels, within the vision tower's limits."""
    if image.width * image.height > most:
        image = _scale_to(image, most)
    if image.width * image.height < least:
        image = _scale_to(image, least)
    if min(image.size) < _MIN_SIDE:
        image = image.resize((max(image.width, _MIN_SIDE), max(image.height, _MIN_SIDE)))
    if image.width / image.height > _MAX_RATIO:
        image = image.resize((image.height * _REPLACEMENT_RATIO, image.height))
    if image.height / image.width > _MAX_RATIO:
        image = image.resize((image.width, image.width * _REPLACEMENT_RATIO))
    return image


def _scale_to(image: Image.Image, pixels: int) -> Image.Image:
    factor = math.sqrt(pixels / (image.width * image.height))
    return image.resize((int(image.width * factor), int(image.height * factor)))
