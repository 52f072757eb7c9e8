"""Contact sheets: a row per trajectory with its images, captions and rejected attempts."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.util import find_spec
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

from inference.generation.trajectory_view import AttemptView, StepView, TrajectoryView

from ..core.plotting import BAD, INK, PALE, PAPER

_FRAME, _FAINT = "#d5dae3", "#f3f5f9"


@dataclass(frozen=True)
class SheetLayout:
    """Measures of a sheet, in pixels; images are squares of `image_size`."""

    image_size: int = 160
    columns: int = 6
    margin: int = 28
    gap: int = 14
    caption_lines: int = 3

    @property
    def thumbnail_size(self) -> int:
        """Side of a rejected attempt's image."""
        return round(self.image_size * 0.3)

    @cached_property
    def line_height(self) -> int:
        return round(self.image_size * 0.105)

    @property
    def width(self) -> int:
        return 2 * self.margin + self.columns * self.image_size + (self.columns - 1) * self.gap

    def font(self, size: float, weight: str = "") -> ImageFont.FreeTypeFont:
        """DejaVu Sans at `size` times a caption's height."""
        return _font(f"DejaVuSans{weight}", round(self.image_size * 0.075 * size))


def contact_sheet(
    trajectories: Sequence[TrajectoryView],
    image_size: int = 160,
    columns: int = 6,
    rejections: bool = True,
) -> Image.Image:
    """One image of several trajectories, for people to judge at a glance.

    Args:
        image_size: side of a step's image, in pixels.
        columns: images in a line; longer trajectories continue on the next line.
        rejections: show rejected attempts as thumbnails with a red corner below their step.
    """
    most_steps = max((len(trajectory.steps) for trajectory in trajectories), default=1)
    layout = SheetLayout(image_size, max(3, min(columns, most_steps)))
    rows = [_trajectory_row(trajectory, layout, rejections) for trajectory in trajectories]
    if rejections and any(trajectory.rejections for trajectory in trajectories):
        rows.append(_legend(layout))
    return _stack(rows, layout.width, layout.margin, 2 * layout.gap)


def _stack(parts: Sequence[Image.Image], width: int, margin: int = 0, gap: int = 0) -> Image.Image:
    """Images one below the other; `margin` above the first and below the last."""
    height = sum(part.height + gap for part in parts) - gap
    stack = Image.new("RGB", (width, 2 * margin + max(height, 0)), PAPER)
    top = margin
    for part in parts:
        stack.paste(part, (0, top))
        top += part.height + gap
    return stack


def _trajectory_row(
    trajectory: TrajectoryView, layout: SheetLayout, rejections: bool
) -> Image.Image:
    lines = [
        _line(trajectory.steps[start : start + layout.columns], layout, rejections)
        for start in range(0, len(trajectory.steps), layout.columns)
    ]
    return _stack([_heading(trajectory, layout), *lines], layout.width)


def _heading(trajectory: TrajectoryView, layout: SheetLayout) -> Image.Image:
    label, title = layout.font(0.85, "-Bold"), layout.font(1.2, "-Bold")
    lines = _wrap(trajectory.request, title, layout.width - 2 * layout.margin, 2)
    step = round(layout.line_height * 1.35)
    image = Image.new("RGB", (layout.width, step * (len(lines) + 1) + layout.gap // 2), PAPER)
    draw = ImageDraw.Draw(image)
    category = f"{trajectory.category}  ·  {trajectory.subcategory}".upper()
    draw.text((layout.margin, 0), category, PALE, label)
    for number, line in enumerate(lines, start=1):
        draw.text((layout.margin, number * step - layout.line_height // 4), line, INK, title)
    return image


def _line(steps: Sequence[StepView], layout: SheetLayout, rejections: bool) -> Image.Image:
    """Up to `columns` steps side by side."""
    strip = (
        layout.thumbnail_size + layout.gap // 2
        if rejections and any(s.rejected for s in steps)
        else 0
    )
    caption_lines = max(len(_caption_lines(step, layout)) for step in steps)
    height = layout.image_size + strip + layout.gap + layout.line_height * (caption_lines + 1)
    image = Image.new("RGB", (layout.width, height), PAPER)
    for column, step in enumerate(steps):
        x = layout.margin + column * (layout.image_size + layout.gap)
        _draw_step(image, step, x, layout)
        if strip:
            _draw_rejections(image, step, x, layout)
        _draw_caption(image, step, x, layout.image_size + strip + layout.gap // 2, layout)
    return image


def _draw_step(image: Image.Image, step: StepView, x: int, layout: SheetLayout) -> None:
    """The chosen image, or a card with the caption of a step without one."""
    side, draw = layout.image_size, ImageDraw.Draw(image)
    frame = (x, 0, x + side - 1, side - 1)
    if step.chosen:
        image.paste(_fit_square(step.chosen, side), (x, 0))
        draw.rectangle(frame, None, _FRAME)
        return
    draw.rectangle(frame, _FAINT, _FRAME)
    font = layout.font(0.95)
    for number, line in enumerate(_wrap(step.caption, font, side - 2 * layout.gap, 6)):
        draw.text((x + layout.gap, layout.gap + number * layout.line_height), line, INK, font)


def _draw_rejections(image: Image.Image, step: StepView, x: int, layout: SheetLayout) -> None:
    side, y = layout.thumbnail_size, layout.image_size + layout.gap // 2
    draw = ImageDraw.Draw(image)
    capacity = layout.image_size // (side + 4)
    for number, attempt in enumerate(step.rejected[:capacity]):
        corner = x + number * (side + 4)
        image.paste(_fit_square(attempt, side), (corner, y))
        draw.rectangle((corner, y, corner + side - 1, y + side - 1), None, _FRAME)
        _draw_red_corner(draw, corner, y, side)
    if len(step.rejected) > capacity:
        note = f"+{len(step.rejected) - capacity}"
        draw.text((x + layout.image_size, y + side), note, PALE, layout.font(0.8), anchor="rd")


def _draw_red_corner(draw: ImageDraw.ImageDraw, x: int, y: int, side: int) -> None:
    right, reach = x + side - 1, round(side * 0.36)
    draw.polygon([(right - reach, y), (right, y), (right, y + reach)], BAD)


def _draw_caption(image: Image.Image, step: StepView, x: int, y: int, layout: SheetLayout) -> None:
    draw = ImageDraw.Draw(image)
    bold, regular = layout.font(1, "-Bold"), layout.font(0.95)
    title = _wrap(f"{step.number}. {step.name}", bold, layout.image_size, 1)
    draw.text((x, y), " ".join(title), INK, bold)
    for number, line in enumerate(_caption_lines(step, layout), start=1):
        draw.text((x, y + number * layout.line_height), line, INK, regular)


def _caption_lines(step: StepView, layout: SheetLayout) -> list[str]:
    """The caption below an image; without an image the card has it."""
    caption = step.caption if step.chosen else ""
    return _wrap(caption, layout.font(0.95), layout.image_size, layout.caption_lines)


def _legend(layout: SheetLayout) -> Image.Image:
    side = round(layout.line_height * 0.9)
    image = Image.new("RGB", (layout.width, layout.line_height + 2), PAPER)
    draw = ImageDraw.Draw(image)
    draw.rectangle((layout.margin, 0, layout.margin + side, side), _FAINT, _FRAME)
    _draw_red_corner(draw, layout.margin, 0, side + 1)
    label = "drawn, rejected by the critic, and drawn again from a rewritten prompt"
    draw.text((layout.margin + side + 8, side / 2), label, PALE, layout.font(0.9), anchor="lm")
    return image


def _fit_square(attempt: AttemptView, side: int) -> Image.Image:
    """The uncropped image in a square, padded with white."""
    image = attempt.image.image.copy()
    if max(image.size) < side:
        factor = side / max(image.size)
        image = image.resize([round(length * factor) for length in image.size])
    image.thumbnail((side, side), Image.Resampling.LANCZOS)
    square = Image.new("RGB", (side, side), PAPER)
    square.paste(image, ((side - image.width) // 2, (side - image.height) // 2))
    return square


def _wrap(text: str, font: ImageFont.FreeTypeFont, width: int, max_lines: int) -> list[str]:
    """Text as at most `max_lines` lines of `width` pixels, the last one cut with an ellipsis."""
    lines, line = [], ""
    for word in text.split():
        longer = f"{line} {word}".strip()
        if line and font.getlength(longer) > width:
            lines.append(line)
            longer = word
        line = longer
    lines = [line for line in [*lines, line] if line]
    if len(lines) > max_lines:
        lines = [*lines[: max_lines - 1], f"{lines[max_lines - 1]}…"]
    return [_truncate(line, font, width) for line in lines]


def _truncate(line: str, font: ImageFont.FreeTypeFont, width: int) -> str:
    if font.getlength(line) <= width:
        return line
    text = line.removesuffix("…").rstrip()
    while text and font.getlength(f"{text}…") > width:
        text = text[:-1].rstrip()
    return f"{text}…"


@cache
def _font(name: str, size: int) -> ImageFont.FreeTypeFont:
    """A font that ships with matplotlib, so that sheets look the same everywhere."""
    spec = find_spec("matplotlib")
    assert spec and spec.origin, "matplotlib is a dependency of this package"
    path = Path(spec.origin).parent / "mpl-data" / "fonts" / "ttf" / f"{name}.ttf"
    return ImageFont.truetype(str(path), size)
