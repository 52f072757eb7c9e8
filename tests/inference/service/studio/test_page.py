"""The studio as a person uses it, on the real service: tell, watch, unfold, download, search."""

import base64
import re
import zipfile

import pytest
from playwright.sync_api import Page, expect

from assets.core.profile import load_profile
from inference.sketch_world.settings import SketchSettings
from tests.inference.service.running_service import CountedGenerator, Gate, running, sketched, until
from tests.inference.service.studio.studio_page import (
    BROWSER,
    SNOWMAN,
    over,
    pictures_seen,
    request_field,
    tell,
    visitor,
)
from warehouse import Home

pytestmark = BROWSER

ANIMATIONS = "document.getAnimations().length"


def test_a_request_is_told_step_by_step_and_said_in_words(page):
    story = tell(page, SNOWMAN)
    steps = story.locator(".step")
    expect(steps).to_have_count(4)
    words = story.locator(".words").all_text_contents()
    assert words[0] == "Roll a big ball of snow." and pictures_seen(story) == words
    expect(story.get_by_text("Accepted", exact=True)).to_have_count(2)
    expect(story.get_by_text("The story is complete. 7 pictures drawn, 3 refused.")).to_be_visible()
    expect(page.locator("#news")).to_have_text(re.compile("The story is complete"))
    expect(story.get_by_role("navigation").get_by_role("link")).to_have_text(
        [re.compile(f"Step {number}: ") for number in range(1, 5)]
    )
    expect(page.get_by_role("button", name="Tell the story", exact=True)).to_be_visible()


@pytest.mark.parametrize("category", ["Embodied manipulation", "Image description"])
def test_an_example_is_a_click_away(page, category):
    example = page.get_by_role("button", name=category)
    text = example.locator(".text").text_content()
    example.click()
    expect(request_field(page)).to_have_value(text)
    page.keyboard.press("Control+Enter")
    expect(over(page).get_by_role("heading", name=text)).to_be_visible()
    page.get_by_role("link", name="New story").click()
    expect(example).to_be_visible()


def test_refused_attempts_unfold_with_the_critics_reasoning(page):
    step = tell(page, SNOWMAN).locator(".step").nth(2)
    reasoning = step.get_by_text("The step failed.")
    expect(reasoning).to_be_hidden()
    step.get_by_text("1 refused attempt").click()
    expect(reasoning).to_be_visible()
    for fact in ("Prompt", "The critic’s reasoning", "Rewritten prompt"):
        expect(step.locator(".refused dt").get_by_text(fact, exact=True)).to_be_visible()
    refused = step.get_by_role("img", name=re.compile("Attempt 1 at: Put everything together"))
    chosen = step.locator(".frame img")
    assert refused.get_attribute("src") != chosen.get_attribute("src")
    step.get_by_text("How this picture was made").click()
    expect(step.locator(".how dd").first).to_be_visible()


def test_a_story_is_downloaded_and_read(page, tmp_path):
    story = tell(page, SNOWMAN)
    files = {}
    for name in ("HTML page", "Markdown", "ZIP with pictures"):
        with page.expect_download() as download:
            story.get_by_role("button", name=name).click()
        files[name] = tmp_path / download.value.suggested_filename
        download.value.save_as(files[name])
    page.goto(files["HTML page"].as_uri())
    expect(page.get_by_role("heading", name=SNOWMAN)).to_be_visible()
    expect(page.get_by_text("Roll a big ball of snow.").first).to_be_visible()
    image = page.get_by_role("img").first
    assert image.evaluate("image => image.decode().then(() => image.naturalWidth)") > 90
    assert files["Markdown"].read_text().startswith(f"# {SNOWMAN}")
    names = zipfile.ZipFile(files["ZIP with pictures"]).namelist()
    assert "story.html" in names and len([name for name in names if name.endswith(".png")]) == 7


def test_earlier_stories_are_searched_opened_and_told_again(page):
    tell(page, "Draw the life cycle of an orange butterfly")
    words = tell(page, SNOWMAN).locator(".words").all_text_contents()
    page.get_by_role("link", name="Earlier stories").click()
    expect(page.get_by_role("heading", name="Earlier stories")).to_be_focused()
    shelf = page.get_by_role("list", name="Stories")
    expect(shelf.get_by_role("link", name="butterfly")).to_have_count(1)
    page.get_by_label("Search their requests").fill("SNOWMAN pictures")
    expect(shelf.get_by_role("link", name="butterfly")).to_have_count(0)
    cover = shelf.locator("img").first
    expect(cover).to_have_attribute("src", re.compile("^data:image/png"))
    shelf.get_by_role("link", name=SNOWMAN).first.click()
    kept = over(page)
    assert kept.locator(".words").all_text_contents() == words == pictures_seen(kept)
    expect(kept.locator(".refused:visible")).to_have_count(2)
    page.get_by_role("button", name="Tell it again").click()
    expect(request_field(page)).to_have_value(SNOWMAN)
    page.get_by_role("link", name="Earlier stories").click()
    page.get_by_label("Search their requests").fill("no such words")
    expect(page.get_by_text("No story has these words.")).to_be_visible()


def test_a_story_is_deleted_once_that_is_confirmed(page):
    text = "Draw a red house beside a tree, just for now"
    tell(page, text)
    page.get_by_role("link", name="Earlier stories").click()
    shelf = page.get_by_role("list", name="Stories")
    shelf.get_by_role("link", name=text).click()
    over(page)
    page.once("dialog", lambda dialog: dialog.dismiss())
    page.get_by_role("button", name="Delete").click()
    page.once("dialog", lambda dialog: dialog.accept())
    page.get_by_role("button", name="Delete").click()
    expect(page.get_by_role("heading", name="Earlier stories")).to_be_focused()
    expect(page.locator("#found")).to_have_text(re.compile("stor(y|ies)"))
    expect(shelf.get_by_role("link", name=text)).to_have_count(0)


def test_two_settings_are_compared_side_by_side(page):
    page.get_by_text("Settings", exact=True).click()
    page.get_by_label("Compare two settings").check()
    for name, attempts in {"Setting A": "1", "Setting B": "5"}.items():
        setting = page.get_by_role("group", name=name)
        setting.get_by_label("Attempts per step").fill(attempts)
        expect(setting.get_by_label("Attempts per step")).to_have_accessible_description(
            re.compile("T_max")
        )
    request_field(page).fill(SNOWMAN)
    page.get_by_role("button", name="Tell the story", exact=True).click()
    left, right = (page.get_by_role("article").nth(number) for number in (0, 1))
    expect(left.get_by_text("4 pictures drawn, 1 refused.")).to_be_visible()
    expect(right.get_by_text("7 pictures drawn, 3 refused.")).to_be_visible()
    expect(left.get_by_text("attempts per step: 1")).to_be_visible()
    expect(left.get_by_text("Not accepted, but used")).to_be_visible()
    a, b = left.bounding_box(), right.bounding_box()
    assert a["x"] + a["width"] <= b["x"] and a["y"] == b["y"]


def test_a_story_is_watched_while_it_is_told_and_stopped(tmp_path):
    home, gate = Home(tmp_path), Gate()
    held = CountedGenerator(sketched(home).generator, gate, free=2)
    with (
        running(home, sketched(home, generator=held)) as service,
        visitor(service.url) as page,
    ):
        request_field(page).fill(SNOWMAN)
        page.get_by_role("button", name="Tell the story", exact=True).click()
        steps = page.locator(".step")
        expect(steps.nth(1).get_by_text("Accepted")).to_be_visible()
        expect(steps.nth(2).get_by_text("Drawing …")).to_be_visible()
        expect(steps.nth(3).get_by_text("Waiting")).to_be_visible()
        expect(page.locator("#news")).to_have_text("Step 3 of 4: The snowman.")
        expect(page.get_by_role("progressbar", name="Steps that are done")).to_have_js_property(
            "value", 2
        )
        assert page.evaluate(ANIMATIONS) > 0
        page.emulate_media(reduced_motion="reduce")
        assert page.evaluate(ANIMATIONS) == 0, "not everybody wants things to move"
        _look_at_it_from_elsewhere(page)
        page.get_by_role("button", name="Stop").click()
        expect(over(page).get_by_text("The story was stopped.")).to_be_visible()
        expect(steps.nth(2).get_by_text("Not told")).to_be_visible()
        expect(page.get_by_role("button", name="Tell the story", exact=True)).to_be_focused()
        until(lambda: gate.cancelled and not gate.waiting)
        page.get_by_role("link", name="Earlier stories").click()
        expect(page.get_by_role("listitem").filter(has_text=SNOWMAN)).to_contain_text("cancelled")


def _look_at_it_from_elsewhere(page: Page) -> None:
    """Another tab opens the story while it is told."""
    tab = page.context.browser.new_page()
    tab.goto(page.url.partition("#")[0] + "#/stories")
    tab.get_by_role("link", name=SNOWMAN).click()
    expect(tab.locator(".step").nth(2).get_by_text("Drawing …")).to_be_visible()
    tab.close()


def test_given_pictures_are_described(page, tmp_path):
    story = tell(page, "A red house beside a tree")
    picture = tmp_path / "house.png"
    last = story.locator(".frame img").last
    data = last.get_attribute("src").partition(",")[2]
    picture.write_bytes(base64.b64decode(data))
    page.get_by_label("Add pictures").set_input_files([picture, picture])
    given = page.get_by_role("list", name="Pictures given with the request")
    expect(given.get_by_role("img")).to_have_count(2)
    given.get_by_role("button", name="Remove picture 2, house.png").click()
    expect(given.get_by_role("img")).to_have_count(1)
    described = tell(page, "Describe the picture")
    expect(described.get_by_text(re.compile("The picture shows .* red house"))).to_be_visible()
    expect(described.get_by_role("img", name="Given picture 1")).to_be_visible()
    expect(described.locator(".frame")).to_have_count(0)


@pytest.mark.parametrize("way", ["paste", "drop"])
def test_pictures_are_pasted_and_dropped(page, way):
    page.evaluate(
        """way => {
          const transfer = new DataTransfer();
          const canvas = new OffscreenCanvas(96, 96);
          canvas.getContext("2d").fillRect(0, 0, 96, 96);
          return canvas.convertToBlob().then((blob) => {
            transfer.items.add(new File([blob], "black.png", { type: "image/png" }));
            const more = { bubbles: true, cancelable: true };
            const event = way === "paste"
              ? new ClipboardEvent("paste", { clipboardData: transfer, ...more })
              : new DragEvent("drop", { dataTransfer: transfer, ...more });
            document.getElementById("request").dispatchEvent(event);
          });
        }""",
        way,
    )
    expect(page.get_by_role("img", name="Picture 1, black.png")).to_be_visible()


def test_what_is_no_picture_is_refused_in_words(page, tmp_path):
    notes = tmp_path / "notes.txt"
    notes.write_text("no picture")
    page.get_by_label("Add pictures").set_input_files(notes)
    expect(page.get_by_role("alert")).to_contain_text("notes.txt is no picture")


def test_a_request_that_cannot_be_told_says_why(page):
    story = tell(page, "hello")
    expect(story).to_contain_text("This request cannot be told.")
    expect(story).to_contain_text("name a story")


def test_a_setting_that_cannot_be_kept_says_why(page):
    page.get_by_text("Settings", exact=True).click()
    settings = page.get_by_role("group", name="Settings of the story")
    settings.get_by_label("Steps at most").fill("2")
    expect(tell(page, SNOWMAN)).to_contain_text("4 steps, more than max_steps = 2")
    page.get_by_role("link", name="New story").click()
    settings.get_by_label("Steps at most").fill("")
    settings.get_by_label("What the generator sees").select_option(label="all pictures so far")
    expect(tell(page, SNOWMAN)).to_contain_text("needs a generator that looks at several pictures")


def test_a_tiny_picture_stays_sharp(tmp_path):
    home = Home(tmp_path)
    small = load_profile("sketch").model_copy(update={"sketch": SketchSettings(picture_size=96)})
    with running(home, small.build(home)) as service, visitor(service.url) as page:
        image = tell(page, "A red house").locator(".frame img").first
        expect(image).to_have_css("image-rendering", "pixelated")
        box = image.bounding_box()
        assert (box["width"], box["height"]) == (192, 192)


def test_markup_of_a_request_is_shown_as_it_is(page):
    text = "A red house <img src=x onerror=alert(1)> beside a <b>tree</b>"
    story = tell(page, text)
    expect(story.get_by_role("heading", name=text)).to_be_visible()
    page.get_by_role("link", name="Earlier stories").click()
    expect(page.get_by_role("link", name=text)).to_be_visible()
    expect(page.locator("img[src=x]")).to_have_count(0)
