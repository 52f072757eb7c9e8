"""Work and play: charts, games, winter, people."""

from functools import partial

from .canvas import GOLD, INK, PAPER, RGB, WHITE, WOOD, Canvas, mix, shade, tint

_RED = (214, 48, 49)
_SKIN = (250, 206, 166)
_SNOW_SHADOW = (84, 108, 148)


def _bar(c: Canvas, colour: RGB, height: float) -> None:
    top = 0.92 - height
    c.rect(0.28, top, 0.72, 0.92, shade(colour, 0.22), 0.03)
    c.rect(0.28, top, 0.63, 0.92, colour, 0.03)
    c.rect(0.28, top, 0.72, top + 0.06, tint(colour, 0.4), 0.03)


short_bar, medium_bar, tall_bar = (partial(_bar, height=height) for height in (0.26, 0.54, 0.84))


def ball(c: Canvas, colour: RGB) -> None:
    c.circle(0.5, 0.5, 0.36, colour)
    c.twice(c.blob, [(0.0, 0.15), (0.19, 0.34), (0.19, 0.66), (0.0, 0.85), (0.1, 0.5)], WHITE)
    c.circle(0.5, 0.19, 0.06, shade(colour, 0.25))
    c.ellipse(0.24, 0.42, 0.03, 0.07, tint(colour, 0.5))


def flag(c: Canvas, colour: RGB) -> None:
    c.ellipse(0.28, 0.88, 0.15, 0.035, shade(WOOD, 0.2))
    c.line([(0.28, 0.13), (0.28, 0.88)], 0.05, WOOD)
    c.circle(0.28, 0.115, 0.04, GOLD)
    upper_edge = (0.31, 0.17), (0.48, 0.14), (0.66, 0.2), (0.88, 0.17)
    lower_edge = (0.88, 0.52), (0.66, 0.56), (0.48, 0.49), (0.31, 0.53)
    c.blob(upper_edge + lower_edge, colour)
    c.curve([(0.34, 0.34), (0.48, 0.31), (0.66, 0.38), (0.86, 0.34)], 0.06, tint(colour, 0.5))


def boat(c: Canvas, colour: RGB) -> None:
    c.line([(0.48, 0.1), (0.48, 0.64)], 0.035, WOOD)
    c.polygon([(0.52, 0.12), (0.84, 0.56), (0.52, 0.56)], PAPER)
    c.polygon([(0.44, 0.2), (0.44, 0.56), (0.2, 0.56)], tint(colour, 0.55))
    c.polygon([(0.52, 0.12), (0.58, 0.2), (0.58, 0.56), (0.52, 0.56)], (226, 222, 212))
    c.blob([(0.1, 0.64), (0.5, 0.62), (0.9, 0.64), (0.78, 0.84), (0.5, 0.87), (0.22, 0.84)], colour)
    c.line([(0.19, 0.72), (0.81, 0.72)], 0.035, tint(colour, 0.5))


def book(c: Canvas, colour: RGB) -> None:
    cover = [(0.08, 0.28), (0.5, 0.36), (0.92, 0.28), (0.92, 0.82), (0.5, 0.88), (0.08, 0.82)]
    c.polygon(cover, colour)
    for side, paper in ((-1, PAPER), (1, (240, 234, 220))):
        page = [(0.0, 0.33), (0.2, 0.24), (0.36, 0.25), (0.36, 0.73), (0.2, 0.72), (0.0, 0.81)]
        c.polygon([(0.5 + side * x, y) for x, y in page], paper)
    for y in (0.38, 0.48, 0.58):
        c.twice(c.line, [(0.08, y + 0.02), (0.28, y - 0.03)], 0.03, tint(colour, 0.3))
    c.line([(0.5, 0.33), (0.5, 0.82)], 0.02, shade(colour, 0.3))


def music_note(c: Canvas, colour: RGB) -> None:
    c.line([(0.4, 0.74), (0.4, 0.22)], 0.07, colour)
    c.line([(0.8, 0.66), (0.8, 0.15)], 0.07, colour)
    c.polygon([(0.365, 0.2), (0.835, 0.1), (0.835, 0.27), (0.365, 0.37)], colour)
    for x, y in ((0.29, 0.76), (0.69, 0.68)):
        c.ellipse(x, y, 0.15, 0.115, colour)
        c.ellipse(x - 0.03, y - 0.03, 0.055, 0.035, tint(colour, 0.45))


def snowball(c: Canvas, colour: RGB) -> None:
    c.circle(0.5, 0.54, 0.35, mix(colour, _SNOW_SHADOW, 0.34))
    c.circle(0.48, 0.51, 0.305, tint(colour, 0.15))
    for x, y in ((0.62, 0.44), (0.42, 0.66), (0.6, 0.64)):
        c.ellipse(x, y, 0.045, 0.03, mix(colour, _SNOW_SHADOW, 0.3))
    c.ellipse(0.37, 0.37, 0.08, 0.05, WHITE)


def snowman(c: Canvas, colour: RGB) -> None:
    low = mix(colour, _SNOW_SHADOW, 0.34)
    c.twice(c.line, [(0.16, 0.56), (0.38, 0.42)], 0.03, WOOD)
    c.twice(c.line, [(0.31, 0.47), (0.38, 0.51)], 0.025, WOOD)
    c.circle(0.5, 0.72, 0.2, low)
    c.circle(0.48, 0.7, 0.17, colour)
    c.circle(0.5, 0.5, 0.15, low)
    c.circle(0.485, 0.485, 0.125, colour)
    c.circle(0.5, 0.3, 0.14, low)
    c.circle(0.49, 0.29, 0.12, colour)
    c.rect(0.34, 0.16, 0.66, 0.2, INK, 0.02)
    c.rect(0.4, 0.075, 0.6, 0.19, INK, 0.015)
    c.rect(0.4, 0.14, 0.6, 0.17, _RED)
    c.circles(INK, (0.45, 0.27, 0.02), (0.55, 0.27, 0.02))
    c.polygon([(0.5, 0.29), (0.66, 0.33), (0.5, 0.34)], (240, 136, 32))
    c.rect(0.38, 0.39, 0.62, 0.435, _RED, 0.02)
    c.circles(INK, (0.5, 0.5, 0.02), (0.5, 0.58, 0.02), (0.5, 0.7, 0.02))


def person(c: Canvas, colour: RGB) -> None:
    hair, trousers = (96, 62, 44), (70, 78, 104)
    for x in (0.43, 0.57):
        c.line([(x, 0.7), (x, 0.85)], 0.09, trousers)
        c.ellipse(x, 0.885, 0.065, 0.03, INK)
    c.line([(0.38, 0.52), (0.25, 0.66)], 0.075, shade(colour, 0.12))
    c.line([(0.62, 0.52), (0.77, 0.4)], 0.075, shade(colour, 0.12))
    c.circles(_SKIN, (0.235, 0.675, 0.042), (0.79, 0.385, 0.042))
    c.blob([(0.38, 0.48), (0.62, 0.48), (0.66, 0.74), (0.5, 0.76), (0.34, 0.74)], colour)
    c.circle(0.5, 0.28, 0.185, hair)
    c.circle(0.5, 0.315, 0.155, _SKIN)
    c.pie(0.5, 0.29, 0.175, 180, 360, hair)
    c.circles(INK, (0.435, 0.325, 0.022), (0.565, 0.325, 0.022))
    c.smile(0.5, 0.375, 0.11, (186, 74, 70))
