"""Stories for people: contact sheets, and an illustrated storybook in one HTML file."""

import io
import secrets
from collections.abc import Sequence
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined

from warehouse import Home

from ..core.contact_sheet import contact_sheet
from ..core.plotting import small_png
from .trajectory_views import TrajectoryView, load_stories, pick_showcase

__all__ = [
    "contact_sheet",
    "load_stories",
    "pick_showcase",
    "sheet_png",
    "write_showcase",
]

SHEET, BOOK = "contact_sheet.png", "story.html"


def sheet_png(home: Home, trajectory_ids: Sequence[str], picture: int = 128) -> bytes:
    """A contact sheet as a PNG small enough for asset metadata."""
    return small_png(contact_sheet(load_stories(home, trajectory_ids), picture), colours=255)


def write_showcase(home: Home, folder: Path, stories: int = 6) -> Path:
    """Pick stories and write `contact_sheet.png` and `story.html` of them into a folder."""
    chosen = load_stories(home, pick_showcase(home, stories))
    sheet = io.BytesIO()
    contact_sheet(chosen, picture=192).save(sheet, "PNG", optimize=True)
    _write(folder / SHEET, sheet.getvalue())
    return _write(folder / BOOK, render_storybook(chosen).encode())


def render_storybook(stories: Sequence[TrajectoryView]) -> str:
    """The storybook's HTML; every text in it is escaped."""
    environment = Environment(
        loader=PackageLoader(__package__, "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["data_url"] = lambda picture: picture.as_png.data_url
    return environment.get_template("storybook.html").render(stories=stories)


def _write(path: Path, data: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    temporary.write_bytes(data)
    temporary.replace(path)
    return path
