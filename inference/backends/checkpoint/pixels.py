"""Image sizes as in training.

LLaMA-Factory resizes an image before the image processor of the model does, with
Pillow's default filter; the same image must become the same pixels here.
"""

import math

from PIL import Image

# Limits of the vision tower's patches (Qwen2-VL); images beyond the ratio get the replacement.
_MIN_SIDE = 28
_MAX_RATIO, _REPLACEMENT_RATIO = 200, 180


def resize_to_pixels(image: Image.Image, least: int, most: int) -> Image.Image:
    """`image` with at least and at most so many pixels, within the vision tower's limits."""
    if image.width * image.height > most:
        image = _scale_to(image, most)
    if image.width * image.height < least:
        image = _scale_to(image, least)
    if min(image.size) < _MIN_SIDE:
        image = image.resize((max(image.width, _MIN_SIDE), max(image.height, _MIN_SIDE)))
    if image.width / image.height > _MAX_RATIO:
        image = image.resize((image.height * _REPLACEMENT_RATIO, image.height))
    if image.height / image.width > _MAX_RATIO:
        image = image.resize((image.width, image.width * _REPLACEMENT_RATIO))
    return image


def _scale_to(image: Image.Image, pixels: int) -> Image.Image:
    factor = math.sqrt(pixels / (image.width * image.height))
    return image.resize((int(image.width * factor), int(image.height * factor)))
