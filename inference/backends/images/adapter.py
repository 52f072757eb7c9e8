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
    """A question with pictures is an edit of them, one without is drawn from nothing."""

    async def answer(self, client: "AsyncOpenAI", question: CompletionRequest) -> CompletionResult:
        parts = [part for turn in question.turns for part in turn.parts]
        pictures = [part for part in parts if isinstance(part, EncodedImage)]
        prompt = "\n".join(part for part in parts if isinstance(part, str))
        request = _request(question, prompt)
        with translate_errors(client):
            if pictures:
                files = [_file(number, each) for number, each in enumerate(pictures)]
                return _reply(await client.images.edit(image=files, **request))
            return _reply(await client.images.generate(**request))


def _request(question: CompletionRequest, prompt: str) -> dict[str, Any]:
    """Seed, steps and the like are no fields of OpenAI's; open servers take them beside those."""
    more = dict(question.options)
    if question.seed is not None:
        more["seed"] = question.seed
    request: dict[str, Any] = {"model": question.model, "prompt": prompt, "n": 1}
    if "size" in more:
        request["size"] = more.pop("size")
    return request | {"response_format": "b64_json", "extra_body": more}


def _file(number: int, picture: EncodedImage) -> tuple[str, bytes, str]:
    kind = picture.mime.removeprefix("image/")
    return f"picture-{number}.{kind}", picture.data, picture.mime


def _reply(response: "ImagesResponse") -> CompletionResult:
    encoded = [image.b64_json for image in response.data or () if image.b64_json]
    usage = response.usage
    try:
        drawn = tuple(EncodedImage(base64.b64decode(each, validate=True)) for each in encoded)
    except binascii.Error as error:
        raise RetryableError(f"unreadable picture: {error}") from None
    return CompletionResult(
        text="",
        pictures=drawn,
        input_tokens=usage.input_tokens if usage else 0,
        output_tokens=usage.output_tokens if usage else 0,
    )
