"""Daily life: the street, the table, the party."""

from .canvas import GLASS, GOLD, INK, RGB, WOOD, Canvas, mix, shade, symmetric, tint

_LAMPS = (((214, 48, 49), 0.22), ((248, 206, 50), 0.43), ((58, 158, 76), 0.64))


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


def car(c: Canvas, colour: RGB) -> None:
    c.blob([(0.24, 0.5), (0.34, 0.27), (0.6, 0.26), (0.74, 0.5)], shade(colour, 0.12))
    c.polygon([(0.3, 0.48), (0.37, 0.33), (0.47, 0.33), (0.47, 0.48)], GLASS)
    c.polygon([(0.51, 0.48), (0.51, 0.33), (0.6, 0.33), (0.68, 0.48)], GLASS)
    c.rect(0.08, 0.47, 0.92, 0.72, colour, 0.09)
    c.rect(0.08, 0.62, 0.92, 0.72, shade(colour, 0.2), 0.05)
    c.circle(0.87, 0.55, 0.035, GOLD)
    c.line([(0.49, 0.5), (0.49, 0.66)], 0.014, shade(colour, 0.35))
    c.circles(INK, (0.28, 0.72, 0.125), (0.72, 0.72, 0.125))
    c.circles((200, 204, 212), (0.28, 0.72, 0.06), (0.72, 0.72, 0.06))


def plate(c: Canvas, colour: RGB) -> None:
    c.circle(0.5, 0.5, 0.4, shade(colour, 0.1))
    c.circle(0.5, 0.5, 0.365, colour)
    c.circle(0.5, 0.5, 0.255, shade(colour, 0.15))
    c.circle(0.5, 0.5, 0.24, tint(colour, 0.62))


def _handle(c: Canvas, colour: RGB, top: float) -> None:
    c.line([(0.5, top), (0.5, 0.86)], 0.085, shade(colour, 0.12))
    c.line([(0.48, top + 0.06), (0.48, 0.84)], 0.02, tint(colour, 0.4))


def fork(c: Canvas, colour: RGB) -> None:
    _handle(c, colour, 0.5)
    for x in (0.36, 0.453, 0.547, 0.64):
        c.line([(x, 0.14), (x, 0.36)], 0.052, colour)
    c.blob([(0.335, 0.33), (0.665, 0.33), (0.63, 0.46), (0.5, 0.54), (0.37, 0.46)], colour)


def knife(c: Canvas, colour: RGB) -> None:
    _handle(c, shade(colour, 0.25), 0.58)
    c.blob([(0.44, 0.56), (0.44, 0.16), (0.5, 0.1), (0.6, 0.26), (0.62, 0.56)], colour)
    c.line([(0.47, 0.2), (0.47, 0.52)], 0.022, tint(colour, 0.55))


def spoon(c: Canvas, colour: RGB) -> None:
    _handle(c, colour, 0.44)
    c.ellipse(0.5, 0.29, 0.17, 0.2, shade(colour, 0.12))
    c.ellipse(0.5, 0.3, 0.125, 0.155, tint(colour, 0.4))


def cup(c: Canvas, colour: RGB) -> None:
    for x in (0.36, 0.52):
        steam = [(x, 0.3), (x + 0.04, 0.24), (x - 0.02, 0.17), (x + 0.02, 0.1)]
        c.curve(steam, 0.028, (176, 182, 192))
    c.circle(0.74, 0.58, 0.155, shade(colour, 0.15))
    c.cut(0.74, 0.58, 0.08)
    mug = [(0.18, 0.36), (0.7, 0.36), (0.68, 0.78), (0.58, 0.89), (0.3, 0.89), (0.2, 0.78)]
    c.blob(mug, colour)
    c.ellipse(0.44, 0.375, 0.265, 0.07, shade(colour, 0.25))
    c.ellipse(0.44, 0.385, 0.22, 0.048, (104, 66, 44))
    c.rect(0.2, 0.58, 0.685, 0.66, tint(colour, 0.45))


def candle(c: Canvas, colour: RGB) -> None:
    c.blob(symmetric((0.5, 0.09), (0.58, 0.22), (0.55, 0.31), (0.5, 0.33)), (246, 140, 40))
    c.blob(symmetric((0.5, 0.17), (0.54, 0.25), (0.5, 0.31)), (255, 228, 120))
    c.line([(0.5, 0.31), (0.5, 0.4)], 0.022, INK)
    c.rect(0.37, 0.39, 0.63, 0.84, colour, 0.03)
    for y in (0.5, 0.63, 0.76):
        stripe = [(0.37, y + 0.05), (0.63, y - 0.05), (0.63, y + 0.01), (0.37, y + 0.11)]
        c.polygon(stripe, tint(colour, 0.5))
    c.ellipse(0.5, 0.85, 0.28, 0.055, shade(GOLD, 0.15))
    c.ellipse(0.5, 0.84, 0.2, 0.032, tint(GOLD, 0.3))


def cake(c: Canvas, colour: RGB) -> None:
    cream = (255, 246, 232)
    c.ellipse(0.5, 0.84, 0.41, 0.06, (196, 202, 212))
    c.rect(0.15, 0.54, 0.85, 0.84, colour, 0.04)
    c.rect(0.27, 0.3, 0.73, 0.56, tint(colour, 0.18), 0.04)
    for left, right, y in ((0.15, 0.85, 0.54), (0.27, 0.73, 0.3)):
        c.rect(left, y - 0.03, right, y + 0.06, cream, 0.04)
        count = round((right - left) / 0.115)
        for i in range(count):
            c.circle(left + (i + 0.5) * (right - left) / count, y + 0.06, 0.05, cream)
    for x in (0.27, 0.42, 0.58, 0.73):
        c.circle(x, 0.73, 0.028, shade(colour, 0.35))
    c.circle(0.5, 0.2, 0.075, (208, 40, 60))
    c.curve([(0.51, 0.14), (0.54, 0.1), (0.6, 0.09)], 0.02, (70, 120, 60))


def balloon(c: Canvas, colour: RGB) -> None:
    c.curve([(0.5, 0.66), (0.54, 0.74), (0.46, 0.82), (0.5, 0.91)], 0.022, (110, 110, 122))
    c.polygon([(0.5, 0.6), (0.56, 0.69), (0.44, 0.69)], shade(colour, 0.25))
    c.blob(symmetric((0.5, 0.09), (0.7, 0.18), (0.76, 0.38), (0.64, 0.58), (0.5, 0.66)), colour)
    c.blob([(0.36, 0.22), (0.42, 0.18), (0.4, 0.3), (0.34, 0.36)], tint(colour, 0.6))


def gift(c: Canvas, colour: RGB) -> None:
    ribbon = GOLD if colour[2] > 90 or colour[0] < 200 or colour[1] < 120 else (214, 60, 96)
    c.twice(c.blob, [(0.0, 0.32), (0.1, 0.12), (0.27, 0.13), (0.24, 0.28)], ribbon)
    c.twice(c.blob, [(0.04, 0.29), (0.12, 0.18), (0.2, 0.19), (0.17, 0.26)], shade(ribbon, 0.3))
    c.rect(0.18, 0.46, 0.82, 0.89, colour, 0.02)
    c.rect(0.13, 0.32, 0.87, 0.49, tint(colour, 0.16), 0.03)
    c.rect(0.18, 0.49, 0.82, 0.52, shade(colour, 0.3))
    c.rect(0.44, 0.32, 0.56, 0.89, ribbon)
    c.circle(0.5, 0.31, 0.06, shade(ribbon, 0.15))


def umbrella(c: Canvas, colour: RGB) -> None:
    c.line([(0.5, 0.12), (0.5, 0.82)], 0.035, WOOD)
    c.curve([(0.5, 0.8), (0.52, 0.88), (0.59, 0.88), (0.62, 0.81)], 0.04, WOOD)
    c.pie(0.5, 0.54, 0.42, 180, 360, colour)
    c.circles(colour, (0.22, 0.54, 0.14 * 0.42), (0.78, 0.54, 0.14 * 0.42))
    c.polygon([(0.5, 0.12), (0.64, 0.54), (0.36, 0.54)], tint(colour, 0.45))
    for x in (0.22, 0.5, 0.78):
        c.ellipse(x, 0.555, 0.14, 0.05, shade(colour, 0.3))
    c.circle(0.5, 0.115, 0.03, shade(colour, 0.35))
