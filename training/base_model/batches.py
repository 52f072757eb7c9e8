"""Lessons as tensors, in Qwen's chat format."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image

from .architecture import MERGE, PATCH
from .pretraining_samples import MARKS, Lesson

if TYPE_CHECKING:
    import torch
    from transformers import Qwen2Tokenizer


class SampleBatches:
    """Lessons as padded tensors; the loss counts the answers alone."""

    def __init__(self, tokenizer: "Qwen2Tokenizer") -> None:
        self._tokenizer = tokenizer
        ids = tokenizer.get_vocab()
        self._image, self._pad = ids["<|image_pad|>"], ids["<|endoftext|>"]
        text = {token: str(tokenizer.decode([token])) for token in ids.values()}
        self._marks = {token for token, words in text.items() if words.strip(" ,.\n") in MARKS}

    def of(self, lessons: Sequence[Lesson]) -> dict[str, Any]:
        """Model inputs: ids, mask, labels of shape (lessons, length); patches of any pictures."""
        import torch

        turns = [self._turns(lesson) for lesson in lessons]
        length = max(len(asked) + len(answered) for asked, answered in turns)
        ids = torch.full((len(turns), length), self._pad)
        mask, labels = torch.zeros_like(ids), torch.full_like(ids, -100)
        for row, (asked, answered) in enumerate(turns):
            end = len(asked) + len(answered)
            ids[row, :end] = torch.tensor(asked + answered)
            mask[row, :end] = 1
            labels[row, len(asked) : end] = torch.tensor(self._learned(answered, lessons[row]))
        inputs = {"input_ids": ids, "attention_mask": mask, "labels": labels}
        if pictures := [picture for lesson in lessons for picture in lesson.pictures]:
            inputs |= {"mm_token_type_ids": (ids == self._image).long(), **pixels(pictures)}
        return inputs

    def _learned(self, answered: list[int], lesson: Lesson) -> list[int]:
        """The answer, with -100 for tokens that do not count."""
        if not lesson.marks_only:
            return answered
        return [token if token in self._marks else -100 for token in answered]

    def length(self, lesson: Lesson) -> int:
        """Tokens of a lesson."""
        return sum(map(len, self._turns(lesson)))

    def _turns(self, lesson: Lesson) -> tuple[list[int], list[int]]:
        """Ids of the user's turn and of the answer, in Qwen's chat format."""
        marks = "".join(
            f"<|vision_start|>{'<|image_pad|>' * _tokens(picture)}<|vision_end|>"
            for picture in lesson.pictures
        )
        word = "\nGoal" if lesson.pictures else "Request"
        question = f"{word}: {lesson.question}" if lesson.question else ""
        asked = f"<|im_start|>user\n{marks}{question}<|im_end|>\n<|im_start|>assistant\n"
        answered = f"{lesson.answer}<|im_end|>"
        return self._ids(asked), self._ids(answered)

    def _ids(self, text: str) -> list[int]:
        return list(self._tokenizer(text)["input_ids"])


def _tokens(picture: Image.Image) -> int:
    """Visual tokens of a picture."""
    side = PATCH * MERGE
    return (picture.width // side) * (picture.height // side)


def pixels(pictures: Sequence[Image.Image]) -> "dict[str, torch.Tensor]":
    """Patches as Qwen's image processor cuts them: (all patches, channels x 2 frames x 16 x 16)."""
    import torch

    cut = [_patches(picture) for picture in pictures]
    grids = [(1, p.height // PATCH, p.width // PATCH) for p in pictures]
    return {
        "pixel_values": torch.from_numpy(np.concatenate(cut)),
        "image_grid_thw": torch.tensor(grids),
    }


def _patches(picture: Image.Image) -> np.ndarray:
    pixels = np.asarray(picture, dtype=np.float32).transpose(2, 0, 1) / 127.5 - 1
    channels, rows, columns = 3, picture.height // PATCH, picture.width // PATCH
    frames = np.broadcast_to(pixels, (2, *pixels.shape))
    blocks = frames.reshape(
        2, channels, rows // MERGE, MERGE, PATCH, columns // MERGE, MERGE, PATCH
    )
    # row blocks, column blocks, rows and columns within a block, channels, frames, pixels
    ordered = blocks.transpose(2, 5, 3, 6, 1, 0, 4, 7)
    return ordered.reshape(rows * columns, channels * 2 * PATCH * PATCH)
