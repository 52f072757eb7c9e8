"""Generations as HTML, Markdown and ZIP."""

import base64
import io
import zipfile

import pytest
from PIL import Image

from inference.events import TrajectoryFailed
from inference.generation.files import generation_html, generation_markdown, generation_zip
from inference.generation.requests import GenerationOptions, GenerationRequest
from inference.generation.runner import GenerationRunner
from inference.generation.trajectory_view import StepView, TrajectoryView
from inference.roles import Plan, PlanStep, RequestScope, Verdict
from inference.settings import Limits
from tests.helpers.html_page import HtmlPage
from tests.inference.scripted_world import (
    ScriptedCritic,
    ScriptedPlanner,
    plan,
    reject,
    roles,
    tiny_image,
)
from warehouse import EncodedImage, Home

EVIL = "<script>alert('x')</script>"


async def generate(
    tmp_path, written: Plan, verdicts=None, request=None, **options
) -> TrajectoryView:
    """The generation of a plan whose images get these verdicts."""
    request = request or GenerationRequest(
        "How a cat gets its hat", options=GenerationOptions(**options)
    )
    planner = ScriptedPlanner(answer=lambda _: written)
    critic = ScriptedCritic(verdicts=verdicts or {})
    resolved = roles(planner=planner, critic=critic)
    state = TrajectoryView(request.text, request.images)
    async with GenerationRunner(Home(tmp_path), Limits(backoff_seconds=0, tries=1)) as runner:
        async for event in runner.run(request, resolved):
            state.note(event)
    return state


@pytest.fixture
async def cat(tmp_path) -> TrajectoryView:
    """Two images, one rejected attempt before the second, and text at the end."""
    verdicts = {"add a hat": [reject("add a RED hat")]}
    return await generate(tmp_path, plan("draw a cat", "add a hat", None), verdicts)


def test_a_page_shows_steps_and_rejected_attempts(cat):
    page = HtmlPage(generation_html(cat))
    for words in ("How a cat gets its hat", "words 1", "words 2", "words 3", "Complete"):
        assert words in page.text
    assert "1 rejected attempt" in page.text
    for words in ("add a hat", "not as asked", "add a RED hat", "because"):
        assert words in page.text
    assert [image["alt"] for image in page.images] == ["words 1", "words 2", "Attempt 1 at step 2"]


def test_a_page_is_one_file_with_its_images_inside(cat):
    page = HtmlPage(generation_html(cat))
    assert page.links and all(link.startswith("data:image/png;base64,") for link in page.links)
    assert base64.b64decode(page.links[0].split(",")[1]) == cat.images[0].data
    assert not {"script", "link", "iframe"} & set(page.tags)


async def test_texts_of_users_and_models_are_escaped(tmp_path):
    step = PlanStep(1, EVIL, EVIL, "draw a cat", f'" onerror="{EVIL}')
    verdicts = {"draw a cat": [Verdict(False, EVIL, EVIL)]}
    state = await generate(tmp_path, Plan((step,), EVIL), verdicts, GenerationRequest(EVIL))
    page = HtmlPage(generation_html(state))
    assert "script" not in page.tags and page.text.count(EVIL) >= 6
    assert not any("onerror" in image for image in page.images)
    assert "<script" not in generation_markdown(state).replace("\\<", "")


async def test_input_images_are_shown_as_png(tmp_path):
    buffer = io.BytesIO()
    Image.new("RGB", (8, 8), "red").save(buffer, "JPEG")
    request = GenerationRequest(
        "Go on from <image>", (tiny_image("first"), EncodedImage(buffer.getvalue()))
    )
    state = await generate(tmp_path, plan("draw a cat"), request=request)
    page = HtmlPage(generation_html(state))
    assert "Go on from [image 2]" in page.text
    assert [image["alt"] for image in page.images][:2] == ["Input image 1", "Input image 2"]
    assert all(link.startswith("data:image/png") for link in page.links)
    assert "![Input image 2](pictures/given-02.png)" in generation_markdown(state)


def test_every_format_says_that_the_images_are_simulated(cat):
    cat.scope = RequestScope("Simulated images.", None, ("dragon",), ("Image 1 is a *photo*.",))
    with zipfile.ZipFile(io.BytesIO(generation_zip(cat))) as archive:
        packed = archive.read("story.md").decode()
    for text in (HtmlPage(generation_html(cat)).text, generation_markdown(cat), packed):
        assert "Simulated images." in text and "Not drawn: dragon." in text
    assert r"> Image 1 is a \*photo\*." in packed


def test_the_zip_has_every_image_of_the_markdown(cat):
    with zipfile.ZipFile(io.BytesIO(generation_zip(cat))) as archive:
        names = set(archive.namelist())
        image = archive.read("pictures/step-02.png")
        markdown = archive.read("story.md").decode()
        assert archive.read("story.html").decode() == generation_html(cat)
    images = {name for name in names if name.startswith("pictures/")}
    assert names - images == {"story.html", "story.md"}
    assert images == {
        "pictures/step-01.png",
        "pictures/step-02.png",
        "pictures/step-02-attempt-01.png",
    }
    assert all(f"]({name})" in markdown for name in images)
    assert image == cat.images[1].data
    assert generation_zip(cat) == generation_zip(cat)


def test_markdown_has_steps_and_rejected_attempts(cat):
    markdown = generation_markdown(cat, "")
    assert markdown.startswith(
        "# How a cat gets its hat\n\n## 1\\. step 1\n\n![words 1](step-01.png)"
    )
    assert "> Rewritten: add a RED hat" in markdown and markdown.endswith("*Complete*\n")


@pytest.mark.parametrize(
    ("text", "escaped"),
    [
        ("a *b* [c](d) <e> & f", r"a \*b\* \[c\](d) \<e\> \& f"),
        ("- no list\n1. none\n# none", "\\- no list  \n1\\. none  \n\\# none"),
        ("   indented\n===", "indented  \n\\==="),
    ],
)
def test_text_is_escaped_in_markdown(text, escaped):
    answer = StepView(PlanStep(1, "Answer", None, None, text), finished=True)
    assert f"## 1\\. Answer\n\n{escaped}\n\n*" in generation_markdown(
        TrajectoryView("x", steps=[answer])
    )


async def test_a_stopped_generation_says_where(tmp_path):
    verdicts = {"draw a cat": [reject("draw a big cat")] * 2}
    state = await generate(
        tmp_path, plan("draw a cat", "b"), verdicts, t_max=2, on_exhausted="stop"
    )
    page = HtmlPage(generation_html(state))
    assert "No attempt was accepted; the sequence ends here." in page.text
    assert "2 rejected attempts" in page.text and len(page.images) == 2


async def test_accepted_candidates_are_not_called_rejected(tmp_path):
    state = await generate(tmp_path, plan("draw a cat"), candidates=2)
    page = HtmlPage(generation_html(state))
    assert "1 other attempt" in page.text and "accepted and not needed" in page.text
    assert "not used" in generation_markdown(state) and "rejected" not in page.text


def test_a_generation_without_steps_says_why():
    state = TrajectoryView("Nothing", ending=TrajectoryFailed("nothing to draw", refused=True))
    assert "nothing to draw" in HtmlPage(generation_html(state)).text
    assert "Not finished" in HtmlPage(generation_html(TrajectoryView("Nothing"))).text
