"""Contact sheets: a row per trajectory with its images, captions and rejected attempts."""

import io
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont, ImageOps

from inference.generation.files import render_html
from inference.generation.trajectory_view import AttemptView, StepView, TrajectoryView
from warehouse import Home
from warehouse.atomic import atomic_write

from ..core.plotting import BAD, INK, PALE, PAPER
from .trajectory_views import load_trajectories, newest_shards, pick_showcase

_FRAME, _FAINT = "#d5dae3", "#f3f5f9"
_MARGIN, _GAP, _CAPTION_LINES = 28, 14, 3


def write_showcase(home: Home, folder: Path) -> Path:
    """Write a contact sheet and an HTML page of up to six trajectories of the newest shards; path
    of the page."""
    shards = newest_shards(home)
    trajectories = load_trajectories(home, pick_showcase(home, 6, shards), shards)
    sheet = io.BytesIO()
    contact_sheet(trajectories, image_size=192).save(sheet, "PNG", optimize=True)
    atomic_write(folder / "contact_sheet.png", sheet.getvalue())
    page = folder / "story.html"
    atomic_write(page, render_html(trajectories))
    return page


def contact_sheet(
    views: list[TrajectoryView], image_size: int = 160, columns: int = 6
) -> Image.Image:
    """One image of several trajectories, for people to judge at a glance.

    A step's image has sides of `image_size` pixels, its rejected attempts are thumbnails with a red
    corner; trajectories longer than `columns` continue on the next line.
    """
    most_steps = max((len(view.steps) for view in views), default=1)
    painter = _Painter(image_size, max(3, min(columns, most_steps)))
    rows = [painter.trajectory(view) for view in views]
    if any(step.rejected for view in views for step in view.steps):
        rows.append(painter.legend())
    return _stack(rows, painter.width, _MARGIN, 2 * _GAP)


def _stack(parts: Sequence[Image.Image], width: int, margin: int = 0, gap: int = 0) -> Image.Image:
    """Images one below the other; `margin` above the first and below the last."""
    height = sum(part.height + gap for part in parts) - gap
    stack = Image.new("RGB", (width, 2 * margin + max(height, 0)), PAPER)
    top = margin
    for part in parts:
        stack.paste(part, (0, top))
        top += part.height + gap
    return stack


@dataclass(frozen=True)
class _Painter:
    """Draws the parts of a sheet; images are squares of `size` pixels, `columns` in a line."""

    size: int
    columns: int

    @property
    def width(self) -> int:
        return 2 * _MARGIN + self.columns * self.size + (self.columns - 1) * _GAP

    @property
    def line_height(self) -> int:
        return round(self.size * 0.105)

    @property
    def thumbnail(self) -> int:
        return round(self.size * 0.3)

    def font(self, size: float, weight: str = "") -> ImageFont.FreeTypeFont:
        """DejaVu Sans at `size` times a caption's height."""
        return _font(f"DejaVuSans{weight}", round(self.size * 0.075 * size))

    def trajectory(self, view: TrajectoryView) -> Image.Image:
        starts = range(0, len(view.steps), self.columns)
        lines = [self._line(view.steps[start : start + self.columns]) for start in starts]
        return _stack([self._heading(view), *lines], self.width)

    def legend(self) -> Image.Image:
        side = round(self.line_height * 0.9)
        image = self._canvas(self.line_height + 2)
        draw = ImageDraw.Draw(image)
        draw.rectangle((_MARGIN, 0, _MARGIN + side, side), _FAINT, _FRAME)
        _draw_red_corner(draw, _MARGIN, 0, side + 1)
        label = "drawn, rejected by the critic, and drawn again from a rewritten prompt"
        draw.text((_MARGIN + side + 8, side / 2), label, PALE, self.font(0.9), anchor="lm")
        return image

    def _canvas(self, height: int) -> Image.Image:
        return Image.new("RGB", (self.width, height), PAPER)

    def _heading(self, view: TrajectoryView) -> Image.Image:
        title, step = self.font(1.2, "-Bold"), round(self.line_height * 1.35)
        lines = _wrap(view.text, title, self.width - 2 * _MARGIN, 2)
        image = self._canvas(step * (len(lines) + 1) + _GAP // 2)
        draw = ImageDraw.Draw(image)
        category = f"{view.category}  ·  {view.subcategory}".upper()
        draw.text((_MARGIN, 0), category, PALE, self.font(0.85, "-Bold"))
        for number, line in enumerate(lines, start=1):
            draw.text((_MARGIN, number * step - self.line_height // 4), line, INK, title)
        return image

    def _line(self, steps: Sequence[StepView]) -> Image.Image:
        rejected = any(step.rejected for step in steps)
        below = self.size + (self.thumbnail + _GAP // 2 if rejected else 0)
        caption_lines = max(len(self._caption(step)) for step in steps)
        image = self._canvas(below + _GAP + self.line_height * (caption_lines + 1))
        for column, step in enumerate(steps):
            x = _MARGIN + column * (self.size + _GAP)
            self._draw_step(image, step, x)
            if rejected:
                self._draw_rejections(image, step, x)
            self._draw_caption(image, step, x, below + _GAP // 2)
        return image

    def _draw_step(self, image: Image.Image, step: StepView, x: int) -> None:
        """The chosen image; an empty frame where there is none."""
        if step.chosen:
            image.paste(_fit_square(step.chosen, self.size), (x, 0))
        frame = (x, 0, x + self.size - 1, self.size - 1)
        ImageDraw.Draw(image).rectangle(frame, None if step.chosen else _FAINT, _FRAME)

    def _draw_rejections(self, image: Image.Image, step: StepView, x: int) -> None:
        side, y, draw = self.thumbnail, self.size + _GAP // 2, ImageDraw.Draw(image)
        capacity = self.size // (side + 4)
        for number, attempt in enumerate(step.rejected[:capacity]):
            corner = x + number * (side + 4)
            image.paste(_fit_square(attempt, side), (corner, y))
            draw.rectangle((corner, y, corner + side - 1, y + side - 1), None, _FRAME)
            _draw_red_corner(draw, corner, y, side)
        if len(step.rejected) > capacity:
            note = f"+{len(step.rejected) - capacity}"
            draw.text((x + self.size, y + side), note, PALE, self.font(0.8), anchor="rd")

    def _draw_caption(self, image: Image.Image, step: StepView, x: int, y: int) -> None:
        bold, regular, draw = self.font(1, "-Bold"), self.font(0.95), ImageDraw.Draw(image)
        title = _wrap(f"{step.number}. {step.name}", bold, self.size, 1)
        draw.text((x, y), " ".join(title), INK, bold)
        for number, line in enumerate(self._caption(step), start=1):
            draw.text((x, y + number * self.line_height), line, INK, regular)

    def _caption(self, step: StepView) -> list[str]:
        return _wrap(step.text, self.font(0.95), self.size, _CAPTION_LINES)


def _draw_red_corner(draw: ImageDraw.ImageDraw, x: int, y: int, side: int) -> None:
    right, reach = x + side - 1, round(side * 0.36)
    draw.polygon([(right - reach, y), (right, y), (right, y + reach)], BAD)


def _fit_square(attempt: AttemptView, side: int) -> Image.Image:
    """The uncropped image in a square, padded with white."""
    return ImageOps.pad(attempt.image.image, (side, side), Image.Resampling.LANCZOS, PAPER)


def _wrap(text: str, font: ImageFont.FreeTypeFont, width: int, max_lines: int) -> list[str]:
    """Text as at most `max_lines` lines of about `width` pixels, the last one with an ellipsis."""
    fitting = int(width * len(text) / max(font.getlength(text), 1))  # characters of mean width
    return textwrap.wrap(text, max(fitting - 1, 1), max_lines=max_lines, placeholder="…")


@cache
def _font(name: str, size: int) -> ImageFont.FreeTypeFont:
    """A font that ships with matplotlib, so that sheets look the same everywhere."""
    import matplotlib

    path = Path(matplotlib.get_data_path(), "fonts", "ttf", f"{name}.ttf")
    return ImageFont.truetype(str(path), size)
