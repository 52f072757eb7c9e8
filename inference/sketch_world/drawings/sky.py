"""The night sky and what flies to it."""

from .canvas import GLASS, GOLD, INK, RGB, WHITE, Canvas, mix, shade, symmetric, tint

_NIGHT = (58, 62, 92)  # the unlit part of the moon


def _craters(c: Canvas, colour: RGB, *craters: tuple[float, float, float]) -> None:
    c.circles(shade(colour, 0.14), *craters)


def new_moon(c: Canvas, colour: RGB) -> None:
    """Unlit: a dark disc with a thin rim in the colour."""
    c.circle(0.5, 0.5, 0.37, colour)
    c.circle(0.5, 0.5, 0.315, _NIGHT)
    _craters(c, _NIGHT, (0.4, 0.4, 0.06), (0.6, 0.58, 0.07), (0.58, 0.36, 0.04))


def crescent_moon(c: Canvas, colour: RGB) -> None:
    c.circle(0.5, 0.5, 0.37, colour)
    c.circle(0.37, 0.46, 0.3, (0, 0, 0))
    c.cut(0.36, 0.46, 0.31)
    _craters(c, colour, (0.72, 0.5, 0.045), (0.63, 0.72, 0.04), (0.7, 0.34, 0.03))


def half_moon(c: Canvas, colour: RGB) -> None:
    """The right half is lit."""
    c.circle(0.5, 0.5, 0.37, _NIGHT)
    c.pie(0.5, 0.5, 0.37, -90, 90, colour)
    _craters(c, colour, (0.66, 0.42, 0.055), (0.6, 0.66, 0.06), (0.76, 0.58, 0.035))


def full_moon(c: Canvas, colour: RGB) -> None:
    c.circle(0.5, 0.5, 0.37, shade(colour, 0.06))
    c.circle(0.5, 0.5, 0.34, tint(colour, 0.22))
    craters = (0.38, 0.38, 0.08), (0.63, 0.46, 0.06), (0.45, 0.66, 0.07), (0.66, 0.67, 0.04)
    _craters(c, tint(colour, 0.1), *craters)


def planet(c: Canvas, colour: RGB) -> None:
    """A banded planet with a ring."""
    ring = mix(tint(colour, 0.55), GOLD, 0.25)
    c.line([(0.13, 0.63), (0.87, 0.37)], 0.08, shade(ring, 0.3))
    c.circle(0.5, 0.5, 0.29, colour)
    c.curve([(0.26, 0.4), (0.46, 0.4), (0.68, 0.31)], 0.05, tint(colour, 0.35))
    c.curve([(0.33, 0.7), (0.54, 0.68), (0.74, 0.6)], 0.05, shade(colour, 0.22))
    c.curve([(0.13, 0.63), (0.3, 0.64), (0.56, 0.55), (0.78, 0.44), (0.87, 0.37)], 0.07, ring)


def rocket(c: Canvas, colour: RGB) -> None:
    c.blob([(0.42, 0.72), (0.58, 0.72), (0.55, 0.84), (0.5, 0.91), (0.45, 0.84)], (244, 130, 40))
    c.blob([(0.46, 0.72), (0.54, 0.72), (0.5, 0.84)], GOLD)
    fin = [(0.12, 0.5), (0.31, 0.7), (0.29, 0.82), (0.11, 0.73)]
    c.twice(c.polygon, fin, shade(colour, 0.35))
    c.blob(symmetric((0.5, 0.08), (0.63, 0.26), (0.66, 0.5), (0.61, 0.75)), colour)
    c.blob([(0.5, 0.08), (0.6, 0.22), (0.5, 0.25), (0.4, 0.22)], tint(colour, 0.62))
    c.circle(0.5, 0.42, 0.105, WHITE)
    c.circle(0.5, 0.42, 0.075, GLASS)
    c.circle(0.475, 0.395, 0.025, WHITE)
    c.line([(0.42, 0.66), (0.58, 0.66)], 0.035, INK)
