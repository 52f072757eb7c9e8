"""Takes the README's pictures from a finished `make demo`: the lineage, and the contact sheet.

python docs/screenshots.py [HOME]
"""

import shutil
import sys
from pathlib import Path

from PIL import Image
from playwright.sync_api import Page

DOCS = Path(__file__).parent
sys.path[:0] = [str(DOCS.parent / "tests" / "ui"), str(DOCS.parent / "tests")]

from driving import chromium, dagster_ui, lineage_path, node_in_lineage  # noqa: E402, the tests know how

from interleave_foundry.assets.nodes import NODES  # noqa: E402
from interleave_foundry.assets.plotting import small_png  # noqa: E402
from interleave_foundry.dagster_project import definitions  # noqa: E402, F401, declares nodes

MARGIN = {"x": 50, "y": 76}  # pixels around the names of the outermost assets


def main() -> None:
    home = Path(sys.argv[1] if len(sys.argv) > 1 else ".interleave").resolve()
    pictures = DOCS / "images"
    pictures.mkdir(exist_ok=True)
    with dagster_ui(home, Path("sketch")) as url, chromium(1900, 1500, scale=1.25) as page:
        photograph_lineage(page, url, pictures / "lineage.png")
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


def shrink(path: Path) -> None:
    path.write_bytes(small_png(Image.open(path)))


if __name__ == "__main__":
    main()
