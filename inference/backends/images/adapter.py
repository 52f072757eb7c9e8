"""/v1/images/generations and /v1/images/edits through the official client."""

import base64
import binascii
from typing import TYPE_CHECKING, Any

from warehouse import EncodedImage

from ...roles import RetryableError
from ..openai.client import OpenAIAdapter, translate_errors
from ..providers.chat import CompletionRequest, CompletionResult

if TYPE_CHECKING:
    from openai import AsyncOpenAI
    from openai.types import ImagesResponse


class ImagesAdapter(OpenAIAdapter):
    """A request with images is an edit of them, one without generates from text alone."""

    async def complete(self, client: "AsyncOpenAI", request: CompletionRequest) -> CompletionResult:
        parts = [part for turn in request.turns for part in turn.parts]
        images = [part for part in parts if isinstance(part, EncodedImage)]
        prompt = "\n".join(part for part in parts if isinstance(part, str))
        arguments = _arguments(request, prompt)
        with translate_errors(client):
            if images:
                files = [_file(number, image) for number, image in enumerate(images)]
                return _parse(await client.images.edit(image=files, **arguments))
            return _parse(await client.images.generate(**arguments))


def _arguments(request: CompletionRequest, prompt: str) -> dict[str, Any]:
    """Arguments of the client; `extra_body` (seed, steps ...) is for servers other than OpenAI."""
    extra = dict(request.options)
    if request.seed is not None:
        extra["seed"] = request.seed
    arguments: dict[str, Any] = {"model": request.model, "prompt": prompt, "n": 1}
    if "size" in extra:
        arguments["size"] = extra.pop("size")
    return arguments | {"response_format": "b64_json", "extra_body": extra}


def _file(number: int, image: EncodedImage) -> tuple[str, bytes, str]:
    kind = image.mime.removeprefix("image/")
    return f"picture-{number}.{kind}", image.data, image.mime


def _parse(response: "ImagesResponse") -> CompletionResult:
    encoded = [image.b64_json for image in response.data or () if image.b64_json]
    usage = response.usage
    try:
        images = tuple(EncodedImage(base64.b64decode(each, validate=True)) for each in encoded)
    except binascii.Error as error:
        raise RetryableError(f"unreadable image: {error}") from None
    return CompletionResult(
        text="",
        images=images,
        input_tokens=usage.input_tokens if usage else 0,
        output_tokens=usage.output_tokens if usage else 0,
    )
