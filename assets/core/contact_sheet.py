"""Contact sheets: a row a story, its pictures in order, captions below, rejections in small."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.util import find_spec
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

from ..trajectories.trajectory_views import AttemptView, StepView, TrajectoryView
from .plotting import BAD, INK, PALE, PAPER

_FRAME, _FAINT = "#d5dae3", "#f3f5f9"


@dataclass(frozen=True)
class SheetLayout:
    """Measures of a sheet, in pixels. `picture` is a picture's side."""

    picture: int = 160
    columns: int = 6
    margin: int = 28
    gap: int = 14
    caption_lines: int = 3

    @property
    def small(self) -> int:
        return round(self.picture * 0.3)

    @cached_property
    def line(self) -> int:
        return round(self.picture * 0.105)

    @property
    def width(self) -> int:
        return 2 * self.margin + self.columns * self.picture + (self.columns - 1) * self.gap

    def font(self, size: float, weight: str = "") -> ImageFont.FreeTypeFont:
        """DejaVu Sans at `size` times a caption's height."""
        return _font(f"DejaVuSans{weight}", round(self.picture * 0.075 * size))


def contact_sheet(
    stories: Sequence[TrajectoryView], picture: int = 160, columns: int = 6, rejections: bool = True
) -> Image.Image:
    """A picture of stories for people to judge at a glance.

    Args:
        picture: side of a story's pictures in pixels.
        columns: pictures in a line; longer stories go on in the next one.
        rejections: show rejected attempts, small and with a red corner, below what replaced them.
    """
    widest = max((len(story.steps) for story in stories), default=1)
    layout = SheetLayout(picture, max(3, min(columns, widest)))
    rows = [_story_row(story, layout, rejections) for story in stories]
    if rejections and any(story.rejections for story in stories):
        rows.append(_legend(layout))
    return _stacked(rows, layout)


def _stacked(rows: Sequence[Image.Image], layout: SheetLayout) -> Image.Image:
    space = 2 * layout.gap
    height = 2 * layout.margin + sum(row.height + space for row in rows) - space
    sheet = Image.new("RGB", (layout.width, max(height, 2 * layout.margin)), PAPER)
    top = layout.margin
    for row in rows:
        sheet.paste(row, (0, top))
        top += row.height + space
    return sheet


def _story_row(story: TrajectoryView, layout: SheetLayout, rejections: bool) -> Image.Image:
    heading = _heading(story, layout)
    lines = [
        _line(story.steps[at : at + layout.columns], layout, rejections)
        for at in range(0, len(story.steps), layout.columns)
    ]
    row = Image.new("RGB", (layout.width, sum(i.height for i in [heading, *lines])), PAPER)
    top = 0
    for part in [heading, *lines]:
        row.paste(part, (0, top))
        top += part.height
    return row


def _heading(story: TrajectoryView, layout: SheetLayout) -> Image.Image:
    label, title = layout.font(0.85, "-Bold"), layout.font(1.2, "-Bold")
    lines = _wrapped(story.request, title, layout.width - 2 * layout.margin, 2)
    step = round(layout.line * 1.35)
    image = Image.new("RGB", (layout.width, step * (len(lines) + 1) + layout.gap // 2), PAPER)
    draw = ImageDraw.Draw(image)
    kind = f"{story.category}  ·  {story.subcategory}".upper()
    draw.text((layout.margin, 0), kind, PALE, label)
    for number, line in enumerate(lines, start=1):
        draw.text((layout.margin, number * step - layout.line // 4), line, INK, title)
    return image


def _line(steps: Sequence[StepView], layout: SheetLayout, rejections: bool) -> Image.Image:
    """Up to `columns` steps side by side."""
    strip = layout.small + layout.gap // 2 if rejections and any(s.rejected for s in steps) else 0
    longest = max(len(_told(step, layout)) for step in steps)
    height = layout.picture + strip + layout.gap + layout.line * (longest + 1)
    image = Image.new("RGB", (layout.width, height), PAPER)
    for column, step in enumerate(steps):
        left = layout.margin + column * (layout.picture + layout.gap)
        _step(image, step, left, layout)
        if strip:
            _rejected_strip(image, step, left, layout)
        _caption(image, step, left, layout.picture + strip + layout.gap // 2, layout)
    return image


def _step(image: Image.Image, step: StepView, left: int, layout: SheetLayout) -> None:
    """The chosen picture, or a card with the words of a step that draws nothing."""
    side, draw = layout.picture, ImageDraw.Draw(image)
    frame = (left, 0, left + side - 1, side - 1)
    if step.chosen:
        image.paste(_fitted(step.chosen, side), (left, 0))
        draw.rectangle(frame, None, _FRAME)
        return
    draw.rectangle(frame, _FAINT, _FRAME)
    words = layout.font(0.95)
    for number, line in enumerate(_wrapped(step.caption, words, side - 2 * layout.gap, 6)):
        draw.text((left + layout.gap, layout.gap + number * layout.line), line, INK, words)


def _rejected_strip(image: Image.Image, step: StepView, left: int, layout: SheetLayout) -> None:
    side, top = layout.small, layout.picture + layout.gap // 2
    draw = ImageDraw.Draw(image)
    room = layout.picture // (side + 4)
    for number, attempt in enumerate(step.rejected[:room]):
        at = left + number * (side + 4)
        image.paste(_fitted(attempt, side), (at, top))
        draw.rectangle((at, top, at + side - 1, top + side - 1), None, _FRAME)
        _red_corner(draw, at, top, side)
    if len(step.rejected) > room:
        note = f"+{len(step.rejected) - room}"
        draw.text((left + layout.picture, top + side), note, PALE, layout.font(0.8), anchor="rd")


def _red_corner(draw: ImageDraw.ImageDraw, left: int, top: int, side: int) -> None:
    right, reach = left + side - 1, round(side * 0.36)
    draw.polygon([(right - reach, top), (right, top), (right, top + reach)], BAD)


def _caption(image: Image.Image, step: StepView, left: int, top: int, layout: SheetLayout) -> None:
    draw = ImageDraw.Draw(image)
    name, words = layout.font(1, "-Bold"), layout.font(0.95)
    title = _wrapped(f"{step.number}. {step.name}", name, layout.picture, 1)
    draw.text((left, top), " ".join(title), INK, name)
    for number, line in enumerate(_told(step, layout), start=1):
        draw.text((left, top + number * layout.line), line, INK, words)


def _told(step: StepView, layout: SheetLayout) -> list[str]:
    """Lines of the caption below a picture; without a picture the card has them."""
    caption = step.caption if step.chosen else ""
    return _wrapped(caption, layout.font(0.95), layout.picture, layout.caption_lines)


def _legend(layout: SheetLayout) -> Image.Image:
    side = round(layout.line * 0.9)
    image = Image.new("RGB", (layout.width, layout.line + 2), PAPER)
    draw = ImageDraw.Draw(image)
    draw.rectangle((layout.margin, 0, layout.margin + side, side), _FAINT, _FRAME)
    _red_corner(draw, layout.margin, 0, side + 1)
    words = "drawn, rejected by the critic, and drawn again from a rewritten prompt"
    draw.text((layout.margin + side + 8, side / 2), words, PALE, layout.font(0.9), anchor="lm")
    return image


def _fitted(attempt: AttemptView, side: int) -> Image.Image:
    """The whole picture in a square, white where it is not square itself."""
    picture = attempt.picture.image.copy()
    if max(picture.size) < side:
        factor = side / max(picture.size)
        picture = picture.resize([round(length * factor) for length in picture.size])
    picture.thumbnail((side, side), Image.Resampling.LANCZOS)
    square = Image.new("RGB", (side, side), PAPER)
    square.paste(picture, ((side - picture.width) // 2, (side - picture.height) // 2))
    return square


def _wrapped(text: str, font: ImageFont.FreeTypeFont, width: int, most: int) -> list[str]:
    """Text as at most `most` lines of `width` pixels; an ellipsis stands for what is left out."""
    lines, line = [], ""
    for word in text.split():
        longer = f"{line} {word}".strip()
        if line and font.getlength(longer) > width:
            lines.append(line)
            longer = word
        line = longer
    lines = [line for line in [*lines, line] if line]
    if len(lines) > most:
        lines = [*lines[: most - 1], f"{lines[most - 1]}…"]
    return [_cut(line, font, width) for line in lines]


def _cut(line: str, font: ImageFont.FreeTypeFont, width: int) -> str:
    if font.getlength(line) <= width:
        return line
    words = line.removesuffix("…").rstrip()
    while words and font.getlength(f"{words}…") > width:
        words = words[:-1].rstrip()
    return f"{words}…"


@cache
def _font(name: str, size: int) -> ImageFont.FreeTypeFont:
    """A font that matplotlib brings along, so that sheets look the same everywhere."""
    spec = find_spec("matplotlib")
    assert spec and spec.origin, "matplotlib is a dependency of this package"
    path = Path(spec.origin).parent / "mpl-data" / "fonts" / "ttf" / f"{name}.ttf"
    return ImageFont.truetype(str(path), size)
