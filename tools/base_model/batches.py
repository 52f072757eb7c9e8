"""Samples as tensors, in Qwen's chat format."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image

from .architecture import MERGE, PATCH
from .pretraining_samples import MARKS, TrainingSample

if TYPE_CHECKING:
    import torch
    from transformers import Qwen2Tokenizer

_IGNORED = -100  # label that the loss leaves out


class Collator:
    """Makes padded tensors of samples; only answers count in the loss."""

    def __init__(self, tokenizer: "Qwen2Tokenizer") -> None:
        self._tokenizer = tokenizer
        ids = tokenizer.get_vocab()
        self._image, self._pad = ids["<|image_pad|>"], ids["<|endoftext|>"]
        text = {token: str(tokenizer.decode([token])) for token in ids.values()}
        self._marks = {token for token, words in text.items() if words.strip(" ,.\n") in MARKS}

    def __call__(self, samples: Sequence[TrainingSample]) -> dict[str, Any]:
        """Model inputs: ids, mask, labels of shape (samples, length); patches of any images."""
        import torch
        from torch.nn.utils.rnn import pad_sequence

        def pad(rows: Iterable[list[int]], value: int) -> torch.Tensor:
            return pad_sequence([torch.tensor(row) for row in rows], True, value)

        turns = [self._turns(sample) for sample in samples]
        ids = pad((prompt + answer for prompt, answer in turns), self._pad)
        mask = pad(([1] * len(prompt + answer) for prompt, answer in turns), 0)
        labels = pad(map(self._labels, turns, samples), _IGNORED)
        inputs = {"input_ids": ids, "attention_mask": mask, "labels": labels}
        if images := [image for sample in samples for image in sample.images]:
            inputs |= {"mm_token_type_ids": (ids == self._image).long(), **pixels(images)}
        return inputs

    def length(self, sample: TrainingSample) -> int:
        return sum(map(len, self._turns(sample)))

    def _labels(self, turns: tuple[list[int], list[int]], sample: TrainingSample) -> list[int]:
        prompt, answer = turns
        if sample.marks_only:
            answer = [token if token in self._marks else _IGNORED for token in answer]
        return [_IGNORED] * len(prompt) + answer

    def _turns(self, sample: TrainingSample) -> tuple[list[int], list[int]]:
        """Token ids of the user's turn and of the answer."""
        images = "".join(
            f"<|vision_start|>{'<|image_pad|>' * _visual_tokens(image)}<|vision_end|>"
            for image in sample.images
        )
        label = "\nGoal" if sample.images else "Request"
        question = f"{label}: {sample.question}" if sample.question else ""
        prompt = f"<|im_start|>user\n{images}{question}<|im_end|>\n<|im_start|>assistant\n"
        return self._ids(prompt), self._ids(f"{sample.answer}<|im_end|>")

    def _ids(self, text: str) -> list[int]:
        return list(self._tokenizer(text)["input_ids"])


def _visual_tokens(image: Image.Image) -> int:
    side = PATCH * MERGE
    return (image.width // side) * (image.height // side)


def pixels(images: Sequence[Image.Image]) -> "dict[str, torch.Tensor]":
    """Patches as Qwen's image processor cuts them: (all patches, channels x 2 frames x 16 x 16)."""
    import torch

    grids = [(1, image.height // PATCH, image.width // PATCH) for image in images]
    return {
        "pixel_values": torch.from_numpy(np.concatenate([_patches(image) for image in images])),
        "image_grid_thw": torch.tensor(grids),
    }


def _patches(image: Image.Image) -> np.ndarray:
    values = np.asarray(image, dtype=np.float32).transpose(2, 0, 1) / 127.5 - 1
    channels, rows, columns = 3, image.height // PATCH, image.width // PATCH
    frames = np.broadcast_to(values, (2, *values.shape))
    blocks = frames.reshape(
        2, channels, rows // MERGE, MERGE, PATCH, columns // MERGE, MERGE, PATCH
    )
    # row blocks, column blocks, rows and columns within a block, channels, frames, pixels
    ordered = blocks.transpose(2, 5, 3, 6, 1, 0, 4, 7)
    return ordered.reshape(rows * columns, channels * 2 * PATCH * PATCH)
