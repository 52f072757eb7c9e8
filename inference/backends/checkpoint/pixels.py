"""Pictures as the model saw them in training.

LLaMA-Factory changes the size of a picture before the image processor of the model does, with
Pillow's default filter; the same picture must come to the same pixels here.
"""

import math

from PIL import Image

# Below this side and above this ratio the vision tower's patches do not fit (Qwen2-VL's limits).
_SHORTEST_SIDE = 28
_HIGHEST_RATIO, _RATIO_INSTEAD = 200, 180


def resize_to_pixels(image: Image.Image, least: int, most: int) -> Image.Image:
    """`image` with at least and at most so many pixels, within the vision tower's limits."""
    if image.width * image.height > most:
        image = _scaled_to(image, most)
    if image.width * image.height < least:
        image = _scaled_to(image, least)
    if min(image.size) < _SHORTEST_SIDE:
        image = image.resize((max(image.width, _SHORTEST_SIDE), max(image.height, _SHORTEST_SIDE)))
    if image.width / image.height > _HIGHEST_RATIO:
        image = image.resize((image.height * _RATIO_INSTEAD, image.height))
    if image.height / image.width > _HIGHEST_RATIO:
        image = image.resize((image.width, image.width * _RATIO_INSTEAD))
    return image


def _scaled_to(image: Image.Image, pixels: int) -> Image.Image:
    factor = math.sqrt(pixels / (image.width * image.height))
    return image.resize((int(image.width * factor), int(image.height * factor)))
