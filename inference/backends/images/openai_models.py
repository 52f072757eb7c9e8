"""OpenAI's image models: the sizes and values that each takes, and how many images.

Source: openai-python 3.52.0, docstrings of `types/image_generate_params.py` and
`types/image_edit_params.py`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

MAX_REFERENCES = 16
_OPENAI_HOST = "api.openai.com"
_STANDARD_SIZES = ((1024, 1024), (1536, 1024), (1024, 1536))
_STEP, _MAX_RATIO, _MAX_SIDES = 16, 3, (3840, 2160)
_QUALITIES = ("auto", "low", "medium", "high")
_RETIRED = ("dall-e-2", "dall-e-3")


@dataclass(frozen=True)
class OpenAIModel:
    """Rules of the models whose names begin with `prefix`."""

    prefix: str
    any_size: bool = False
    qualities: tuple[str, ...] = _QUALITIES
    input_fidelity: tuple[str, ...] = ()


# The first that fits counts.
_MODELS = (
    OpenAIModel("gpt-image-1-mini", input_fidelity=("low",)),
    OpenAIModel("gpt-image-1", input_fidelity=("low", "high")),
    OpenAIModel("gpt-image-2.", any_size=True, qualities=(*_QUALITIES, "xhigh", "max")),
    OpenAIModel("gpt-image-", any_size=True),
    OpenAIModel("chatgpt-image-", input_fidelity=("low", "high")),
)


def is_openai(model: str, urls: Sequence[str | None]) -> bool:
    """Whether a model is OpenAI's by its name, or by all of its endpoints; None is OpenAI's own."""
    named = model in _RETIRED or _rules(model) is not None
    return named or all(url is None or _OPENAI_HOST in url for url in urls)


def drawn_size(model: str, size: str) -> str:
    """The size that a model draws for a wanted one: of all that it takes, the nearest in shape.

    Models of any size get sides that are multiples of 16. Raises ValueError if none is near.
    """
    width, height = map(int, size.split("x"))
    rules = _rules(model)
    if rules is None:
        return size
    if not rules.any_size:
        shape = width / height
        nearest = min(
            _STANDARD_SIZES,
            key=lambda each: max(shape * each[1] / each[0], each[0] / each[1] / shape),
        )
        return "{}x{}".format(*nearest)
    width, height = (max(_STEP, round(side / _STEP) * _STEP) for side in (width, height))
    longer, shorter = max(width, height), min(width, height)
    if longer > _MAX_RATIO * shorter or longer > _MAX_SIDES[0] or shorter > _MAX_SIDES[1]:
        raise ValueError(f"size: {model} draws up to 3840x2160, in shapes from 1:3 to 3:1")
    return f"{width}x{height}"


def problem_with(model: str, parameters: Mapping[str, object]) -> str | None:
    """Why a model does not take a value, and what to do; None: it takes all."""
    if model in _RETIRED:
        return f"model: OpenAI has retired {model}; name another, such as gpt-image-2"
    rules = _rules(model)
    if rules is None:
        return None
    for name, allowed in (("quality", rules.qualities), ("input_fidelity", rules.input_fidelity)):
        if parameters.get(name) in (None, *allowed):
            continue
        values = f"takes {' or '.join(allowed)}" if allowed else "has none; leave it out"
        return f"{name}: {model} {values}"
    return None


def _rules(model: str) -> OpenAIModel | None:
    """None: a name that is not OpenAI's, such as a deployment's."""
    return next((known for known in _MODELS if model.startswith(known.prefix)), None)
