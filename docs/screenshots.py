"""Takes the pictures of README and guides, from a home that a run has filled and a new one.

python docs/screenshots.py [HOME] [FOLDER]     # default: .interleave docs/images
"""

import shutil
import sys
import tempfile
from datetime import timedelta
from pathlib import Path
from random import Random

from PIL import Image
from playwright.sync_api import Locator, Page

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from assets.core.foundry import FoundryResource  # noqa: E402
from assets.core.node import LINE, MAIN_LINE, NODES  # noqa: E402
from assets.core.plotting import small_png  # noqa: E402
from assets.evaluation.items import pack_name, promotion_benchmark  # noqa: E402
from assets.evaluation.metrics import test_summaries  # noqa: E402
from assets.evaluation.runner import beside_paper_plot  # noqa: E402
from assets.rounds.results import rounds_plot  # noqa: E402
from bench.scale.inputs import load_costs  # noqa: E402
from bench.scale.prediction import save_plot  # noqa: E402
from dagster_project import definitions  # noqa: E402, F401, declares nodes
from inference.backends.providers.budget import SPENDING_FILE  # noqa: E402
from inference.backends.providers.settings import BudgetSettings  # noqa: E402
from schemas.rounds import ROUNDS  # noqa: E402
from schemas.training import EVALUATIONS  # noqa: E402
from schemas.trajectories import MODEL_CALLS, ModelCallRow  # noqa: E402
from tests.helpers.browser import (  # noqa: E402, the tests know how
    chromium,
    dagster_ui,
    interleave_serve,
    lineage_path,
    node_in_lineage,
)
from tests.helpers.ledger import START, model_call  # noqa: E402
from tests.helpers.spending import spend  # noqa: E402
from tests.inference.service.running_service import running_service  # noqa: E402
from warehouse import Home  # noqa: E402

ROCKET = "Show in 5 pictures how a red rocket flies to a planet"  # its first attempt is rejected
MOST_SKIPPED = 20  # attempts to review, of which one has an attempt before
# Dagster's controls at the right, which float above the graph.
HIDE_CONTROLS = """() => document.querySelectorAll('body *').forEach(element => {
  const box = element.getBoundingClientRect()
  const floats = box.left > innerWidth - 80 && box.top > innerHeight / 2
  if (floats && !element.closest('svg')) element.style.visibility = 'hidden'
})"""
MARGIN = {"x": 50, "y": 76}  # pixels around the names of the outermost assets
WIDTH = 1280


def main() -> None:
    home = Path(sys.argv[1] if len(sys.argv) > 1 else ".interleave").resolve()
    folder = Path(sys.argv[2]) if len(sys.argv) > 2 else ROOT / "docs" / "images"
    folder.mkdir(parents=True, exist_ok=True)
    with dagster_ui(home, Path("sketch")) as url, chromium(1900, 2500, scale=1.25) as page:
        photograph_lineage(page, url, folder / "lineage.png")
        photograph_asset(page, url, folder / "asset.png")
    with interleave_serve(home) as url, chromium(WIDTH, 1300, scale=1.25) as page:
        photograph_review(page, url, folder / "review.png")
    with (
        tempfile.TemporaryDirectory() as new,
        interleave_serve(Path(new) / "home") as url,
        chromium(WIDTH, 1800, scale=1.25) as page,
    ):
        photograph_studio(page, url, folder / "studio.png")
        photograph_comparison(page, url, folder / "comparison.png")
    photograph_costs(folder / "costs.png")
    shutil.copyfile(home / "stories" / "contact_sheet.png", folder / "stories.png")
    draw_ablation(home, folder / "ablation.png")
    draw_rounds(home, folder / "rounds.png")
    save_plot(folder / "scale.png", load_costs())


def photograph_lineage(page: Page, url: str, path: Path) -> None:
    """The main line, every group unfolded, without what is around it."""
    page.goto(url + lineage_path(MAIN_LINE, f'tag:"{LINE}"="main"'))
    main = [name for name, node in NODES.items() if node.group in MAIN_LINE]
    names = [node_in_lineage(page, name) for name in main]
    for name in names:
        name.wait_for()
    page.wait_for_timeout(4000)  # until the states have their colours
    page.evaluate(HIDE_CONTROLS)
    boxes = [box for box in (name.bounding_box() for name in names) if box]
    left, top = (min(box[side] for box in boxes) - MARGIN[side] for side in ("x", "y"))
    right = max(box["x"] + box["width"] for box in boxes) + MARGIN["x"]
    bottom = max(box["y"] + box["height"] for box in boxes) + MARGIN["y"]
    clip = {"x": left, "y": top, "width": right - left, "height": bottom - top}
    page.screenshot(path=path, clip=clip)
    shrink(path)


def photograph_asset(page: Page, url: str, path: Path) -> None:
    """A shard of trajectories: metadata of its materialization, with the contact sheet."""
    page.set_viewport_size({"width": 1400, "height": 1000})
    page.goto(f"{url}/assets/trajectories?view=partitions")
    page.get_by_text("sketchbook-0000").first.click()
    page.get_by_role("row").filter(has_text="stories").get_by_text("Show Markdown").click()
    dialog = page.get_by_role("dialog")
    dialog.locator("img").first.wait_for()
    page.wait_for_timeout(2000)  # until it has faded in
    page.screenshot(path=path)
    shrink(path)


def photograph_review(page: Page, url: str, path: Path) -> None:
    """The second attempt of a step, beside the first and the picture before."""
    page.goto(f"{url}/#/review")
    page.get_by_label("Your name").fill("Ann")
    page.get_by_label("Your name").press("Tab")
    page.get_by_role("link", name="sketchbook-0000").click()
    item = page.get_by_role("article", name="Attempt")
    item.locator("img").first.wait_for()
    second_picture = page.get_by_alt_text("Picture of the attempt before")
    for _ in range(MOST_SKIPPED):
        page.wait_for_timeout(300)
        if second_picture.is_visible():
            break
        page.get_by_role("button", name="Skip").click()
    page.wait_for_timeout(1000)  # until its pictures are there
    screenshot_down_to(page, page.get_by_role("group", name="Your answer"), path)


def photograph_studio(page: Page, url: str, path: Path) -> None:
    """A new sequence, with a rejected attempt unfolded."""
    page.goto(url)
    page.get_by_label("Describe what you want to see").fill(ROCKET)
    page.get_by_role("button", name="Create", exact=True).click()
    page.get_by_text("Complete.").first.wait_for()
    page.locator(".rejected > summary").first.click()
    screenshot_down_to(page, page.locator(".step").nth(1), path)


def photograph_comparison(page: Page, url: str, path: Path) -> None:
    """The same request with one attempt a step, and with five."""
    page.goto(url)
    page.get_by_text("Settings", exact=True).click()
    page.get_by_label("Compare two settings").check()
    for name, attempts in {"Setting A": "1", "Setting B": "5"}.items():
        setting = page.get_by_role("group", name=name)
        setting.get_by_label("Maximum attempts per step").fill(attempts)
    page.get_by_label("Describe what you want to see").fill(ROCKET)
    page.get_by_role("button", name="Create", exact=True).click()
    for number in (0, 1):
        page.get_by_role("article").nth(number).get_by_text("images drawn").wait_for()
    page.wait_for_timeout(1000)
    second = page.get_by_role("article").nth(1).locator(".step").nth(1)
    screenshot_down_to(page, second, path)


def photograph_costs(path: Path) -> None:
    """The page of costs, of a made-up ledger: the sketch world has no prices."""
    with tempfile.TemporaryDirectory() as folder:
        home = Home(folder)
        for shard in range(8):
            home.lake.write(MODEL_CALLS, sample_calls(shard), f"trajectories-{shard}")
        spend(home.local / SPENDING_FILE, 61.5, budget=100.0)
        with (
            running_service(home, budget=BudgetSettings(usd=100)) as service,
            chromium(WIDTH, 1400, scale=1.25) as page,
        ):
            page.goto(f"{service.url}/#/costs")
            page.get_by_role("region", name="By asset").wait_for()
            screenshot_down_to(page, page.get_by_role("region", name="By asset"), path)


def sample_calls(shard: int) -> list[ModelCallRow]:
    """A day's calls of three roles."""
    random = Random(shard)
    roles = (("planner", "plans", 0.03), ("generator", "trajectories", 0.04))
    roles = (*roles, ("critic", "trajectories", 0.012), ("scorer", "scores", 0.01))
    return [
        model_call(
            number,
            asset=asset,
            shard=f"interleave-{shard:04}",
            role=role,
            backend="gemini",
            model=f"{role}-model",
            cost_usd=usd * random.uniform(0.6, 1.6),
            input_tokens=random.randint(900, 4000),
            output_tokens=random.randint(300, 1500),
            seconds=random.uniform(4, 30),
            retries=int(random.random() < 0.04),
            error="HTTP 500" if random.random() < 0.01 else None,
            started_at=START + timedelta(days=shard),
        )
        for role, asset, usd in roles
        for number in range(40 + random.randint(0, 60))
    ]


def draw_ablation(home: Path, path: Path) -> None:
    """The plot of the asset `ablation`; none where it was not materialized (it takes hours)."""
    foundry = FoundryResource(profile="sketch", root=str(home))
    rows = foundry.rows(EVALUATIONS)
    if any(row.variant == "unfiltered" for row in rows):
        summary, *_ = test_summaries(rows, foundry.settings.evaluation).values()
        path.write_bytes(beside_paper_plot(summary))


def draw_rounds(home: Path, path: Path) -> None:
    """The plot of the asset `rounds`; none where none is finished (three take 90 minutes)."""
    foundry = FoundryResource(profile="sketch-rounds", root=str(home))
    if rows := foundry.rows(ROUNDS):
        dev = promotion_benchmark(pack_name(foundry.settings))
        path.write_bytes(rounds_plot(rows, dev))


def screenshot_down_to(page: Page, last: Locator, path: Path) -> None:
    """The page from its top to the end of an element."""
    box = last.bounding_box()
    assert box
    height = box["y"] + box["height"] + 14
    page.screenshot(path=path, clip={"x": 0, "y": 0, "width": WIDTH, "height": height})
    shrink(path)


def shrink(path: Path) -> None:
    path.write_bytes(small_png(Image.open(path)))


if __name__ == "__main__":
    main()
