"""OpenAI's answers."""

import base64
import time
from collections.abc import Sequence
from typing import Any

from ..backends.diffusers.generation_spec import GenerationSpec
from .models import ServableImageModel
from .ray_replicas import Readiness
from .replica import DrawnImages


def pictures(drawings: Sequence[GenerationSpec], drawn: Sequence[DrawnImages]) -> dict[str, Any]:
    """Pictures in the order asked for; each says the seed that draws it again."""
    data = [
        {"b64_json": base64.b64encode(picture.data).decode(), "seed": drawing.seed}
        for drawing, picture in zip(drawings, drawn, strict=True)
    ]
    return {"created": int(time.time()), "data": data, "output_format": "png"}


def model(served: ServableImageModel) -> dict[str, Any]:
    """A model as `/v1/models` describes it."""
    return {"id": served.name, "object": "model", "created": 0, "owned_by": "interleave-foundry"}


def models(served: ServableImageModel) -> dict[str, Any]:
    return {"object": "list", "data": [model(served)]}


def readiness(seen: Readiness) -> dict[str, Any]:
    """What `/ready` says where some replica can draw."""
    return {"ready": True, "replicas": seen.running, "wanted": seen.wanted, "reason": seen.reason}
