"""Contact sheets and HTML pages of trajectories."""

import base64
import io
import re

import numpy as np
import pytest
from PIL import Image, ImageColor

from assets.core.plotting import BAD, small_png
from assets.trajectories.contact_sheet import contact_sheet, write_showcase
from assets.trajectories.trajectory_views import load_trajectories, newest_shards, pick_showcase
from inference.generation.files import render_html
from schemas import BadImageError, FoundryError
from schemas.trajectories import ATTEMPTS, SCORES, TRAJECTORIES
from tests.assets.curation.curated_world import TEXT_ONLY, World
from tests.helpers.html_page import HtmlPage

REQUEST = "Show how a <i>flower</i> grows & blooms"


@pytest.fixture
def lake(home) -> World:
    return World(home, image_size=96)


def growing_flower(*rejected: int, overall: float = 9.0):
    """Four steps, the n-th with `rejected[n - 1]` rejected attempts."""
    counts = [*rejected, 0, 0, 0, 0][:4]
    return [[*[(2.0, False)] * count, (overall, True)] for count in counts]


def red_pixels(image: Image.Image) -> int:
    return int((np.asarray(image).astype(int) == ImageColor.getrgb(BAD)).all(axis=2).sum())


def render_page(lake: World, *ids: str) -> HtmlPage:
    return HtmlPage(render_html(load_trajectories(lake.home, ids)))


def test_page_shows_request_images_captions_and_rejections(lake):
    steps = [*growing_flower(0, 1, 0, 2), TEXT_ONLY]
    trajectory_id = lake.add("a", *steps, text=REQUEST, caption="It <i>grows</i>.")
    lake.write()
    page = render_page(lake, trajectory_id)
    assert REQUEST in page.text and page.text.count("It <i>grows</i>.") == 4
    assert "words 5" in page.text, "the step without an image"
    assert "looks wrong" in page.text
    assert "try 4.2" in page.text
    assert "1 rejected attempt\n" in page.text and "2 rejected attempts" in page.text
    assert len(page.images) == 4 + 3 and all(image["alt"] for image in page.images)


def test_page_is_one_file_with_embedded_images(lake, tmp_path):
    lake.add("a", *growing_flower())
    path = write_showcase(lake.write(), tmp_path / "showcase")
    page = HtmlPage(path.read_text("utf-8"))
    assert page.links and all(link.startswith("data:image/png;base64,") for link in page.links)
    first = base64.b64decode(page.links[0].split(",", 1)[1])
    assert Image.open(io.BytesIO(first)).size == (96, 96)
    assert path.name == "story.html"
    assert {p.name for p in path.parent.iterdir()} == {"story.html", "contact_sheet.png"}


def test_contact_sheet_has_a_row_per_trajectory_and_a_red_corner_per_rejection(lake):
    plain = lake.add("a", *growing_flower())
    rejected = lake.add("b", *growing_flower(0, 1))
    lake.write()
    trajectories = load_trajectories(lake.home, [plain, rejected])
    one, two = contact_sheet(trajectories[:1]), contact_sheet(trajectories)
    assert two.width == one.width and two.height > 1.8 * one.height
    assert red_pixels(one) == 0 and red_pixels(two) > 50


def test_long_trajectories_continue_on_the_next_line(lake):
    long = lake.add("a", *growing_flower() * 3)
    lake.write()
    trajectories = load_trajectories(lake.home, [long])
    narrow, wide = contact_sheet(trajectories, columns=4), contact_sheet(trajectories)
    assert narrow.width < wide.width and narrow.height > wide.height


def test_sheet_shows_an_image_once(lake):
    trajectory_id = lake.add("a", *growing_flower())
    lake.write()
    trajectory = load_trajectories(lake.home, [trajectory_id])[0]
    sheet = np.asarray(contact_sheet([trajectory], image_size=96)).astype(int)
    inner = np.asarray(trajectory.steps[0].attempts[0].image.image).astype(int)[1:-1, 1:-1]
    column = sheet[:, 29 : 29 + 94]
    tops = range(1, len(column) - 94)
    assert sum(np.array_equal(column[top : top + 94], inner) for top in tops) == 1


def test_sheets_for_metadata_are_small(lake):
    ids = [lake.add(str(n), *growing_flower(1)) for n in range(4)]
    sheet = contact_sheet(load_trajectories(lake.write(), ids), image_size=128)
    assert len(small_png(sheet, colours=255)) < 120_000


def test_showcase_prefers_retried_trajectories_and_mixes_categories(lake):
    lake.add("plain", *growing_flower())
    retried = lake.add("retried", *growing_flower(0, 1))
    lake.add("poor", *growing_flower(0, 1, overall=6.0))
    other = lake.add("other", *growing_flower(), category="animals")
    lake.add("bad", *growing_flower(), category="toys", status="quarantined")
    lake.write()
    assert pick_showcase(lake.home, 2, newest_shards(lake.home)) == [other, retried]
    assert len(pick_showcase(lake.home, 10, newest_shards(lake.home))) == 4


def test_showcase_needs_no_scores(lake):
    trajectory_id = lake.add("a", *growing_flower())
    lake.rows[SCORES.name].clear()
    lake.write()
    assert pick_showcase(lake.home, 3, newest_shards(lake.home)) == [trajectory_id]
    assert "score" not in re.sub(r"Scores run.*", "", render_page(lake, trajectory_id).text)


def test_showcase_of_an_empty_lake_is_written(lake, tmp_path):
    lake.home.lake.write(TRAJECTORIES, [], "toy-0000")
    page = write_showcase(lake.home, tmp_path)
    assert "No sequences are finished yet." in page.read_text("utf-8")


def test_missing_trajectories_and_images_are_named(lake):
    trajectory_id = lake.add("a", *growing_flower())
    lake.write()
    with pytest.raises(FoundryError, match="no trajectory 'missing'"):
        load_trajectories(lake.home, ["missing"])
    image = lake.rows[ATTEMPTS.name][0].image
    lake.home.images.storage.delete(lake.home.images.relative_path(image))
    with pytest.raises(BadImageError, match=image[:12]):
        load_trajectories(lake.home, [trajectory_id])
