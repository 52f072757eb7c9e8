"""Backgrounds: plain and pale or plain and dark, so that every thing is readable on them."""

from collections.abc import Callable

from ..canvas import RGB, Canvas, shade, tint

Backdrop = Callable[[Canvas], None]


def paper(c: Canvas) -> None:
    c.rect(0, 0, 1, 1, (251, 246, 234))


def meadow(c: Canvas) -> None:
    c.fade((200, 230, 248), (232, 245, 250), 0, 0.66)
    c.ellipse(0.22, 0.86, 0.6, 0.3, (186, 220, 156))
    c.ellipse(0.86, 0.9, 0.6, 0.3, (172, 212, 144))
    c.rect(0, 0.8, 1, 1, (160, 204, 132))
    for x, y in ((0.06, 0.86), (0.31, 0.95), (0.52, 0.87), (0.7, 0.95), (0.94, 0.88)):
        c.line([(x - 0.01, y - 0.02), (x, y), (x + 0.012, y - 0.024)], 0.005, (124, 176, 104))


def night_sky(c: Canvas) -> None:
    c.fade((24, 30, 66), (58, 66, 118))
    stars = (
        (0.07, 0.09), (0.2, 0.03), (0.34, 0.12), (0.47, 0.05), (0.62, 0.1), (0.8, 0.04),
        (0.94, 0.13), (0.03, 0.34), (0.33, 0.36), (0.66, 0.31), (0.97, 0.42), (0.14, 0.52),
        (0.5, 0.65), (0.85, 0.64), (0.34, 0.7), (0.04, 0.78), (0.68, 0.8), (0.96, 0.9),
        (0.24, 0.96), (0.5, 0.94),
    )  # fmt: skip
    for i, (x, y) in enumerate(stars):
        c.circle(x, y, 0.0035 + 0.002 * (i % 3), (226, 226, 190))


def sunset(c: Canvas) -> None:
    c.fade((128, 116, 178), (246, 170, 140), 0, 0.45)
    c.fade((246, 170, 140), (252, 218, 160), 0.45, 1)
    c.ellipse(0.2, 0.92, 0.55, 0.24, (132, 100, 128))
    c.ellipse(0.85, 0.95, 0.6, 0.26, (112, 86, 118))
    c.rect(0, 0.88, 1, 1, (98, 76, 108))


def beach(c: Canvas) -> None:
    c.fade((186, 226, 246), (224, 242, 248), 0, 0.42)
    c.fade((112, 190, 216), (150, 214, 226), 0.42, 0.68)
    c.rect(0, 0.66, 1, 1, (246, 228, 180))
    c.curve([(-0.05, 0.68), (0.25, 0.65), (0.6, 0.675), (1.05, 0.65)], 0.03, (250, 250, 242))
    for x, y in ((0.1, 0.84), (0.36, 0.94), (0.62, 0.8), (0.85, 0.92)):
        c.circle(x, y, 0.006, (222, 198, 146))


def snow(c: Canvas) -> None:
    c.fade((188, 210, 232), (218, 232, 244), 0, 0.7)
    c.ellipse(0.2, 0.93, 0.6, 0.28, (240, 246, 252))
    c.ellipse(0.85, 0.97, 0.65, 0.3, (250, 252, 255))
    c.rect(0, 0.9, 1, 1, (250, 252, 255))
    flakes = ((0.08, 0.12), (0.3, 0.06), (0.52, 0.16), (0.74, 0.05), (0.93, 0.18), (0.16, 0.4),
              (0.42, 0.34), (0.66, 0.42), (0.88, 0.5), (0.04, 0.62), (0.55, 0.6))  # fmt: skip
    for x, y in flakes:
        c.circle(x, y, 0.008, (255, 255, 255))


def table(c: Canvas) -> None:
    wood: RGB = (226, 196, 156)
    c.rect(0, 0, 1, 1, wood)
    for i, y in enumerate((0.0, 0.2, 0.4, 0.6, 0.8)):
        if i % 2:
            c.rect(0, y, 1, y + 0.2, tint(wood, 0.14))
        c.line([(0, y), (1, y)], 0.006, shade(wood, 0.12))


def room(c: Canvas) -> None:
    c.rect(0, 0, 1, 0.7, (244, 228, 214))
    for i in range(10):
        c.rect(i * 0.1, 0, i * 0.1 + 0.05, 0.7, (240, 221, 205))
    c.rect(0, 0.7, 1, 1, (206, 172, 140))
    c.rect(0, 0.68, 1, 0.715, (255, 250, 244))
    for x in (0.17, 0.5, 0.83):
        c.line([(x, 0.72), (x + (x - 0.5) * 0.3, 1)], 0.005, (188, 152, 120))


def street(c: Canvas) -> None:
    c.fade((214, 230, 240), (236, 240, 242), 0, 0.6)
    for x, top, width in (
        (0.0, 0.3, 0.14),
        (0.17, 0.2, 0.12),
        (0.44, 0.34, 0.16),
        (0.66, 0.22, 0.1),
        (0.84, 0.3, 0.16),
    ):
        c.rect(x, top, x + width, 0.62, (206, 214, 224))
    c.rect(0, 0.6, 1, 0.69, (216, 212, 206))
    c.rect(0, 0.68, 1, 1, (150, 154, 164))
    for x in (0.04, 0.29, 0.54, 0.79):
        c.rect(x, 0.825, x + 0.16, 0.845, (240, 236, 214))


def stage(c: Canvas) -> None:
    c.fade((92, 70, 112), (134, 100, 142), 0, 0.74)
    for x in (0.3, 0.7):
        c.polygon([(x - 0.04, 0), (x + 0.04, 0), (x + 0.2, 0.78), (x - 0.2, 0.78)], (158, 124, 160))
    for i in range(3):
        for x in (i * 0.05, 1 - (i + 1) * 0.05):
            c.rect(x, 0, x + 0.05, 0.78, (176, 64, 72) if i % 2 else (154, 50, 62))
    c.rect(0, 0.74, 1, 1, (202, 160, 116))
    for y in (0.82, 0.91):
        c.line([(0, y), (1, y)], 0.005, (180, 138, 98))


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


BACKDROPS: dict[str, Backdrop] = {
    "paper": paper,
    "meadow": meadow,
    "night sky": night_sky,
    "sunset": sunset,
    "beach": beach,
    "snow": snow,
    "table": table,
    "room": room,
    "street": street,
    "stage": stage,
    "sea": sea,
    "rain": rain,
    "graph paper": graph_paper,
}
