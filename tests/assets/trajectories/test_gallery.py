"""Contact sheets and storybooks: what a person opens after a run."""

import base64
import io
import re

import numpy as np
import pytest
from PIL import Image, ImageColor

from assets.core.plotting import BAD
from assets.trajectories import gallery
from schemas import BadImageError, FoundryError
from tests.assets.trajectories.trajectory_lake import StoryLake, growing_flower
from tests.helpers.html_page import Page

REQUEST = "Show how a <i>flower</i> grows & blooms"


@pytest.fixture
def lake(home) -> StoryLake:
    return StoryLake(home)


def red_pixels(image: Image.Image) -> int:
    return int((np.asarray(image).astype(int) == ImageColor.getrgb(BAD)).all(axis=2).sum())


def page_of(lake: StoryLake, *ids: str) -> Page:
    return Page(gallery.render_storybook(gallery.load_stories(lake.home, ids)))


def test_a_storybook_shows_request_pictures_captions_and_rejections(lake):
    told = lake.tell("a", REQUEST, growing_flower(), rejected={2: 1, 4: 2}, caption="It grows.")
    lake.write()
    page = page_of(lake, told)
    assert REQUEST in page.text and page.text.count("It grows.") == 4
    assert "The seed is missing from the pot." in page.text
    assert "Draw scene 4 exactly as told." in page.text
    assert "1 rejected attempt\n" in page.text and "2 rejected attempts" in page.text
    assert len(page.images) == 4 + 3 and all(image["alt"] for image in page.images)


def test_a_storybook_is_one_file_with_its_pictures_inside(lake, tmp_path):
    lake.tell("a", REQUEST, growing_flower())
    path = gallery.write_showcase(lake.write(), tmp_path / "book")
    page = Page(path.read_text("utf-8"))
    assert page.links and all(link.startswith("data:image/png;base64,") for link in page.links)
    first = base64.b64decode(page.links[0].split(",", 1)[1])
    assert Image.open(io.BytesIO(first)).size == (96, 96)
    assert path.name == "story.html"
    assert {p.name for p in path.parent.iterdir()} == {"story.html", "contact_sheet.png"}


def test_text_of_users_and_models_is_escaped(lake):
    evil = "<script>alert('x')</script>"
    told = lake.tell(
        "a", evil, growing_flower(), rejected={1: 1}, caption=f'"{evil}', reasoning=evil
    )
    lake.write()
    page = page_of(lake, told)
    assert "script" not in page.tags
    assert page.text.count(evil) == 2 + 4 + 1  # title and request, captions, reasoning
    assert any(evil in (image["alt"] or "") for image in page.images)


def test_a_step_that_draws_nothing_is_told_in_words(lake):
    told = lake.tell("a", REQUEST, growing_flower()[:2], text_step="Water makes it grow.")
    lake.write()
    page = page_of(lake, told)
    assert "Water makes it grow." in page.text
    assert len(page.images) == 2 and page.tags.count("li") == 3


def test_no_stories_is_a_page_that_says_so():
    assert "No story is finished yet." in gallery.render_storybook([])


def test_a_contact_sheet_has_a_row_a_story_and_a_corner_a_rejection(lake):
    plain = lake.tell("a", REQUEST, growing_flower())
    rejected = lake.tell("b", REQUEST, growing_flower(), rejected={2: 1})
    lake.write()
    stories = gallery.load_stories(lake.home, [plain, rejected])
    one, two = gallery.contact_sheet(stories[:1]), gallery.contact_sheet(stories)
    assert two.width == one.width and two.height > 1.8 * one.height
    assert red_pixels(one) == 0 and red_pixels(two) > 50
    assert red_pixels(gallery.contact_sheet(stories, rejections=False)) == 0


def test_long_stories_go_on_in_the_next_line(lake):
    long = lake.tell("a", REQUEST, growing_flower() * 3)
    lake.write()
    stories = gallery.load_stories(lake.home, [long])
    narrow, wide = gallery.contact_sheet(stories, columns=4), gallery.contact_sheet(stories)
    assert narrow.width < wide.width and narrow.height > wide.height


def test_pictures_are_where_they_belong_on_the_sheet(lake):
    told = lake.tell("a", REQUEST, growing_flower())
    lake.write()
    story = gallery.load_stories(lake.home, [told])[0]
    sheet = np.asarray(gallery.contact_sheet([story], picture=96)).astype(int)
    first = np.asarray(story.steps[0].attempts[0].picture.image).astype(int)
    inner = first[2:-2, 2:-2]
    found = [
        top
        for top in range(sheet.shape[0] - 96)
        if np.abs(sheet[top + 2 : top + 94, 30 : 30 + 92] - inner).max() == 0
    ]
    assert len(found) == 1


def test_sheets_for_metadata_are_small(lake):
    ids = [lake.tell(str(n), REQUEST, growing_flower(), rejected={1: 1}) for n in range(4)]
    assert len(gallery.sheet_png(lake.write(), ids)) < 120_000


def test_the_showcase_prefers_rejected_then_accepted_and_mixes_categories(lake):
    lake.tell("plain", REQUEST, growing_flower())
    good = lake.tell("good", REQUEST, growing_flower(), rejected={2: 1})
    lake.tell("poor", REQUEST, growing_flower(), rejected={2: 1}, overall=6.0)
    other = lake.tell("other", REQUEST, growing_flower(), category="animals")
    lake.tell("bad", REQUEST, growing_flower(), category="toys", status="quarantined")
    lake.write()
    assert gallery.pick_showcase(lake.home, 2) == [other, good]
    assert len(gallery.pick_showcase(lake.home, 10)) == 4


def test_a_showcase_needs_no_scores(lake):
    told = lake.tell("a", REQUEST, growing_flower())
    lake.scores.clear()
    lake.write()
    assert gallery.pick_showcase(lake.home, 3) == [told]
    assert "score" not in re.sub(r"Scores run.*", "", page_of(lake, told).text)


def test_the_showcase_is_written_even_of_nothing(lake, tmp_path):
    folder = tmp_path / "stories"
    gallery.write_showcase(lake.write(), folder)
    assert sorted(p.name for p in folder.iterdir()) == ["contact_sheet.png", "story.html"]


def test_missing_stories_and_pictures_are_named(lake):
    told = lake.tell("a", REQUEST, growing_flower())
    lake.write()
    with pytest.raises(FoundryError, match="no trajectory 'nobody'"):
        gallery.load_stories(lake.home, ["nobody"])
    image = lake.attempts[0].image
    lake.home.images.storage.delete(lake.home.images.relative(image))
    with pytest.raises(BadImageError, match=image[:12]):
        gallery.load_stories(lake.home, [told])
