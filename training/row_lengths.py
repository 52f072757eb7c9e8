"""Length of training rows in tokens, pictures included: longer ones than a trainer's limit are left
out before it sees them, and named in a file of the job's folder.

LLaMA-Factory would cut them off, and with them the tokens of pictures; verl would end.
"""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import orjson

from schemas import FoundryError

LEFT_OUT = "left-out.jsonl"
_IMAGE, _IMAGE_ENDS = "<image>", "<|vision_start|><|vision_end|>"
_NO_THOUGHT = "<think>\n\n</think>\n\n"  # added where an answer has no thoughts
_MIN_SIDE = 28  # of LLaMA-Factory
_SIZES = 100_000  # of pictures, remembered


class TokenCounter:
    """Counts tokens as the trainers do, for models of the Qwen3-VL family.

    Args:
        parent: folder of the model; or its id on the hub, whose tokenizer is downloaded.
        max_pixels: larger pictures are shrunk to this.
        min_pixels: smaller ones are enlarged to this.
    """

    def __init__(self, parent: Path | str, max_pixels: int, min_pixels: int = 0) -> None:
        self._parent, self._max_pixels, self._min_pixels = parent, max_pixels, min_pixels

    def count(
        self, messages: Sequence[Mapping[str, str]], images: Sequence[tuple[int, int]]
    ) -> int:
        """Tokens of a row: its messages, and its pictures, given as (width, height) in pixels.

        A last message of the user is followed by what asks for an answer.
        """
        text = "".join(map(_turn, messages))
        if messages[-1]["role"] != "assistant":
            text += "<|im_start|>assistant\n"
        encoded = self._tokenizer.encode(text.replace(_IMAGE, _IMAGE_ENDS))
        return len(encoded) + sum(self._image_tokens(*size) for size in images)

    @cached_property
    def _tokenizer(self) -> Any:
        from tokenizers import Tokenizer

        file = Path(self._parent, "tokenizer.json")
        if file.is_file():
            return Tokenizer.from_file(str(file))
        try:
            return Tokenizer.from_pretrained(str(self._parent))
        except Exception as error:  # whatever the hub's client raises
            raise FoundryError(
                f"{self._parent} has no tokenizer.json, which counts the tokens of rows"
            ) from error

    @cached_property
    def _processor(self) -> dict[str, Any]:
        for name in ("preprocessor_config.json", "processor_config.json"):
            file = Path(self._parent, name)
            if file.is_file():
                content: dict[str, Any] = json.loads(file.read_bytes())
                return content.get("image_processor", content)
        return {}

    def _image_tokens(self, width: int, height: int) -> int:
        """The processor makes sides multiples of a merged patch, and a token of each of these."""
        size = self._processor.get("size", {})
        side = self._processor.get("patch_size", 16) * self._processor.get("merge_size", 2)
        most = min(self._max_pixels, size.get("longest_edge", self._max_pixels))
        least = max(self._min_pixels, size.get("shortest_edge", 0))
        if width * height > self._max_pixels:
            width, height = _scaled(width, height, self._max_pixels)
        if width * height < self._min_pixels:
            width, height = _scaled(width, height, self._min_pixels)
        width, height = max(width, _MIN_SIDE), max(height, _MIN_SIDE)
        columns, rows = max(1, round(width / side)), max(1, round(height / side))
        ratio = math.sqrt(width * height)
        if columns * rows * side**2 > most:
            shrink = math.sqrt(most) / ratio / side
            columns, rows = (max(1, math.floor(each * shrink)) for each in (width, height))
        elif columns * rows * side**2 < least:
            enlarge = math.sqrt(least) / ratio / side
            columns, rows = (math.ceil(each * enlarge) for each in (width, height))
        return columns * rows


class LeftOut:
    """Writes the rows that are left out to a file of the job's folder; without some there is none.

    Args:
        limit: the trainer's, as a setting and its value.
    """

    def __init__(self, folder: Path, limit: str) -> None:
        self.count = 0
        self._limit, self._target = limit, folder / LEFT_OUT
        self._draft = folder / f".{LEFT_OUT}"
        self._file = self._draft.open("wb")

    def add(self, **row: Any) -> None:
        """A row's name, and its `tokens`."""
        named = {**row, "reason": f"longer than {self._limit}"}
        self._file.write(orjson.dumps(named, option=orjson.OPT_APPEND_NEWLINE))
        self.count += 1

    def publish(self, total: int, log: Callable[[str], object]) -> None:
        """Give the file its name, and log how many of all rows are in it.

        Raises:
            FoundryError: all rows are left out.
        """
        self._file.close()
        if self.count and self.count == total:
            raise FoundryError(f"all {total} rows are longer than {self._limit}: raise it")
        if self.count:
            self._draft.replace(self._target)
            many = f"{self.count} of {total} rows"
            log(f"{many} are longer than {self._limit}: see {self._target.name}")
        else:
            self._target.unlink(missing_ok=True)

    def __enter__(self) -> "LeftOut":
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
        self._draft.unlink(missing_ok=True)


@lru_cache(_SIZES)
def image_size(path: Path) -> tuple[int, int]:
    """Width and height in pixels.

    Raises:
        FoundryError: the file is no picture.
    """
    from PIL import Image

    try:
        with Image.open(path) as opened:
            return opened.size
    except OSError as error:
        raise FoundryError(f"{path} cannot be read: materialize `exports`") from error


def left_out_metrics(folder: Path) -> dict[str, float]:
    """`rows_left_out`, where there are some."""
    file = folder / LEFT_OUT
    if not file.is_file():
        return {}
    with file.open("rb") as lines:
        return {"rows_left_out": float(sum(1 for _ in lines))}


def _turn(message: Mapping[str, str]) -> str:
    role, content = message["role"], message["content"]
    if role == "assistant" and "<think>" not in content and "</think>" not in content:
        content = _NO_THOUGHT + content
    return f"<|im_start|>{role}\n{content}<|im_end|>\n"


def _scaled(width: int, height: int, pixels: int) -> tuple[int, int]:
    factor = math.sqrt(pixels / (width * height))
    return int(width * factor), int(height * factor)
