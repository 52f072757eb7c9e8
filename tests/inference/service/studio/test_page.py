"""The studio on the real service: create, watch, unfold, download, search, delete."""

import base64
import io
import re
import zipfile

from PIL import Image
from playwright.sync_api import FilePayload, Locator, Page, expect

from assets.core.profile import load_profile
from inference.backends.sketch.backend import SketchBackend
from inference.roles import Verdict
from inference.service.settings import RequestLimits
from tests.helpers.browser import open_tab
from tests.inference.scripted_world import tiny_image
from tests.inference.service.running_service import REDRAWN, held_roles, sketch_roles, wait_until
from tests.inference.service.studio.studio_page import (
    BROWSER,
    assert_readable,
    create,
    finished_story,
    is_wider_than_screen,
    open_studio,
    picture_texts,
    request_field,
)
from warehouse import Home

pytestmark = BROWSER


class AcceptingCritic:
    """Accepts every image."""

    backend, model = "scripted", "accepting"

    async def judge(self, *_):
        return Verdict(True, "", "")


PASTE_OR_DROP = """way => {
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
}"""
ANIMATIONS = "document.getAnimations().length"


def test_a_sequence_is_watched_unfolded_enlarged_and_downloaded(page, tmp_path):
    story = create(page, REDRAWN)
    _check_steps(page, story)
    step = story.locator(".step").nth(2)
    reasoning = step.get_by_text("The step failed.")
    expect(reasoning).to_be_hidden()
    step.get_by_text("1 rejected attempt").click()
    expect(reasoning).to_be_visible()
    for fact in ("Prompt", "Critic’s reasoning", "Rewritten prompt"):
        expect(step.locator(".rejected dt").get_by_text(fact, exact=True)).to_be_visible()
    rejected = step.get_by_role("img", name=re.compile("Attempt 1 at: Put everything together"))
    assert rejected.get_attribute("src") != step.locator(".frame img").get_attribute("src")
    step.get_by_text("Details", exact=True).click()
    expect(step.locator(".how dd").first).to_be_visible()
    step.locator(".rejected .zoom").click()
    dialog = page.get_by_role("dialog", name="Image")
    expect(dialog.get_by_text(re.compile(r"^Attempt 1 at: "))).to_be_visible()
    page.keyboard.press("Escape")
    step.get_by_text("1 rejected attempt").click()
    _enlarge_by_keyboard(page, story)
    _check_downloads(page, story, tmp_path)


def _check_steps(page: Page, story: Locator) -> None:
    expect(story.locator(".step")).to_have_count(4)
    words = story.locator(".words").all_text_contents()
    assert words[0] == "Roll a big ball of snow." and picture_texts(story) == words
    expect(story.get_by_text("Accepted", exact=True)).to_have_count(2)
    expect(story.get_by_text("Complete. 7 images drawn, 3 rejected.")).to_be_visible()
    expect(page.locator("#announcements")).to_have_text(re.compile("Complete. 7 images"))
    expect(story.get_by_role("navigation").get_by_role("link")).to_have_text(
        [re.compile(f"Step {number}: ") for number in range(1, 5)]
    )
    expect(page.get_by_role("button", name="Create", exact=True)).to_be_visible()


def _enlarge_by_keyboard(page: Page, story: Locator) -> None:
    opener = story.get_by_role("button", name="Roll a big ball of snow.")
    opener.press("Enter")
    dialog = page.get_by_role("dialog", name="Image")
    caption = dialog.get_by_role("status").first
    expect(caption).to_have_text("Roll a big ball of snow. (1 of 4)")
    page.keyboard.press("ArrowLeft")
    expect(caption).to_have_text(re.compile(r"\(4 of 4\)$"))
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    expect(caption).to_have_text(re.compile(r"\(2 of 4\)$"))
    large = dialog.get_by_role("img").bounding_box()
    assert large["width"] > 1.5 * story.locator(".frame img").nth(1).bounding_box()["width"]
    page.keyboard.press("Escape")
    expect(dialog).to_be_hidden()
    expect(opener).to_be_focused()


def _check_downloads(page: Page, story: Locator, folder) -> None:
    files = {}
    for name in ("HTML page", "Markdown", "ZIP with images"):
        with page.expect_download() as download:
            story.get_by_role("button", name=name).click()
        files[name] = folder / download.value.suggested_filename
        download.value.save_as(files[name])
    page.goto(files["HTML page"].as_uri())
    expect(page.get_by_role("heading", name=REDRAWN)).to_be_visible()
    expect(page.get_by_text("Roll a big ball of snow.").first).to_be_visible()
    image = page.get_by_role("img").first
    assert image.evaluate("image => image.decode().then(() => image.naturalWidth)") > 90
    assert files["Markdown"].read_text().startswith(f"# {REDRAWN}")
    names = zipfile.ZipFile(files["ZIP with images"]).namelist()
    assert "story.html" in names and len([name for name in names if name.endswith(".png")]) == 7


def test_examples_fill_the_form(page):
    for category in ("Embodied manipulation", "Image description"):
        example = page.get_by_role("button", name=category)
        text = example.locator(".text").text_content()
        example.click()
        expect(request_field(page)).to_have_value(text)
        page.keyboard.press("Control+Enter")
        expect(finished_story(page).get_by_role("heading", name=text)).to_be_visible()
        page.get_by_role("link", name="Create").click()
        expect(example).to_be_visible()
        request_field(page).fill("")


def test_earlier_stories_are_searched_opened_and_reused(page):
    create(page, "Draw the life cycle of an orange butterfly")
    words = create(page, REDRAWN).locator(".words").all_text_contents()
    page.get_by_role("link", name="History").click()
    expect(page.get_by_role("heading", name="History")).to_be_focused()
    stories = page.get_by_role("list", name="Responses")
    expect(stories.get_by_role("link", name="butterfly")).to_have_count(1)
    page.get_by_role("searchbox", name="Search").fill("SNOWMAN pictures")
    expect(stories.get_by_role("link", name="butterfly")).to_have_count(0)
    cover = stories.locator("img").first
    expect(cover).to_have_attribute("src", re.compile("^data:image/png"))
    stories.get_by_role("link", name=REDRAWN).first.click()
    stored = finished_story(page)
    assert stored.locator(".words").all_text_contents() == words == picture_texts(stored)
    expect(stored.locator(".rejected:visible")).to_have_count(2)
    page.get_by_role("button", name="Edit request").click()
    expect(request_field(page)).to_have_value(REDRAWN)
    page.go_back()
    page.get_by_role("button", name="Run again").click()
    again = page.locator("#stage article")
    expect(again.get_by_text("Complete. 7 images drawn, 3 rejected.")).to_be_visible()
    page.get_by_role("link", name="History").click()
    page.get_by_role("searchbox", name="Search").fill("no such words")
    expect(page.get_by_text("No matches")).to_be_visible()


def test_a_request_with_markup_is_escaped_and_deleted_after_confirmation(page):
    text = "A red house <img src=x onerror=alert(1)> beside a <b>tree</b>"
    expect(create(page, text).get_by_role("heading", name=text)).to_be_visible()
    page.get_by_role("link", name="History").click()
    link = page.get_by_role("list", name="Responses").get_by_role("link", name=text)
    expect(link).to_be_visible()
    expect(page.locator("img[src=x]")).to_have_count(0)
    link.click()
    finished_story(page)
    page.once("dialog", lambda dialog: dialog.dismiss())
    page.get_by_role("button", name="Delete").click()
    page.once("dialog", lambda dialog: dialog.accept())
    page.get_by_role("button", name="Delete").click()
    expect(page.get_by_role("heading", name="History")).to_be_focused()
    expect(page.locator("#found")).to_have_text(re.compile("response"))
    expect(link).to_have_count(0)


def test_two_settings_are_compared_side_by_side_at_an_address_of_their_own(page):
    page.get_by_text("Settings", exact=True).click()
    page.get_by_label("Compare two settings").check()
    for name, attempts in {"Setting A": "1", "Setting B": "5"}.items():
        setting = page.get_by_role("group", name=name)
        setting.get_by_label("Maximum attempts per step").fill(attempts)
        expect(setting.get_by_label("Maximum attempts per step")).to_have_accessible_description(
            re.compile("T_max")
        )
    request_field(page).fill(REDRAWN)
    page.get_by_role("button", name="Create", exact=True).click()
    first, second = (page.get_by_role("article").nth(number) for number in (0, 1))
    expect(first.get_by_text("4 images drawn, 1 rejected.")).to_be_visible()
    expect(second.get_by_text("7 images drawn, 3 rejected.")).to_be_visible()
    expect(first.get_by_text("Maximum attempts per step: 1")).to_be_visible()
    expect(first.get_by_text("Not accepted, but used")).to_be_visible()
    a, b = first.bounding_box(), second.bounding_box()
    assert a["x"] + a["width"] <= b["x"] and a["y"] == b["y"]
    expect(page).to_have_url(re.compile(r"#/generations/resp_\w+\+resp_\w+$"))
    page.reload()
    expect(first.get_by_text("Maximum attempts per step: 1")).to_be_visible()
    expect(second).to_have_attribute("aria-busy", "false")
    rows = page.get_by_role("region", name="Comparison").get_by_role("row")
    expect(rows.nth(2)).to_have_text(re.compile(r"^BComplete.*\d s$"))


def test_running_story_is_followed_and_cancelled(browser, tmp_path):
    home = Home(tmp_path)
    barrier, roles = held_roles(home)
    with open_studio(browser, home, roles) as page:
        request_field(page).fill(REDRAWN)
        page.get_by_role("button", name="Create", exact=True).click()
        steps = page.locator(".step")
        expect(steps.nth(1).get_by_text("Accepted")).to_be_visible()
        expect(steps.nth(2).get_by_text("Drawing …")).to_be_visible()
        expect(steps.nth(3).get_by_text("Waiting")).to_be_visible()
        expect(page.locator("#announcements")).to_have_text("Step 3 of 4: The snowman.")
        expect(page.get_by_role("progressbar", name="Finished steps")).to_have_js_property(
            "value", 2
        )
        assert page.evaluate(ANIMATIONS) > 0
        page.emulate_media(reduced_motion="reduce")
        assert page.evaluate(ANIMATIONS) == 0, "prefers-reduced-motion is ignored"
        _follow_in_another_tab(page)
        page.get_by_role("button", name="Stop").click()
        expect(finished_story(page).get_by_text("Cancelled.")).to_be_visible()
        expect(steps.nth(2).get_by_text("Not finished")).to_be_visible()
        expect(page.get_by_role("button", name="Create", exact=True)).to_be_focused()
        wait_until(lambda: barrier.cancelled and not barrier.waiting)
        page.get_by_role("link", name="History").click()
        expect(page.get_by_role("listitem").filter(has_text=REDRAWN)).to_contain_text("Cancelled")


def _follow_in_another_tab(page: Page) -> None:
    """Open the running story in a second tab."""
    tab = page.context.browser.new_page()
    tab.goto(page.url.partition("#")[0] + "#/generations")
    tab.get_by_role("link", name=REDRAWN).click()
    expect(tab.locator(".step").nth(2).get_by_text("Drawing …")).to_be_visible()
    tab.close()


def test_an_uploaded_image_is_described_and_edited(page, tmp_path):
    picture = tmp_path / "house.png"
    data = create(page, "A red house beside a tree").locator(".frame img").last.get_attribute("src")
    picture.write_bytes(base64.b64decode(data.partition(",")[2]))
    page.get_by_label("Add images").set_input_files([picture, picture])
    uploads = page.get_by_role("list", name="Input images")
    expect(uploads.get_by_role("img")).to_have_count(2)
    uploads.get_by_role("button", name="Remove image 2, house.png").click()
    expect(uploads.get_by_role("img")).to_have_count(1)
    described = create(page, "Describe the picture")
    expect(described.get_by_text(re.compile("The picture shows .* red house"))).to_be_visible()
    expect(described.get_by_role("img", name="Input image 1")).to_be_visible()
    expect(described.locator(".frame")).to_have_count(0)
    text = "Draw a blue car beside the house"
    edited = create(page, text)
    expect(edited.locator(".step-head").first).to_contain_text("Step 1")
    expect(page.locator("#announcements")).to_have_text(re.compile("^Complete"))
    page.reload()
    expect(finished_story(page).get_by_role("heading", level=2)).not_to_contain_text("<image>")
    page.get_by_role("button", name="Edit request").click()
    expect(request_field(page)).to_have_value(text)


def test_images_are_pasted_and_dropped_and_other_files_rejected(page, tmp_path):
    for number, way in enumerate(("paste", "drop"), 1):
        page.evaluate(PASTE_OR_DROP, way)
        expect(page.get_by_role("img", name=f"Image {number}, black.png")).to_be_visible()
    notes = tmp_path / "notes.txt"
    notes.write_text("no picture")
    page.get_by_label("Add images").set_input_files(notes)
    message = "notes.txt isn't a PNG, JPEG or WebP image."
    expect(page.get_by_role("alert")).to_contain_text(message)


def test_page_has_the_limits_of_the_service(browser, tmp_path):
    limits = RequestLimits(text=40, pictures=1, picture_bytes=2000, pixels=100 * 100)
    broken = tmp_path / "broken.png"
    broken.write_bytes(b"no image")
    image = FilePayload(name="a.png", mimeType="image/png", buffer=tiny_image("a").data)
    large = io.BytesIO()
    Image.new("RGB", (200, 200)).save(large, "PNG")
    with open_studio(browser, Home(tmp_path / "home"), limits=limits) as page:
        alert, files = page.get_by_role("alert"), page.get_by_label("Add images")
        files.set_input_files(broken)
        expect(alert).to_have_text("broken.png can't be read as an image.")
        files.set_input_files([image | {"name": "large.png", "buffer": large.getvalue()}])
        expect(alert).to_have_text("large.png has 40000 pixels. The maximum is 10000.")
        files.set_input_files([image | {"buffer": bytes(3000)}])
        expect(alert).to_have_text("a.png has 3 KiB. The maximum is 2 KiB.")
        files.set_input_files([image, image])
        request_field(page).fill("Describe these images")
        page.get_by_role("button", name="Create", exact=True).click()
        expect(alert).to_have_text("The request has 2 images. The maximum is 1.")
        page.get_by_role("button", name="Remove image 2").click()
        request_field(page).fill("A house " * 6)
        page.get_by_role("button", name="Create", exact=True).click()
        expect(alert).to_have_text("The text has 47 characters. The maximum is 40.")
        expect(page.get_by_role("article")).to_have_count(0)


def test_a_refused_request_has_a_reason_and_suggestions(page):
    story = create(page, "hello")
    expect(story).to_contain_text("We can't illustrate this request")
    expect(story).to_contain_text("draws simple objects")
    story.get_by_role("button", name="Show the phases of the moon").click()
    expect(finished_story(page).get_by_text(re.compile("^Complete"))).to_be_visible()
    expect(request_field(page)).to_have_value("Show the phases of the moon")
    page.get_by_role("link", name="History").click()
    entry = page.get_by_role("listitem").filter(has_text="hello")
    expect(entry).to_contain_text("We can't illustrate this request")
    expect(entry.locator(".cover")).to_have_count(0)


def test_settings_are_those_of_the_service_and_impossible_ones_have_a_reason(page):
    page.get_by_text("Settings", exact=True).click()
    settings = page.get_by_role("group", name="Settings of the request")
    attempts = settings.get_by_label("Maximum attempts per step")
    expect(attempts).to_have_value("5")
    expect(settings.get_by_label("Images for the generator")).to_be_hidden()
    expect(settings.get_by_label("Agents")).to_be_hidden()
    expect(page.get_by_role("button", name="Compare agents")).to_be_hidden()
    settings.get_by_label("Maximum steps").fill("2")
    expect(create(page, REDRAWN)).to_contain_text("4 steps, more than max_steps = 2")
    page.get_by_role("link", name="Create").click()
    settings.get_by_label("Maximum steps").fill("")
    attempts.fill("21")  # the service allows 20
    page.get_by_role("button", name="Create", exact=True).click()
    assert not attempts.evaluate("e => e.validity.valid")
    expect(page.get_by_role("article")).to_have_count(0)


def test_agents_are_compared_side_by_side(browser, tmp_path):
    home = Home(tmp_path)
    roles = sketch_roles(home)
    lenient = sketch_roles(home, critic=AcceptingCritic())
    by_critic = {"base": roles, "rl": lenient}
    with open_studio(browser, home, roles, 1280, 900, by_critic=by_critic) as page:
        request_field(page).fill(REDRAWN)
        page.get_by_role("button", name="Compare agents").click()
        base, rl = (page.get_by_role("article").nth(number) for number in (0, 1))
        expect(base.get_by_text("7 images drawn, 3 rejected.")).to_be_visible()
        expect(rl.get_by_text("4 images drawn, 0 rejected.")).to_be_visible()
        rows = page.get_by_role("region", name="Comparison").get_by_role("row")
        expect(rows.nth(1)).to_contain_text("BaseComplete474 (57 %)")
        expect(rows.nth(2)).to_contain_text("RLComplete444 (100 %)")
        assert_readable(page)
        page.set_viewport_size({"width": 360, "height": 740})
        assert not is_wider_than_screen(page)
        page.get_by_role("link", name="History").click()
        expect(page.locator(".story-list").get_by_text("RL", exact=True)).to_be_visible()
        page.get_by_role("link", name=REDRAWN).first.click()
        page.get_by_role("button", name="Run again").click()
        result = page.locator("#stage article")
        expect(result).to_have_count(1)  # the comparison is there until the form is shown again
        expect(result).to_have_attribute("aria-busy", "false")


def test_unknown_addresses_say_so(browser, studio):
    with open_tab(browser) as page:
        page.goto(f"{studio}/#/nowhere")
        expect(page.get_by_role("heading", name="Page not found")).to_be_visible()
        page.goto(f"{studio}/#/generations/resp_deleted")
        expect(page.get_by_text("This response doesn't exist, or it was deleted.")).to_be_visible()
        page.locator("main").get_by_role("link", name="Create something new").click()
        expect(request_field(page)).to_be_visible()


def test_tiny_picture_is_not_smoothed(browser, tmp_path):
    home = Home(tmp_path)
    small = load_profile("sketch").model_copy(update={"sketch": SketchBackend(picture_size=96)})
    with open_studio(browser, home, small.build(home)) as page:
        image = create(page, "A red house").locator(".frame img").first
        expect(image).to_have_css("image-rendering", "pixelated")
        box = image.bounding_box()
        assert (box["width"], box["height"]) == (192, 192)
