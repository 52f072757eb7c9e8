"""Trajectories for people: contact sheets, and one HTML file with images and captions."""

import io
from collections.abc import Sequence
from pathlib import Path

from inference.generation.html_export import render_html
from warehouse import Home
from warehouse.atomic import atomic_write

from ..core.plotting import small_png
from .contact_sheet import contact_sheet
from .trajectory_views import load_trajectories, pick_showcase

SHEET, PAGE = "contact_sheet.png", "story.html"


def contact_sheet_png(home: Home, trajectory_ids: Sequence[str]) -> bytes:
    """A contact sheet as a PNG small enough for asset metadata."""
    sheet = contact_sheet(load_trajectories(home, trajectory_ids), image_size=128)
    return small_png(sheet, colours=255)


def write_showcase(home: Home, folder: Path) -> Path:
    """Write a contact sheet and an HTML page of up to six trajectories; path of the page."""
    trajectories = load_trajectories(home, pick_showcase(home, 6))
    sheet = io.BytesIO()
    contact_sheet(trajectories, image_size=192).save(sheet, "PNG", optimize=True)
    atomic_write(folder / SHEET, sheet.getvalue())
    atomic_write(folder / PAGE, render_html(trajectories))
    return folder / PAGE
