"""How backgrounds and things look, drawn in unit coordinates on a canvas.

Backgrounds are plain and pale or plain and dark, so that every thing is readable on them. Most are
data of `drawings.json`: each shape is a method of `Canvas` and its arguments, colours are recipes
(see `_mix_recipe`). Functions draw patterns, and things that depend on their colour.
"""

import json
import math
from collections.abc import Callable
from functools import partial
from importlib import resources
from typing import Any

from PIL import ImageColor

from .canvas import GOLD, INK, PAPER, RGB, WHITE, Canvas, mix, shade, tint

_CONTENT = json.loads(resources.files(__package__).joinpath("drawings.json").read_text("utf-8"))
_PALETTE: dict[str, RGB] = {name: (r, g, b) for name, (r, g, b) in _CONTENT["palette"].items()}
_STEM = _PALETTE["stem"]
_LAMPS = (((214, 48, 49), 0.22), ((248, 206, 50), 0.43), ((58, 158, 76), 0.64))


def _draw_shapes(shapes: list[list[Any]], c: Canvas, colour: RGB = WHITE) -> None:
    """A thing or background of `drawings.json`; `contrast` is ink, or white on dark colours."""
    palette = _PALETTE | {"colour": colour, "contrast": WHITE if _is_dark(colour) else INK}
    for shape, *arguments in shapes:
        values: list[Any] = [
            _mix_recipe(each, palette) if isinstance(each, str) else each for each in arguments
        ]
        twice, _, method = shape.rpartition(" ")
        draw = getattr(c, method)
        if twice:
            c.twice(draw, *values)
        else:
            draw(*values)


def _mix_recipe(recipe: str, palette: dict[str, RGB]) -> RGB:
    """`colour 0.3 white 0.1 gold`: the colour with 0.3 of white, then 0.1 of gold."""
    first, *others = recipe.split()
    mixed = _find_colour(first, palette)
    for amount, other in zip(others[::2], others[1::2], strict=True):
        mixed = mix(mixed, _find_colour(other, palette), float(amount))
    return mixed


def _find_colour(name: str, palette: dict[str, RGB]) -> RGB:
    r, g, b = ImageColor.getrgb(name)[:3] if name[0] == "#" else palette[name]
    return r, g, b


def _is_dark(colour: RGB) -> bool:
    return 0.299 * colour[0] + 0.587 * colour[1] + 0.114 * colour[2] < 70


def chick(c: Canvas, colour: RGB) -> None:
    beak = _PALETTE["beak"]
    for x in (0.42, 0.58):
        c.line([(x, 0.8), (x, 0.89)], 0.03, beak)
        c.line([(x - 0.05, 0.895), (x + 0.05, 0.895)], 0.025, beak)
    for x, y in ((0.46, 0.13), (0.54, 0.12)):
        c.line([(0.5, 0.22), (x, y)], 0.03, shade(colour, 0.15))
    c.ellipse(0.5, 0.62, 0.3, 0.24, colour)
    c.circle(0.5, 0.38, 0.21, colour)
    wing = [(0.28, 0.54), (0.36, 0.7), (0.2, 0.74), (0.16, 0.6)]
    c.twice(c.blob, wing, shade(colour, 0.18))
    c.ellipse(0.5, 0.7, 0.16, 0.13, tint(colour, 0.4))
    if _is_dark(colour):
        c.eyes(0.045, (0.42, 0.35), (0.58, 0.35))
    else:
        for x in (0.42, 0.58):
            c.circle(x, 0.35, 0.035, INK)
            c.circle(x + 0.035 * 0.3, 0.33775, 0.0126, WHITE)
    c.polygon([(0.44, 0.4), (0.56, 0.4), (0.5, 0.49)], beak)


def flower(c: Canvas, colour: RGB) -> None:
    c.curve([(0.5, 0.9), (0.49, 0.7), (0.5, 0.4)], 0.055, _STEM)
    c.leaf(0.5, 0.86, -0.32, -0.17)
    c.leaf(0.5, 0.84, 0.32, -0.19)
    rings = (0.17, 0.115, shade(colour, 0.1)), (0.16, 0.085, tint(colour, 0.1))
    for distance, radius, fill in rings:
        for i in range(6):
            a = math.radians(60 * i + 30)
            c.circle(0.5 + distance * math.cos(a), 0.36 + distance * math.sin(a), radius, fill)
    centre = PAPER if colour[0] > 220 and colour[1] > 180 else GOLD
    c.circle(0.5, 0.36, 0.1, shade(centre, 0.15))
    c.circle(0.5, 0.36, 0.08, centre)


def gift(c: Canvas, colour: RGB) -> None:
    ribbon = GOLD if colour[2] > 90 or colour[0] < 200 or colour[1] < 120 else (214, 60, 96)
    c.twice(c.blob, [(0.0, 0.32), (0.1, 0.12), (0.27, 0.13), (0.24, 0.28)], ribbon)
    c.twice(c.blob, [(0.04, 0.29), (0.12, 0.18), (0.2, 0.19), (0.17, 0.26)], shade(ribbon, 0.3))
    c.rect(0.18, 0.46, 0.82, 0.89, colour, 0.02)
    c.rect(0.13, 0.32, 0.87, 0.49, tint(colour, 0.16), 0.03)
    c.rect(0.18, 0.49, 0.82, 0.52, shade(colour, 0.3))
    c.rect(0.44, 0.32, 0.56, 0.89, ribbon)
    c.circle(0.5, 0.31, 0.06, shade(ribbon, 0.15))


def traffic_light(c: Canvas, colour: RGB) -> None:
    """Three lamps; the one of the colour shines."""
    c.rect(0.45, 0.74, 0.55, 0.92, (120, 128, 140))
    c.rect(0.28, 0.08, 0.72, 0.78, (58, 60, 70), 0.09)
    for lamp, y in _LAMPS:
        c.circle(0.5, y, 0.1, mix(lamp, (40, 42, 50), 0.78))
        if lamp == colour:
            c.circle(0.5, y, 0.125, tint(lamp, 0.45))
            c.circle(0.5, y, 0.1, lamp)
            c.ellipse(0.47, y - 0.04, 0.035, 0.025, tint(lamp, 0.7))


def star(c: Canvas, colour: RGB) -> None:
    stars = (0.43, 0.2, shade(colour, 0.18)), (0.36, 0.165, colour)
    for outer, inner, fill in stars:
        tips = [(math.radians(-90 + 36 * i), inner if i % 2 else outer) for i in range(10)]
        c.polygon([(0.5 + r * math.cos(a), 0.53 + r * math.sin(a)) for a, r in tips], fill)


def sun(c: Canvas, colour: RGB) -> None:
    for i in range(12):
        a = math.radians(30 * i)
        x, y = math.cos(a), math.sin(a)
        c.line([(0.5 + 0.33 * x, 0.5 + 0.33 * y), (0.5 + 0.39 * x, 0.5 + 0.39 * y)], 0.055, colour)
    c.circle(0.5, 0.5, 0.27, shade(colour, 0.08))
    c.circle(0.5, 0.5, 0.24, tint(colour, 0.18))
    c.circles(INK, (0.42, 0.47, 0.028), (0.58, 0.47, 0.028))
    c.circles(mix(colour, (240, 90, 80), 0.5), (0.36, 0.54, 0.035), (0.64, 0.54, 0.035))
    c.smile(0.5, 0.54, 0.14)


def windmill(c: Canvas, colour: RGB) -> None:
    c.polygon([(0.38, 0.42), (0.62, 0.42), (0.7, 0.91), (0.3, 0.91)], colour)
    c.pie(0.5, 0.43, 0.14, 180, 360, shade(colour, 0.45))
    c.rect(0.44, 0.72, 0.56, 0.91, shade(colour, 0.5), 0.03)
    c.circle(0.5, 0.6, 0.045, GOLD)
    for i in range(4):
        a = math.radians(45 + 90 * i)
        x, y = math.cos(a), math.sin(a)
        corners = ((0.1, 0.0), (0.4, 0.0), (0.4, 0.11), (0.1, 0.11))  # along the sail, across it
        sail = [(0.5 + u * x - v * y, 0.43 + u * y + v * x) for u, v in corners]
        c.polygon(sail, tint(colour, 0.62))
        c.line([(0.5, 0.43), sail[1]], 0.028, INK)
    c.circle(0.5, 0.43, 0.05, INK)


def room(c: Canvas) -> None:
    c.rect(0, 0, 1, 0.7, (244, 228, 214))
    for i in range(10):
        c.rect(i * 0.1, 0, i * 0.1 + 0.05, 0.7, (240, 221, 205))
    c.rect(0, 0.7, 1, 1, (206, 172, 140))
    c.rect(0, 0.68, 1, 0.715, (255, 250, 244))
    for x in (0.17, 0.5, 0.83):
        c.line([(x, 0.72), (x + (x - 0.5) * 0.3, 1)], 0.005, (188, 152, 120))


def sea(c: Canvas) -> None:
    c.fade((196, 228, 246), (234, 244, 248), 0, 0.36)
    c.fade((110, 186, 218), (58, 128, 178), 0.36, 1)
    for y, offset in ((0.46, 0.0), (0.6, 0.12), (0.75, 0.04), (0.9, 0.16)):
        for i in range(4):
            x = offset + i * 0.27
            c.curve([(x, y), (x + 0.05, y - 0.012), (x + 0.1, y)], 0.006, (170, 216, 234))


def rain(c: Canvas) -> None:
    c.fade((150, 166, 186), (196, 206, 216), 0, 0.8)
    c.rect(0, 0.8, 1, 1, (150, 174, 150))
    for row in range(5):
        for column in range(7):
            x, y = column * 0.15 + (row % 2) * 0.07, row * 0.17 + 0.04
            c.line([(x + 0.015, y), (x, y + 0.05)], 0.005, (222, 234, 246))


def graph_paper(c: Canvas) -> None:
    c.rect(0, 0, 1, 1, (250, 251, 252))
    for i in range(1, 12):
        c.line([(i / 12, 0), (i / 12, 1)], 0.003, (222, 232, 240))
        c.line([(0, i / 12), (1, i / 12)], 0.003, (222, 232, 240))
    c.line([(0.02, 0.02), (0.02, 0.985), (0.98, 0.985)], 0.009, (90, 98, 112))


DRAWINGS: dict[str, Callable[[Canvas, RGB], None]] = {
    **{kind: partial(_draw_shapes, shapes) for kind, shapes in _CONTENT["things"].items()},
    **{"chick": chick, "flower": flower, "gift": gift, "star": star, "sun": sun},
    **{"traffic light": traffic_light, "windmill": windmill},
}
BACKDROPS: dict[str, Callable[[Canvas], None]] = {
    **{name: partial(_draw_shapes, shapes) for name, shapes in _CONTENT["backgrounds"].items()},
    **{"room": room, "sea": sea, "rain": rain, "graph paper": graph_paper},
}
