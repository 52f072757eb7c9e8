"""Animals, and the stages of their lives."""

from .canvas import INK, LEAF, RGB, WHITE, Canvas, Point, mix, shade, symmetric, tint

_BEAK = (244, 150, 40)
_NOSE = (232, 120, 134)


def _ink_on(colour: RGB) -> RGB:
    return WHITE if 0.299 * colour[0] + 0.587 * colour[1] + 0.114 * colour[2] < 70 else INK


def _eyes(c: Canvas, radius: float, *centres: Point) -> None:
    """White with a pupil, readable on dark fur."""
    for x, y in centres:
        c.circle(x, y, radius, WHITE)
        c.circle(x, y + radius * 0.1, radius * 0.58, INK)


def cat(c: Canvas, colour: RGB) -> None:
    c.curve([(0.68, 0.84), (0.86, 0.8), (0.87, 0.6), (0.8, 0.5)], 0.08, shade(colour, 0.15))
    c.blob([(0.36, 0.5), (0.64, 0.5), (0.74, 0.86), (0.5, 0.9), (0.26, 0.86)], colour)
    c.blob([(0.44, 0.6), (0.56, 0.6), (0.58, 0.87), (0.42, 0.87)], tint(colour, 0.5))
    c.twice(c.polygon, [(0.28, 0.1), (0.29, 0.36), (0.08, 0.22)], colour)
    c.twice(c.polygon, [(0.25, 0.17), (0.25, 0.3), (0.15, 0.23)], _NOSE)
    c.ellipse(0.5, 0.37, 0.29, 0.22, colour)
    for x in (0.43, 0.5, 0.57):
        c.line([(x, 0.17), (x, 0.23)], 0.026, shade(colour, 0.35))
    _eyes(c, 0.06, (0.39, 0.36), (0.61, 0.36))
    c.polygon([(0.46, 0.43), (0.54, 0.43), (0.5, 0.475)], _NOSE)
    c.twice(c.line, [(0.14, 0.46), (0.33, 0.44)], 0.014, _ink_on(colour))
    c.twice(c.line, [(0.14, 0.49), (0.32, 0.51)], 0.014, _ink_on(colour))


def dog(c: Canvas, colour: RGB) -> None:
    c.curve([(0.2, 0.52), (0.11, 0.42), (0.14, 0.3)], 0.075, colour)
    for x in (0.2, 0.34, 0.54, 0.65):
        c.rect(x, 0.6, x + 0.09, 0.9, shade(colour, 0.14) if x in (0.34, 0.54) else colour, 0.03)
    c.rect(0.16, 0.46, 0.74, 0.72, colour, 0.12)
    c.circle(0.68, 0.36, 0.19, colour)
    c.ellipse(0.81, 0.42, 0.11, 0.085, tint(colour, 0.45))
    c.circle(0.89, 0.38, 0.037, INK)
    ear = [(0.54, 0.2), (0.63, 0.22), (0.62, 0.42), (0.53, 0.52), (0.47, 0.4)]
    c.blob(ear, shade(colour, 0.38))
    c.line([(0.54, 0.53), (0.72, 0.57)], 0.055, (230, 70, 64))
    _eyes(c, 0.045, (0.72, 0.31))


def fish(c: Canvas, colour: RGB) -> None:
    c.polygon([(0.34, 0.5), (0.09, 0.26), (0.15, 0.5), (0.09, 0.74)], shade(colour, 0.22))
    c.blob([(0.45, 0.32), (0.58, 0.16), (0.7, 0.34)], shade(colour, 0.22))
    c.blob([(0.5, 0.68), (0.52, 0.84), (0.66, 0.68)], shade(colour, 0.22))
    c.ellipse(0.58, 0.5, 0.33, 0.23, colour)
    c.ellipse(0.6, 0.58, 0.24, 0.12, tint(colour, 0.3))
    for x in (0.4, 0.52):
        c.curve([(x, 0.36), (x + 0.06, 0.5), (x, 0.64)], 0.035, tint(colour, 0.6))
    _eyes(c, 0.065, (0.76, 0.44))
    c.curve([(0.78, 0.56), (0.82, 0.59), (0.87, 0.56)], 0.022, _ink_on(colour))


def bird(c: Canvas, colour: RGB) -> None:
    c.polygon([(0.3, 0.52), (0.07, 0.46), (0.1, 0.62), (0.28, 0.68)], shade(colour, 0.35))
    for x in (0.46, 0.57):
        c.line([(x, 0.74), (x, 0.88), (x + 0.06, 0.89)], 0.03, _BEAK)
    c.ellipse(0.5, 0.56, 0.29, 0.25, colour)
    c.circle(0.65, 0.36, 0.19, colour)
    c.ellipse(0.6, 0.66, 0.17, 0.13, tint(colour, 0.55))
    c.polygon([(0.81, 0.32), (0.94, 0.39), (0.81, 0.45)], _BEAK)
    c.blob([(0.56, 0.48), (0.48, 0.7), (0.22, 0.64), (0.34, 0.46)], shade(colour, 0.28))
    _eyes(c, 0.055, (0.7, 0.33))


def rabbit(c: Canvas, colour: RGB) -> None:
    for x in (0.38, 0.62):
        c.ellipse(x, 0.24, 0.082, 0.17, colour)
        c.ellipse(x, 0.26, 0.04, 0.12, (246, 176, 190))
    c.circle(0.76, 0.78, 0.08, tint(colour, 0.6))
    c.ellipse(0.5, 0.74, 0.26, 0.17, colour)
    c.ellipse(0.5, 0.78, 0.14, 0.12, tint(colour, 0.55))
    c.ellipse(0.5, 0.48, 0.235, 0.19, colour)
    _eyes(c, 0.05, (0.41, 0.46), (0.59, 0.46))
    c.ellipse(0.5, 0.535, 0.032, 0.024, _NOSE)
    c.rect(0.475, 0.57, 0.525, 0.63, WHITE, 0.008)
    for x in (0.37, 0.63):
        c.ellipse(x, 0.88, 0.1, 0.035, tint(colour, 0.35))


def egg(c: Canvas, colour: RGB) -> None:
    right = (0.5, 0.11), (0.63, 0.18), (0.73, 0.37), (0.78, 0.6), (0.69, 0.81), (0.5, 0.89)
    outline = symmetric(*right)
    c.blob(outline, shade(colour, 0.1))
    c.blob([(0.49 + (x - 0.5) * 0.92, 0.49 + (y - 0.5) * 0.93) for x, y in outline], colour)
    c.blob([(0.38, 0.27), (0.43, 0.26), (0.38, 0.44), (0.32, 0.5)], tint(colour, 0.6))
    spots = (0.6, 0.36, 0.04), (0.43, 0.66, 0.05), (0.65, 0.62, 0.04), (0.52, 0.5, 0.028)
    c.circles(shade(colour, 0.2), *spots)


def chick(c: Canvas, colour: RGB) -> None:
    for x in (0.42, 0.58):
        c.line([(x, 0.8), (x, 0.89)], 0.03, _BEAK)
        c.line([(x - 0.05, 0.895), (x + 0.05, 0.895)], 0.025, _BEAK)
    for x, y in ((0.46, 0.13), (0.54, 0.12)):
        c.line([(0.5, 0.22), (x, y)], 0.03, shade(colour, 0.15))
    c.ellipse(0.5, 0.62, 0.3, 0.24, colour)
    c.circle(0.5, 0.38, 0.21, colour)
    wing = [(0.28, 0.54), (0.36, 0.7), (0.2, 0.74), (0.16, 0.6)]
    c.twice(c.blob, wing, shade(colour, 0.18))
    c.ellipse(0.5, 0.7, 0.16, 0.13, tint(colour, 0.4))
    if _ink_on(colour) == WHITE:
        _eyes(c, 0.045, (0.42, 0.35), (0.58, 0.35))
    else:
        for x in (0.42, 0.58):
            c.circle(x, 0.35, 0.035, INK)
            c.circle(x + 0.035 * 0.3, 0.33775, 0.0126, WHITE)
    c.polygon([(0.44, 0.4), (0.56, 0.4), (0.5, 0.49)], _BEAK)


def hen(c: Canvas, colour: RGB) -> None:
    red = (222, 54, 58)
    for x in (0.42, 0.54):
        c.line([(x, 0.76), (x, 0.89), (x + 0.07, 0.89)], 0.03, _BEAK)
    c.circles(red, (0.63, 0.15, 0.05), (0.71, 0.12, 0.05), (0.78, 0.17, 0.05))
    c.blob([(0.2, 0.26), (0.32, 0.5), (0.3, 0.66), (0.12, 0.56), (0.1, 0.36)], shade(colour, 0.3))
    c.blob([(0.2, 0.5), (0.46, 0.46), (0.6, 0.4), (0.78, 0.54), (0.66, 0.78), (0.36, 0.82)], colour)
    c.blob([(0.58, 0.24), (0.7, 0.15), (0.82, 0.26), (0.8, 0.5), (0.7, 0.64), (0.54, 0.56)], colour)
    c.polygon([(0.81, 0.25), (0.93, 0.3), (0.81, 0.35)], _BEAK)
    c.ellipse(0.82, 0.4, 0.032, 0.055, red)
    c.blob([(0.34, 0.54), (0.58, 0.56), (0.52, 0.72), (0.32, 0.7)], shade(colour, 0.22))
    _eyes(c, 0.04, (0.73, 0.26))


def caterpillar(c: Canvas, colour: RGB) -> None:
    joints = ((0.17, 0.7), (0.31, 0.62), (0.45, 0.68), (0.58, 0.62))
    for x, y in joints:
        for dx in (-0.04, 0.04):
            c.line([(x + dx, y + 0.08), (x + dx, y + 0.16)], 0.03, INK)
    for i, (x, y) in enumerate(joints):
        c.circle(x, y, 0.115, shade(colour, 0.2) if i % 2 else colour)
    for x, tip in ((0.68, 0.62), (0.8, 0.86)):
        c.line([(x, 0.4), (tip, 0.25)], 0.024, INK)
        c.circle(tip, 0.24, 0.03, (230, 70, 64))
    c.circle(0.74, 0.52, 0.17, colour)
    _eyes(c, 0.05, (0.68, 0.48), (0.81, 0.48))
    c.smile(0.75, 0.58, 0.12, _ink_on(colour))


def cocoon(c: Canvas, colour: RGB) -> None:
    c.line([(0.12, 0.16), (0.88, 0.12)], 0.06, (112, 78, 52))
    c.blob([(0.76, 0.13), (0.86, 0.2), (0.9, 0.33), (0.78, 0.26)], LEAF)
    c.line([(0.46, 0.15), (0.46, 0.3)], 0.03, shade(colour, 0.3))
    c.blob([(0.46, 0.24), (0.62, 0.36), (0.65, 0.6), (0.46, 0.9), (0.27, 0.6), (0.3, 0.36)], colour)
    for y, w in ((0.4, 0.13), (0.52, 0.16), (0.64, 0.14), (0.75, 0.08)):
        c.curve([(0.46 - w, y), (0.46, y + 0.05), (0.46 + w, y)], 0.028, shade(colour, 0.3))
    c.ellipse(0.38, 0.44, 0.025, 0.06, tint(colour, 0.4))


def butterfly(c: Canvas, colour: RGB) -> None:
    upper = [(0.03, 0.46), (0.12, 0.24), (0.3, 0.13), (0.42, 0.24), (0.36, 0.46), (0.16, 0.52)]
    lower = [(0.03, 0.5), (0.24, 0.52), (0.33, 0.66), (0.24, 0.84), (0.1, 0.76)]
    inner_upper = [(0.06, 0.45), (0.14, 0.28), (0.29, 0.18), (0.37, 0.27), (0.31, 0.43)]
    inner_lower = [(0.06, 0.54), (0.23, 0.56), (0.28, 0.66), (0.22, 0.78), (0.11, 0.7)]
    c.twice(c.blob, upper, shade(colour, 0.3))
    c.twice(c.blob, lower, shade(colour, 0.3))
    c.twice(c.blob, inner_upper, colour)
    c.twice(c.blob, inner_lower, tint(colour, 0.2))
    spots = (0.24, 0.31, 0.055), (0.76, 0.31, 0.055), (0.3, 0.66, 0.04), (0.7, 0.66, 0.04)
    c.circles(tint(colour, 0.65), *spots)
    c.twice(c.curve, [(0.0, 0.28), (0.04, 0.18), (0.11, 0.12)], 0.02, INK)
    c.ellipse(0.5, 0.53, 0.042, 0.23, INK)
    c.circle(0.5, 0.29, 0.055, INK)


def frog(c: Canvas, colour: RGB) -> None:
    c.twice(c.blob, [(0.2, 0.6), (0.41, 0.66), (0.4, 0.86), (0.2, 0.88)], shade(colour, 0.18))
    for x in (0.36, 0.64):
        c.ellipse(x, 0.87, 0.1, 0.035, shade(colour, 0.3))
    c.circles(colour, (0.3, 0.26, 0.14), (0.7, 0.26, 0.14))
    c.ellipse(0.5, 0.68, 0.29, 0.2, colour)
    c.ellipse(0.5, 0.74, 0.19, 0.13, tint(colour, 0.5))
    c.ellipse(0.5, 0.43, 0.37, 0.2, colour)
    _eyes(c, 0.09, (0.3, 0.25), (0.7, 0.25))
    c.curve([(0.24, 0.46), (0.5, 0.56), (0.76, 0.46)], 0.032, _ink_on(colour))
    c.circles(mix(colour, (250, 110, 120), 0.55), (0.2, 0.45, 0.04), (0.8, 0.45, 0.04))


def tadpole(c: Canvas, colour: RGB) -> None:
    c.curve([(0.6, 0.56), (0.38, 0.66), (0.26, 0.52), (0.1, 0.58)], 0.09, tint(colour, 0.25))
    c.ellipse(0.67, 0.49, 0.24, 0.2, colour)
    c.ellipse(0.62, 0.41, 0.08, 0.04, tint(colour, 0.4))
    _eyes(c, 0.07, (0.76, 0.44))
    c.curve([(0.77, 0.57), (0.82, 0.57), (0.86, 0.54)], 0.024, _ink_on(colour))
