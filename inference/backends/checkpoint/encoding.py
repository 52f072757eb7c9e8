"""Questions as tokens and pixels, by default as LLaMA-Factory's template `qwen3_vl` writes them.

One turn of the user, no system message, and the assistant's turn begun with nothing in it: the
answers that were trained on begin with `<think>` themselves. The template of the checkpoint is not
asked, since some versions of it begin the answer with `<think>`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from PIL import Image

from warehouse import EncodedImage

from ...agent_prompts import IMAGE
from .decoding import PromptBatch

if TYPE_CHECKING:
    import torch

_IMAGE_PAD = "<|image_pad|>"


@dataclass(frozen=True)
class PromptLayout:
    """What stands around a question: `turn` around all of it, `picture` around each picture.

    `{}` is the place of what it stands around, `{number}` that of the picture's number, from 1.
    """

    turn: str = "<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n"
    picture: str = "<|vision_start|>{}<|vision_end|>"


@dataclass(frozen=True)
class AgentQuery:
    """A user's turn with an `<image>` for each picture, and how long the answer may become.

    `seed` is that of the answer, where answers are drawn.
    """

    text: str
    pictures: tuple[EncodedImage, ...] = ()
    max_new_tokens: int = 1024
    seed: int = 0


@dataclass(frozen=True)
class Prompt:
    """A question as the model reads it.

    `pixels` is patches x values and `grids` pictures x 3 (time, rows, columns of patches).
    """

    tokens: list[int]
    limit: int
    pixels: "torch.Tensor | None" = None
    grids: "torch.Tensor | None" = None
    seed: int = 0

    @property
    def room(self) -> int:
        """Tokens at the end of the longest answer."""
        return len(self.tokens) + self.limit


class Encoder:
    """Writes prompts for one checkpoint.

    Args:
        tokenizer, image_processor: those of transformers, from the checkpoint's folder.
        fit: what is done to a picture before the image processor sees it.
    """

    def __init__(
        self,
        tokenizer: Any,
        image_processor: Any,
        fit: Callable[[Image.Image], Image.Image],
        layout: PromptLayout | None = None,
    ) -> None:
        self._tokenizer, self._images, self._fit = tokenizer, image_processor, fit
        self._layout = layout or PromptLayout()
        self._image_token = tokenizer.convert_tokens_to_ids(_IMAGE_PAD)

    def encode(self, question: AgentQuery) -> Prompt:
        """Raises `BadImageError` for a picture that cannot be decoded."""
        if not question.pictures:
            tokens = self._tokens(question.text, [])
            return Prompt(tokens, question.max_new_tokens, seed=question.seed)
        images = [self._fit(picture.image) for picture in question.pictures]
        seen = self._images(images=images, return_tensors="pt")
        grids = seen["image_grid_thw"]
        counts = (grids.prod(-1) // self._images.merge_size**2).tolist()
        tokens = self._tokens(question.text, counts)
        pixels = seen["pixel_values"]
        return Prompt(tokens, question.max_new_tokens, pixels, grids, question.seed)

    def pad(self, prompts: Sequence[Prompt], device: str) -> PromptBatch:
        """Prompts side by side, their ends aligned."""
        import torch

        longest = max(len(prompt.tokens) for prompt in prompts)
        blank = self._tokenizer.pad_token_id
        lacking = [longest - len(prompt.tokens) for prompt in prompts]
        tokens = torch.tensor(
            [[blank] * n + p.tokens for n, p in zip(lacking, prompts, strict=True)]
        )
        mask = torch.tensor([[0] * n + [1] * (longest - n) for n in lacking])
        kinds = (tokens == self._image_token).int()
        inputs = {"input_ids": tokens, "attention_mask": mask, "mm_token_type_ids": kinds}
        inputs |= _pictures(prompts)
        on_device = {name: tensor.to(device) for name, tensor in inputs.items()}
        limits, seeds = [prompt.limit for prompt in prompts], [prompt.seed for prompt in prompts]
        return PromptBatch(on_device, limits, seeds)

    def decode(self, tokens: Sequence[int]) -> str:
        return str(self._tokenizer.decode(tokens, skip_special_tokens=True))

    def _tokens(self, text: str, counts: Sequence[int]) -> list[int]:
        first, *rest = (_without_marks(piece) for piece in text.split(IMAGE))
        if len(rest) != len(counts):
            raise ValueError(f"{len(rest)} image placeholders for {len(counts)} pictures")
        seen = (
            self._layout.picture.format(_IMAGE_PAD * count, number=number) + piece
            for number, (count, piece) in enumerate(zip(counts, rest, strict=True), start=1)
        )
        turn = self._layout.turn.format("".join((first, *seen)))
        return list(self._tokenizer.encode(turn, add_special_tokens=False))


def _without_marks(text: str) -> str:
    """Text in which nothing is taken for one of the model's own marks, such as `<|im_end|>`."""
    return text.replace("<|", "< |")


def _pictures(prompts: Sequence[Prompt]) -> "dict[str, torch.Tensor]":
    import torch

    pixels = [prompt.pixels for prompt in prompts if prompt.pixels is not None]
    grids = [prompt.grids for prompt in prompts if prompt.grids is not None]
    if not pixels:
        return {}
    return {"pixel_values": torch.cat(pixels), "image_grid_thw": torch.cat(grids)}
