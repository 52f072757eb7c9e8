"""Ids, hashes and seeds that are the same on every machine and in every run."""

import hashlib
from typing import Any

import orjson
from pydantic import BaseModel


def stable_hash(*parts: Any) -> str:
    """The first 128 bits of sha256 over `parts` as canonical JSON, in hex."""
    return content_digest(parts)[:32]


def content_digest(content: object) -> str:
    """sha256 of `content` as canonical JSON, in hex; of settings, what they set otherwise than the
    defaults, so that a new setting with a default changes no hash."""
    text = orjson.dumps(content, _changed_settings, orjson.OPT_SORT_KEYS)
    return hashlib.sha256(text).hexdigest()


def _changed_settings(value: object) -> object:
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json", exclude_defaults=True)
    raise TypeError(f"{type(value).__name__} has no JSON form")


def unit_interval(text: str) -> float:
    """A number from 0 to below 1 that follows from `text`, evenly spread."""
    return int(hashlib.sha256(text.encode()).hexdigest()[:8], 16) / 2**32


def attempt_seed(seed: int, prompt_id: str, step_number: int, iteration: int) -> int:
    """The seed of one generator call.

    Seeds of a step are consecutive from a hashed start, so that no retry repeats an earlier one.
    """
    start = int(stable_hash("seed", seed, prompt_id, step_number), 16)
    return (start + iteration) % 2**31  # some generators have signed 32-bit seeds
