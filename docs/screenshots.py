"""Takes the README's pictures: lineage and contact sheet from a finished `make demo`, the studio.

python docs/screenshots.py [HOME]
"""

import shutil
import sys
import tempfile
from pathlib import Path

from PIL import Image
from playwright.sync_api import Page

DOCS = Path(__file__).parent
sys.path.insert(0, str(DOCS.parent))

from assets.core.node import NODES  # noqa: E402
from assets.core.plotting import small_png  # noqa: E402
from dagster_project import definitions  # noqa: E402, F401, declares nodes
from tests.helpers.browser import (  # noqa: E402, the tests know how
    chromium,
    dagster_ui,
    interleave_serve,
    lineage_path,
    node_in_lineage,
)

ROCKET = "Show in 5 pictures how a red rocket flies to a planet"  # its first attempt is refused
MARGIN = {"x": 50, "y": 76}  # pixels around the names of the outermost assets


def main() -> None:
    home = Path(sys.argv[1] if len(sys.argv) > 1 else ".interleave").resolve()
    pictures = DOCS / "images"
    pictures.mkdir(exist_ok=True)
    with dagster_ui(home, Path("sketch")) as url, chromium(1900, 1500, scale=1.25) as page:
        photograph_lineage(page, url, pictures / "lineage.png")
    photograph_studio(pictures / "studio.png")
    shutil.copyfile(home / "stories" / "contact_sheet.png", pictures / "stories.png")


def photograph_lineage(page: Page, url: str, path: Path) -> None:
    """The whole graph, every group unfolded, without what is around it."""
    page.goto(url + lineage_path(sorted({node.group for node in NODES.values()})))
    names = [node_in_lineage(page, name) for name in NODES]
    for name in names:
        name.wait_for()
    page.wait_for_timeout(4000)  # until the states have their colours
    boxes = [box for box in (name.bounding_box() for name in names) if box]
    left, top = (min(box[side] for box in boxes) - MARGIN[side] for side in ("x", "y"))
    right = max(box["x"] + box["width"] for box in boxes) + MARGIN["x"]
    bottom = max(box["y"] + box["height"] for box in boxes) + MARGIN["y"]
    clip = {"x": left, "y": top, "width": right - left, "height": bottom - top}
    page.screenshot(path=path, clip=clip)
    shrink(path)


def photograph_studio(path: Path) -> None:
    """A new story, with a rejected attempt unfolded."""
    with (
        tempfile.TemporaryDirectory() as folder,
        interleave_serve(Path(folder) / "home") as url,
        chromium(1280, 1600, scale=1.25) as page,
    ):
        page.goto(url)
        page.get_by_label("Describe what you want to see").fill(ROCKET)
        page.get_by_role("button", name="Create", exact=True).click()
        page.get_by_text("Complete.").first.wait_for()
        page.locator(".rejected > summary").first.click()
        second = page.locator(".step").nth(1).bounding_box()
        assert second
        height = second["y"] + second["height"] + 14
        page.screenshot(path=path, clip={"x": 0, "y": 0, "width": 1280, "height": height})
    shrink(path)


def shrink(path: Path) -> None:
    path.write_bytes(small_png(Image.open(path)))


if __name__ == "__main__":
    main()
