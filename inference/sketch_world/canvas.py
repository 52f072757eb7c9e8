"""A small drawing surface in unit coordinates: (0, 0) is the top left, (1, 1) the bottom right.

Drawings are oversampled and averaged down for smooth edges at any size. A sprite gets a pale rim
and a faint shadow, to be readable on every background.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import product

from PIL import Image, ImageDraw, ImageFilter

RGB = tuple[int, int, int]
Point = tuple[float, float]

INK = (44, 42, 54)
LEAF = (74, 158, 84)
WHITE = (255, 255, 255)
PAPER = (252, 248, 238)
GOLD = (250, 204, 72)

_OVERSAMPLING = 4
_RIM = 0.018  # width of a sticker's pale rim, in units
_RIM_COLOUR = (255, 254, 250)
_SHADOW = (60, 56, 72, 80)


def shade(colour: RGB, amount: float = 0.25) -> RGB:
    return mix(colour, (0, 0, 0), amount)


def tint(colour: RGB, amount: float = 0.35) -> RGB:
    return mix(colour, WHITE, amount)


def mix(first: RGB, second: RGB, amount: float) -> RGB:
    """`first` with `amount` (0-1) of `second`."""
    r, g, b = (round(a + (c - a) * amount) for a, c in zip(first, second, strict=True))
    return r, g, b


class Canvas:
    """A transparent square of `size` x `size` pixels with unit coordinates.

    `margin`: width of a border, as a share of the square, that the unit square leaves free.
    """

    def __init__(self, size: int, margin: float = 0) -> None:
        self.size = size
        self._side = size * _OVERSAMPLING
        self._unit = self._side * (1 - 2 * margin)
        self._origin = self._side * margin
        self._image = Image.new("RGBA", (self._side, self._side), (0, 0, 0, 0))
        self._draw = ImageDraw.Draw(self._image)

    def flat(self) -> Image.Image:
        """The drawing, RGBA, `size` x `size`."""
        return _shrink(self._image, self.size)

    def sticker(self) -> Image.Image:
        """The drawing with a pale rim and a faint shadow, RGBA, `size` x `size`."""
        sticker = _backing(self._image.getchannel("A").tobytes(), self._side).copy()
        sticker.alpha_composite(self._image)
        return _shrink(sticker, self.size)

    def circle(self, x: float, y: float, radius: float, fill: RGB) -> None:
        self.ellipse(x, y, radius, radius, fill)

    def circles(self, fill: RGB, *circles: tuple[float, float, float]) -> None:
        """Circles of the same colour, each as (x, y, radius)."""
        for circle in circles:
            self.circle(*circle, fill)

    def ellipse(self, x: float, y: float, rx: float, ry: float, fill: RGB) -> None:
        self._draw.ellipse(self._around(x, y, rx, ry), fill=fill)

    def rect(
        self, x0: float, y0: float, x1: float, y1: float, fill: RGB, radius: float = 0
    ) -> None:
        corners = self._scaled([(x0, y0), (x1, y1)])
        self._draw.rounded_rectangle(corners, radius=radius * self._unit, fill=fill)

    def polygon(self, points: Sequence[Point], fill: RGB) -> None:
        self._draw.polygon(self._scaled(points), fill=fill)

    def blob(self, points: Sequence[Point], fill: RGB) -> None:
        """A smooth closed shape through the points."""
        self.polygon(_smooth(points, closed=True), fill)

    def line(self, points: Sequence[Point], width: float, fill: RGB) -> None:
        """A polyline with round caps and joints."""
        scaled, pixels = self._scaled(points), max(1, round(width * self._unit))
        self._draw.line(scaled, fill=fill, width=pixels, joint="curve")
        for x, y in scaled:
            r = pixels / 2
            self._draw.ellipse((x - r, y - r, x + r, y + r), fill=fill)

    def curve(self, points: Sequence[Point], width: float, fill: RGB) -> None:
        """A smooth open line through the points."""
        self.line(_smooth(points, closed=False), width, fill)

    def smile(self, x: float, y: float, width: float, colour: RGB = INK) -> None:
        points = [(x - width / 2, y), (x, y + width * 0.35), (x + width / 2, y)]
        self.curve(points, width * 0.18, colour)

    def eyes(self, radius: float, *centres: Point) -> None:
        """White with a pupil, readable on dark fur."""
        for x, y in centres:
            self.circle(x, y, radius, WHITE)
            self.circle(x, y + radius * 0.1, radius * 0.58, INK)

    def leaf(self, x: float, y: float, dx: float, dy: float, fill: RGB = LEAF) -> None:
        """A leaf from (x, y) to its tip at (x + dx, y + dy)."""
        nx, ny = -dy * 0.32, dx * 0.32
        mx, my = x + dx * 0.5, y + dy * 0.5
        self.blob([(x, y), (mx + nx, my + ny), (x + dx, y + dy), (mx - nx, my - ny)], fill)

    def twice(self, draw: Callable, points: Sequence[Point], *style: float | RGB) -> None:
        """`draw` the points on both sides of the middle, from which their x is counted."""
        for side in (-1, 1):
            draw([(0.5 + side * x, y) for x, y in points], *style)

    def pie(self, x: float, y: float, radius: float, start: float, end: float, fill: RGB) -> None:
        """A sector; degrees run clockwise from the right."""
        self._draw.pieslice(self._around(x, y, radius, radius), start, end, fill=fill)

    def cut(self, x: float, y: float, radius: float) -> None:
        """A round hole: transparent again."""
        self._draw.ellipse(self._around(x, y, radius, radius), (0, 0, 0, 0))

    def fade(self, top: RGB, bottom: RGB, y0: float = 0, y1: float = 1) -> None:
        """A vertical gradient over the full width between two heights."""
        first, last = round(y0 * self._side), round(y1 * self._side)
        for y in range(first, last):
            fill = mix(top, bottom, (y - first) / max(1, last - first - 1))
            self._draw.line((0, y, self._side, y), fill=fill)

    def _around(self, x: float, y: float, rx: float, ry: float) -> list[Point]:
        return self._scaled([(x - rx, y - ry), (x + rx, y + ry)])

    def _scaled(self, points: Sequence[Point]) -> list[Point]:
        return [(self._origin + x * self._unit, self._origin + y * self._unit) for x, y in points]


@lru_cache(maxsize=8)
def _backing(silhouette: bytes, side: int) -> Image.Image:
    """Rim and shadow around a silhouette; cached, since the colours of a kind share it."""
    alpha = Image.frombytes("L", (side, side), silhouette)
    rim = Image.new("RGBA", alpha.size, _RIM_COLOUR)
    rim.putalpha(_grow(alpha, _RIM * side))
    backing = Image.new("RGBA", alpha.size, _SHADOW)
    backing.putalpha(_grow(alpha, 1.7 * _RIM * side).point(lambda a: a * _SHADOW[3] // 255))
    backing.alpha_composite(rim)
    return backing


def _grow(alpha: Image.Image, pixels: float) -> Image.Image:
    """The mask widened by about `pixels`: blurred, then thresholded steeply near zero."""
    blurred = alpha.filter(ImageFilter.GaussianBlur(pixels))
    return blurred.point(lambda a: min(255, max(0, (a - 26) * 16)))


def _shrink(image: Image.Image, size: int) -> Image.Image:
    """Averaged down with premultiplied alpha, so that edges keep their colour."""
    box = Image.Resampling.BOX
    return image.convert("RGBa").resize((size, size), box).convert("RGBA")


def _smooth(points: Sequence[Point], *, closed: bool, steps: int = 12) -> list[Point]:
    """Catmull-Rom spline through the points."""
    n = len(points)
    around = [points[i % n] if closed else points[min(max(i, 0), n - 1)] for i in range(-1, n + 2)]
    segments = n if closed else n - 1
    ends = product(range(segments), range(steps))
    path = [_spline(around[i : i + 4], step / steps) for i, step in ends]
    return path if closed else [*path, points[-1]]


def _spline(p: Sequence[Point], t: float) -> Point:
    a, b, c, d = (
        -0.5 * t**3 + t**2 - 0.5 * t,
        1.5 * t**3 - 2.5 * t**2 + 1,
        -1.5 * t**3 + 2 * t**2 + 0.5 * t,
        0.5 * t**3 - 0.5 * t**2,
    )
    x, y = (a * p[0][i] + b * p[1][i] + c * p[2][i] + d * p[3][i] for i in (0, 1))
    return x, y
