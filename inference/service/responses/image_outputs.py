"""Pictures are filled into a payload when it is sent: until then they are held once, as bytes."""

import asyncio
import base64
from collections.abc import Mapping
from typing import Any

import orjson

from warehouse import EncodedImage, Home

Json = dict[str, Any]
Pictures = Mapping[str, EncodedImage]

_PARTIAL = "response.image_generation_call.partial_image"
_AT_ONCE_BYTES = 500_000  # what is larger would keep other requests waiting


async def encoded(payload: Json, pictures: Pictures) -> bytes:
    """A payload as JSON, with the pictures of its items.

    Args:
        payload: an event, or a Response.
        pictures: by item id.
    """
    if sum(len(picture.data) for picture in pictures.values()) > _AT_ONCE_BYTES:
        return await asyncio.to_thread(_encoded, payload, pictures)
    return _encoded(payload, pictures)


def pictures_of(response: Json, home: Home) -> dict[str, EncodedImage]:
    """The pictures of a kept Response.

    Raises:
        BadImageError: one is not there any more.
    """
    generation_id = response["interleave"]["generation_id"]
    return {
        f"ig_{generation_id}_{step['number']}": home.images.get(step["picture"])
        for step in response["interleave"]["steps"]
        if step["picture"]
    }


def _encoded(payload: Json, pictures: Pictures) -> bytes:
    return orjson.dumps(_filled(payload, pictures) if pictures else payload)


def _filled(payload: Json, pictures: Pictures) -> Json:
    if payload.get("type") == _PARTIAL:
        return payload | {"partial_image_b64": _base64(pictures[payload["item_id"]])}
    if "item" in payload:
        return payload | {"item": _item(payload["item"], pictures)}
    if "response" in payload:
        return payload | {"response": _filled(payload["response"], pictures)}
    if "output" in payload:
        return payload | {"output": [_item(item, pictures) for item in payload["output"]]}
    return payload


def _item(item: Json, pictures: Pictures) -> Json:
    picture = pictures.get(item["id"])
    return item | {"result": _base64(picture)} if picture else item


def _base64(picture: EncodedImage) -> str:
    return base64.b64encode(picture.data).decode()
