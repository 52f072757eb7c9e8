"""Plain shapes, blocks, and what handles them."""

import math

from .canvas import INK, RGB, WHITE, Canvas, Point, shade, symmetric, tint


def _star_points(x: float, y: float, outer: float, inner: float) -> list[Point]:
    tips = [(math.radians(-90 + 36 * i), inner if i % 2 else outer) for i in range(10)]
    return [(x + radius * math.cos(a), y + radius * math.sin(a)) for a, radius in tips]


def circle(c: Canvas, colour: RGB) -> None:
    c.circle(0.5, 0.5, 0.38, shade(colour, 0.18))
    c.circle(0.5, 0.5, 0.34, colour)
    c.ellipse(0.39, 0.36, 0.1, 0.06, tint(colour, 0.5))


def square(c: Canvas, colour: RGB) -> None:
    c.rect(0.14, 0.14, 0.86, 0.86, shade(colour, 0.18), 0.06)
    c.rect(0.18, 0.18, 0.82, 0.82, colour, 0.04)


def triangle(c: Canvas, colour: RGB) -> None:
    c.polygon([(0.5, 0.11), (0.9, 0.84), (0.1, 0.84)], shade(colour, 0.18))
    c.polygon([(0.5, 0.19), (0.83, 0.8), (0.17, 0.8)], colour)


def star(c: Canvas, colour: RGB) -> None:
    c.polygon(_star_points(0.5, 0.53, 0.43, 0.2), shade(colour, 0.18))
    c.polygon(_star_points(0.5, 0.53, 0.36, 0.165), colour)


def heart(c: Canvas, colour: RGB) -> None:
    edge = shade(colour, 0.14)
    c.circles(edge, (0.315, 0.36, 0.215), (0.685, 0.36, 0.215))
    c.polygon([(0.13, 0.46), (0.5, 0.4), (0.87, 0.46), (0.5, 0.89)], edge)
    c.circles(colour, (0.325, 0.37, 0.17), (0.675, 0.37, 0.17))
    c.polygon([(0.19, 0.47), (0.5, 0.38), (0.81, 0.47), (0.5, 0.82)], colour)
    c.ellipse(0.28, 0.31, 0.06, 0.045, tint(colour, 0.6))


def diamond(c: Canvas, colour: RGB) -> None:
    c.polygon([(0.5, 0.09), (0.83, 0.5), (0.5, 0.91), (0.17, 0.5)], shade(colour, 0.22))
    c.polygon([(0.5, 0.15), (0.78, 0.5), (0.5, 0.5)], tint(colour, 0.15))
    c.polygon([(0.5, 0.15), (0.22, 0.5), (0.5, 0.5)], tint(colour, 0.4))
    c.polygon([(0.22, 0.5), (0.78, 0.5), (0.5, 0.85)], colour)


def cross(c: Canvas, colour: RGB) -> None:
    for width, fill in ((0.19, shade(colour, 0.18)), (0.12, colour)):
        c.twice(c.line, [(-0.26, 0.24), (0.26, 0.76)], width, fill)


def block(c: Canvas, colour: RGB) -> None:
    c.polygon([(0.12, 0.34), (0.3, 0.16), (0.88, 0.16), (0.7, 0.34)], tint(colour, 0.42))
    c.polygon([(0.7, 0.34), (0.88, 0.16), (0.88, 0.68), (0.7, 0.86)], shade(colour, 0.34))
    c.rect(0.12, 0.34, 0.7, 0.86, colour)
    c.line([(0.2, 0.43), (0.62, 0.43)], 0.025, tint(colour, 0.3))


def gripper(c: Canvas, colour: RGB) -> None:
    c.rect(0.4, 0.09, 0.6, 0.36, shade(colour, 0.3), 0.03)
    for y in (0.15, 0.22, 0.29):
        c.line([(0.42, y), (0.58, y)], 0.02, tint(colour, 0.2))
    c.twice(c.line, [(0.1, 0.46), (0.29, 0.6)], 0.13, colour)
    c.twice(c.line, [(0.29, 0.6), (0.19, 0.85)], 0.12, colour)
    c.twice(c.line, [(0.15, 0.85), (0.2, 0.74)], 0.05, INK)
    c.circle(0.5, 0.43, 0.16, colour)
    c.circle(0.5, 0.43, 0.09, shade(colour, 0.4))
    c.circle(0.5, 0.43, 0.045, WHITE)


def box(c: Canvas, colour: RGB) -> None:
    c.polygon([(0.2, 0.44), (0.32, 0.28), (0.68, 0.28), (0.8, 0.44)], shade(colour, 0.5))
    c.polygon([(0.2, 0.44), (0.32, 0.28), (0.19, 0.2), (0.09, 0.36)], tint(colour, 0.3))
    c.polygon([(0.8, 0.44), (0.68, 0.28), (0.81, 0.2), (0.91, 0.36)], tint(colour, 0.3))
    c.rect(0.2, 0.44, 0.8, 0.87, colour, 0.02)
    c.rect(0.45, 0.44, 0.55, 0.87, tint(colour, 0.35))
    c.rect(0.26, 0.72, 0.38, 0.8, shade(colour, 0.3), 0.01)


def shirt(c: Canvas, colour: RGB) -> None:
    sleeve = [(0.16, 0.16), (0.41, 0.31), (0.32, 0.48), (0.2, 0.4)]
    c.twice(c.polygon, sleeve, shade(colour, 0.15))
    c.polygon(symmetric((0.64, 0.15), (0.74, 0.22), (0.71, 0.87)), colour)
    c.pie(0.5, 0.14, 0.12, 0, 180, shade(colour, 0.45))
    c.rect(0.29, 0.55, 0.71, 0.65, tint(colour, 0.45))


def folded_shirt(c: Canvas, colour: RGB) -> None:
    c.rect(0.14, 0.44, 0.86, 0.82, shade(colour, 0.25), 0.06)
    c.rect(0.14, 0.4, 0.86, 0.72, colour, 0.06)
    c.rect(0.14, 0.56, 0.86, 0.62, tint(colour, 0.45))
    c.polygon([(0.36, 0.4), (0.64, 0.4), (0.5, 0.53)], shade(colour, 0.45))
    c.twice(c.polygon, [(0.0, 0.5), (0.17, 0.37), (0.2, 0.5)], tint(colour, 0.25))
    c.line([(0.2, 0.76), (0.8, 0.76)], 0.02, shade(colour, 0.42))
