"""What grows."""

import math

from .canvas import GOLD, LEAF, PAPER, RGB, WHITE, Canvas, shade, symmetric, tint

_SOIL = (120, 82, 56)
_STEM = (56, 128, 66)


def _soil(c: Canvas) -> None:
    c.blob([(0.14, 0.88), (0.3, 0.78), (0.5, 0.75), (0.7, 0.78), (0.86, 0.88), (0.5, 0.92)], _SOIL)
    c.circles(shade(_SOIL, 0.3), (0.32, 0.85, 0.018), (0.52, 0.82, 0.018), (0.68, 0.86, 0.018))


def _leaf(c: Canvas, x: float, y: float, dx: float, dy: float, fill: RGB = LEAF) -> None:
    """A leaf from (x, y) to its tip at (x + dx, y + dy)."""
    nx, ny = -dy * 0.32, dx * 0.32
    mx, my = x + dx * 0.5, y + dy * 0.5
    c.blob([(x, y), (mx + nx, my + ny), (x + dx, y + dy), (mx - nx, my - ny)], fill)


def seed(c: Canvas, colour: RGB) -> None:
    _soil(c)
    c.blob([(0.5, 0.3), (0.66, 0.5), (0.62, 0.72), (0.5, 0.78), (0.38, 0.72), (0.34, 0.5)], colour)
    c.curve([(0.5, 0.36), (0.56, 0.54), (0.52, 0.7)], 0.03, shade(colour, 0.35))
    c.ellipse(0.43, 0.55, 0.03, 0.07, tint(colour, 0.45))


def sprout(c: Canvas, colour: RGB) -> None:
    _soil(c)
    c.curve([(0.5, 0.8), (0.49, 0.65), (0.5, 0.46)], 0.06, shade(colour, 0.2))
    _leaf(c, 0.5, 0.5, -0.33, -0.2, colour)
    _leaf(c, 0.5, 0.48, 0.34, -0.26, tint(colour, 0.18))


def bud(c: Canvas, colour: RGB) -> None:
    _soil(c)
    c.curve([(0.5, 0.8), (0.5, 0.6), (0.5, 0.36)], 0.055, _STEM)
    _leaf(c, 0.5, 0.7, -0.3, -0.12)
    _leaf(c, 0.5, 0.63, 0.3, -0.14)
    c.blob([(0.5, 0.1), (0.62, 0.26), (0.6, 0.4), (0.5, 0.45), (0.4, 0.4), (0.38, 0.26)], colour)
    c.blob([(0.5, 0.14), (0.54, 0.28), (0.5, 0.42), (0.46, 0.28)], tint(colour, 0.3))
    c.polygon([(0.38, 0.32), (0.5, 0.42), (0.62, 0.32), (0.58, 0.45), (0.42, 0.45)], _STEM)


def flower(c: Canvas, colour: RGB) -> None:
    c.curve([(0.5, 0.9), (0.49, 0.7), (0.5, 0.4)], 0.055, _STEM)
    _leaf(c, 0.5, 0.86, -0.32, -0.17)
    _leaf(c, 0.5, 0.84, 0.32, -0.19)
    rings = (0.17, 0.115, shade(colour, 0.1)), (0.16, 0.085, tint(colour, 0.1))
    for distance, radius, fill in rings:
        for i in range(6):
            a = math.radians(60 * i + 30)
            c.circle(0.5 + distance * math.cos(a), 0.36 + distance * math.sin(a), radius, fill)
    centre = PAPER if colour[0] > 220 and colour[1] > 180 else GOLD
    c.circle(0.5, 0.36, 0.1, shade(centre, 0.15))
    c.circle(0.5, 0.36, 0.08, centre)


def apple(c: Canvas, colour: RGB) -> None:
    right = (0.5, 0.32), (0.66, 0.26), (0.84, 0.38), (0.82, 0.64), (0.66, 0.86), (0.5, 0.83)
    outline = symmetric(*right)
    c.blob(outline, shade(colour, 0.12))
    c.blob([(0.5 + (x - 0.5) * 0.9, 0.57 + (y - 0.57) * 0.9) for x, y in outline], colour)
    c.curve([(0.5, 0.36), (0.5, 0.26), (0.55, 0.14)], 0.045, (104, 70, 46))
    _leaf(c, 0.53, 0.24, 0.24, -0.1)
    c.ellipse(0.31, 0.46, 0.05, 0.09, tint(colour, 0.55))


def mushroom(c: Canvas, colour: RGB) -> None:
    cream = (246, 232, 208)
    c.blob([(0.4, 0.5), (0.6, 0.5), (0.64, 0.84), (0.5, 0.89), (0.36, 0.84)], cream)
    c.rect(0.3, 0.54, 0.7, 0.6, shade(cream, 0.18), 0.03)
    c.pie(0.5, 0.55, 0.4, 180, 360, shade(colour, 0.12))
    c.pie(0.5, 0.53, 0.36, 180, 360, colour)
    spots = (0.5, 0.28, 0.075), (0.3, 0.42, 0.06), (0.71, 0.42, 0.06), (0.52, 0.46, 0.04)
    c.circles(WHITE, *spots)


def carrot(c: Canvas, colour: RGB) -> None:
    for dx, dy in ((-0.17, -0.16), (0.0, -0.24), (0.17, -0.16)):
        _leaf(c, 0.5, 0.34, dx, dy)
    root = [(0.36, 0.35), (0.5, 0.31), (0.64, 0.35), (0.62, 0.55), (0.5, 0.91), (0.38, 0.55)]
    c.blob(root, colour)
    for x0, x1, y in ((0.37, 0.48, 0.46), (0.53, 0.62, 0.56), (0.43, 0.5, 0.67)):
        c.line([(x0, y), (x1, y)], 0.025, shade(colour, 0.25))
