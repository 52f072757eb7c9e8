"""What a Response was made from, as items of the API; stored with the request, without images.

An image of an item is `None`, or the sha256 of one that the generation began with.
"""

from collections.abc import Mapping, Sequence

from warehouse import ImageStore

from ...events import LazyImage
from ..request_models import Json
from ..run import GenerationRun
from ..serving import Order, Page, page_of
from .protocol import InputImage, InputImageCall, Item, ItemReference, Part, item_param, part_param

WITH_IMAGES = "message.input_image.image_url"
"""Value of `include` that asks for images."""


def items_to_store(items: str | Sequence[Item], images: Mapping[str, str]) -> list[Json]:
    """A request's items in order. `images`: place in the request -> sha256, of images in use."""
    if isinstance(items, str):
        return [_message("user", [_text("user", items)])]
    return [_item(item, item_param(number), images) for number, item in enumerate(items)]


def list_items(
    run: GenerationRun,
    images: ImageStore | None,
    after: str | None = None,
    limit: int = 20,
    order: Order = "desc",
) -> Page:
    """A page of a request's items. `images`: with images, from this store.

    Raises:
        APIError: there is no item `after`.
        BadImageError: an image is missing.
    """
    items = [_named(item, run, number) for number, item in enumerate(_items(run))]
    if order == "desc":
        items.reverse()
    page = page_of(items, after, limit, "item")
    return page.model_copy(update={"data": [_with_images(item, images) for item in page.data]})


def _item(item: Item, param: str, images: Mapping[str, str]) -> Json:
    if isinstance(item, ItemReference) and not item.id.startswith("ig_"):
        return _message("assistant", []) | {"id": item.id}  # its text is not read again
    if isinstance(item, ItemReference | InputImageCall):
        image = images.get(f"{param}.result") or images.get(f"{param}.id")
        call = {"type": "image_generation_call", "id": item.id, "status": "completed"}
        return call | {"result": image}
    if isinstance(item.content, str):
        return _message(item.role, [_text(item.role, item.content)])
    parts = enumerate(item.content)
    content = [_part(item.role, part, part_param(param, number), images) for number, part in parts]
    return _message(item.role, content)


def _part(role: str, part: Part, param: str, images: Mapping[str, str]) -> Json:
    if isinstance(part, InputImage):
        image = {"type": part.type, "detail": part.detail or "auto", "file_id": part.file_id}
        name = "file_id" if part.file_id else "image_url"
        return image | {"image_url": images.get(f"{param}.{name}")}
    if part.type == "refusal":
        return {"type": part.type, "refusal": part.refusal}
    return _text(role, part.text)


def _message(role: str, content: list[Json]) -> Json:
    return {"type": "message", "role": role, "status": "completed", "content": content}


def _text(role: str, text: str) -> Json:
    if role == "assistant":
        return {"type": "output_text", "text": text, "annotations": []}
    return {"type": "input_text", "text": text}


def _items(run: GenerationRun) -> list[Json]:
    """Of a request of another API: all of it as one message."""
    if items := run.fields.get("input"):
        return list(items)
    image = {"type": "input_image", "detail": "auto", "file_id": None}
    images = [image | {"image_url": sha256} for sha256 in run.input_images]
    return [_message("user", [_text("user", run.request.text), *images])]


def _named(item: Json, run: GenerationRun, number: int) -> Json:
    return item | {"id": item.get("id") or f"msg_{run.request.generation_id}_input_{number}"}


def _with_images(item: Json, images: ImageStore | None) -> Json:
    def load(sha256: str | None) -> LazyImage | None:
        return LazyImage(images, sha256) if images and sha256 else None

    if item["type"] == "image_generation_call":
        image = load(item["result"])
        return item | {"result": image and image.data_url.partition(",")[2]}
    content = []
    for part in item["content"]:
        if part["type"] == "input_image":
            image = load(part["image_url"])
            part = part | {"image_url": image and image.data_url}
        content.append(part)
    return item | {"content": content}
