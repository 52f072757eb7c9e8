"""Buildings, trees, weather and the night sky."""

import math

from .canvas import GLASS, GOLD, INK, PAPER, RGB, WHITE, WOOD, Canvas, mix, shade, symmetric, tint

_NIGHT = (58, 62, 92)  # the unlit part of the moon


def house(c: Canvas, colour: RGB) -> None:
    c.rect(0.66, 0.16, 0.76, 0.36, shade(colour, 0.5))
    c.rect(0.18, 0.44, 0.82, 0.9, colour)
    c.polygon([(0.08, 0.48), (0.5, 0.1), (0.92, 0.48)], shade(colour, 0.42))
    c.polygon([(0.2, 0.44), (0.5, 0.17), (0.8, 0.44)], shade(colour, 0.28))
    c.circle(0.5, 0.35, 0.055, GOLD)
    c.rect(0.25, 0.57, 0.43, 0.75, PAPER)
    c.rect(0.27, 0.59, 0.41, 0.73, GOLD)
    c.line([(0.34, 0.59), (0.34, 0.73)], 0.018, PAPER)
    c.line([(0.27, 0.66), (0.41, 0.66)], 0.018, PAPER)
    c.rect(0.55, 0.6, 0.73, 0.9, WOOD, 0.03)
    c.circle(0.69, 0.76, 0.018, GOLD)


def tree(c: Canvas, colour: RGB) -> None:
    c.polygon([(0.44, 0.6), (0.56, 0.6), (0.6, 0.91), (0.4, 0.91)], WOOD)
    c.circles(shade(colour, 0.16), (0.28, 0.49, 0.19), (0.72, 0.49, 0.19), (0.5, 0.52, 0.21))
    c.circles(colour, (0.36, 0.37, 0.19), (0.64, 0.38, 0.19), (0.5, 0.28, 0.19))
    for x, y in ((0.42, 0.25), (0.33, 0.36), (0.58, 0.36)):
        c.ellipse(x, y, 0.06, 0.04, tint(colour, 0.3))


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


def cloud(c: Canvas, colour: RGB) -> None:
    under = mix(colour, (84, 108, 148), 0.38)
    puffs = (0.27, 0.58, 0.17), (0.75, 0.58, 0.16), (0.42, 0.44, 0.19), (0.6, 0.42, 0.2)
    c.circles(under, *puffs)
    c.rect(0.27, 0.5, 0.75, 0.75, under, 0.04)
    lit = (0.28, 0.55, 0.15), (0.73, 0.55, 0.14), (0.42, 0.43, 0.17), (0.6, 0.41, 0.18)
    c.circles(colour, *lit)
    c.rect(0.27, 0.48, 0.74, 0.67, colour, 0.04)
    c.ellipse(0.55, 0.33, 0.08, 0.045, tint(colour, 0.45))


def raindrop(c: Canvas, colour: RGB) -> None:
    for fill, inset in ((shade(colour, 0.2), 0.0), (colour, 0.035)):
        c.polygon([(0.5, 0.1 + 2 * inset), (0.74 - inset, 0.54), (0.26 + inset, 0.54)], fill)
        c.circle(0.5, 0.62, 0.26 - inset, fill)
    c.curve([(0.36, 0.6), (0.38, 0.7), (0.46, 0.77)], 0.05, tint(colour, 0.6))


def church(c: Canvas, colour: RGB) -> None:
    roof = shade(colour, 0.45)
    c.rect(0.4, 0.52, 0.9, 0.9, colour)
    c.polygon([(0.4, 0.53), (0.46, 0.38), (0.84, 0.38), (0.93, 0.53)], roof)
    c.rect(0.15, 0.4, 0.46, 0.9, tint(colour, 0.16))
    c.polygon([(0.11, 0.42), (0.305, 0.18), (0.5, 0.42)], roof)
    c.line([(0.305, 0.09), (0.305, 0.2)], 0.03, INK)
    c.line([(0.265, 0.125), (0.345, 0.125)], 0.03, INK)
    c.circle(0.305, 0.5, 0.06, PAPER)
    c.line([(0.305, 0.465), (0.305, 0.5), (0.33, 0.5)], 0.016, INK)
    c.rect(0.24, 0.68, 0.37, 0.9, WOOD, 0.05)
    for x in (0.55, 0.74):
        c.rect(x, 0.62, x + 0.09, 0.8, GLASS, 0.045)


def castle(c: Canvas, colour: RGB) -> None:
    low = shade(colour, 0.22)
    c.rect(0.24, 0.48, 0.76, 0.9, colour)
    for x in (0.3, 0.44, 0.58):
        c.rect(x, 0.4, x + 0.09, 0.5, colour)
    for x in (0.1, 0.68):
        c.rect(x, 0.36, x + 0.22, 0.9, low)
        for step in (0, 0.085, 0.17):
            c.rect(x + step, 0.28, x + step + 0.05, 0.38, low)
        c.rect(x + 0.08, 0.5, x + 0.14, 0.62, INK, 0.03)
    c.line([(0.5, 0.1), (0.5, 0.42)], 0.025, INK)
    c.polygon([(0.51, 0.1), (0.7, 0.17), (0.51, 0.24)], tint(colour, 0.4))
    c.pie(0.5, 0.74, 0.11, 180, 360, WOOD)
    c.rect(0.39, 0.73, 0.61, 0.9, WOOD)
    c.line([(0.5, 0.66), (0.5, 0.88)], 0.018, INK)


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


def fountain(c: Canvas, colour: RGB) -> None:
    """A stone basin with jets of water in the colour."""
    stone = (176, 172, 166)
    for dx, top in ((0.3, 0.34), (0.16, 0.2)):
        c.twice(c.curve, [(0.0, 0.42), (dx * 0.5, top), (dx, 0.66)], 0.05, tint(colour, 0.35))
    c.line([(0.5, 0.16), (0.5, 0.6)], 0.06, colour)
    c.circle(0.5, 0.14, 0.05, tint(colour, 0.35))
    c.rect(0.45, 0.5, 0.55, 0.8, shade(stone, 0.2))
    c.polygon([(0.1, 0.66), (0.9, 0.66), (0.8, 0.89), (0.2, 0.89)], stone)
    c.rect(0.08, 0.62, 0.92, 0.71, tint(stone, 0.3), 0.04)
    c.rect(0.15, 0.635, 0.85, 0.685, colour, 0.02)
    c.rect(0.2, 0.8, 0.8, 0.84, shade(stone, 0.15))


def new_moon(c: Canvas, colour: RGB) -> None:
    """Unlit: a dark disc with a thin rim in the colour."""
    c.circle(0.5, 0.5, 0.37, colour)
    c.circle(0.5, 0.5, 0.315, _NIGHT)
    c.circles(shade(_NIGHT, 0.14), (0.4, 0.4, 0.06), (0.6, 0.58, 0.07), (0.58, 0.36, 0.04))


def crescent_moon(c: Canvas, colour: RGB) -> None:
    c.circle(0.5, 0.5, 0.37, colour)
    c.circle(0.37, 0.46, 0.3, (0, 0, 0))
    c.cut(0.36, 0.46, 0.31)
    c.circles(shade(colour, 0.14), (0.72, 0.5, 0.045), (0.63, 0.72, 0.04), (0.7, 0.34, 0.03))


def half_moon(c: Canvas, colour: RGB) -> None:
    c.circle(0.5, 0.5, 0.37, _NIGHT)
    c.pie(0.5, 0.5, 0.37, -90, 90, colour)
    c.circles(shade(colour, 0.14), (0.66, 0.42, 0.055), (0.6, 0.66, 0.06), (0.76, 0.58, 0.035))


def full_moon(c: Canvas, colour: RGB) -> None:
    c.circle(0.5, 0.5, 0.37, shade(colour, 0.06))
    c.circle(0.5, 0.5, 0.34, tint(colour, 0.22))
    craters = (0.38, 0.38, 0.08), (0.63, 0.46, 0.06), (0.45, 0.66, 0.07), (0.66, 0.67, 0.04)
    c.circles(shade(tint(colour, 0.1), 0.14), *craters)


def planet(c: Canvas, colour: RGB) -> None:
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
