"""`interleave generate` as a user meets it: the real command, and the file that it leaves."""

import io
import os
import signal
import socket
import subprocess
import zipfile

import pytest

from inference.backends.sketch.backend import SketchGenerator
from inference.sketch_world.settings import SketchSettings
from tests.dagster_project.conftest import tiny_foundry
from tests.helpers.command import INTERLEAVE, interleave
from warehouse import EncodedImage
from warehouse.sql import query

SNOWMAN = "Show how to build a snowman in 4 steps, with captions"


@pytest.fixture
def folder(tmp_path):
    """The working directory of a user."""
    folder = tmp_path / "work"
    folder.mkdir()
    return folder


@pytest.fixture
def environment(home):
    return {**os.environ, "INTERLEAVE_HOME": str(home.root), "COLUMNS": "100"}


@pytest.fixture
def generate(folder, home, capsys, monkeypatch):
    monkeypatch.chdir(folder)

    def run(*args):
        return interleave(capsys, "generate", *args, INTERLEAVE_HOME=str(home.root), COLUMNS="100")

    return run


@pytest.fixture
async def house(folder):
    """A file with a picture of a house."""
    settings = SketchSettings(picture_size=96)
    picture = await SketchGenerator(settings).generate("Draw a red house in the center.", [], 1)
    path = folder / "house.png"
    path.write_bytes(picture.data)
    return path


@pytest.fixture
def silent_server():
    """A socket that accepts a planner's question and never answers it."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(60)
        yield server


def rows(home):
    return query("select * from generations order by started_at", home)


def test_a_sequence_is_shown_step_by_step_and_written_where_it_says(generate, folder, home):
    done = generate(SNOWMAN)
    assert done.returncode == 0, done.stderr
    lines = done.stderr.splitlines()
    assert lines.pop(0).startswith("Simulated: the sketch world draws simple objects")
    assert lines[0] == "4 steps planned"
    assert [line.split(".")[0] for line in lines[1:5]] == ["1", "2", "3", "4"]
    page = folder / "story.html"
    assert str(page) in lines[5] and page.read_text().count('<img src="data:image/png') >= 4
    row = rows(home).iloc[0]
    assert (row.text, row.status, row.steps, row.channel) == (SNOWMAN, "complete", 4, "command")


def test_a_second_file_does_not_replace_the_first(generate, folder):
    generate("A red house")
    first = (folder / "story.html").read_bytes()
    generate("A yellow star")
    assert (folder / "story.html").read_bytes() == first
    assert "yellow star" in (folder / "story-2.html").read_text()


def test_markdown_and_zip_have_the_same_pictures_of_a_seed(generate, folder, home):
    for name in ("my story.md", "story.zip"):
        assert generate("A red house", "--seed", 3, "--out", name).returncode == 0
    image = folder / "my story-pictures" / "step-01.png"
    assert "](my%20story-pictures/step-01.png)" in (folder / "my story.md").read_text()
    with zipfile.ZipFile(io.BytesIO((folder / "story.zip").read_bytes())) as archive:
        assert archive.read("pictures/step-01.png") == image.read_bytes()
    first, second = rows(home).images
    assert list(first) == list(second)


def test_an_answer_in_text_is_printed(generate, house, home):
    done = generate("What is in this picture? <image> Answer in words.", "--image", house)
    assert done.returncode == 0, done.stderr
    assert "red house" in done.stdout and "Text-only answer" in done.stderr
    assert rows(home).iloc[0].input_images.tolist() == [EncodedImage(house.read_bytes()).sha256]


def test_a_sequence_goes_on_from_given_pictures(generate, house, home):
    done = generate("Continue: add a tree beside the house", "--image", house)
    assert done.returncode == 0, done.stderr
    sources = query("select source_image from attempts order by step_number", home).source_image
    assert sources.iloc[0] == EncodedImage(house.read_bytes()).sha256


def test_options_are_the_profiles_unless_set(generate, folder, home):
    profile = tiny_foundry(folder, loop={"t_max": 3, "seed": 5}).profile
    options = ["--seed", 11, "--candidates", 2, "--on-exhausted", "stop", "--no-draw-ahead"]
    assert generate("A red house", "--profile", profile, *options).returncode == 0
    row = rows(home).iloc[0]
    assert (row.t_max, row.seed, row.candidates, row.on_exhausted) == (3, 11, 2, "stop")


def test_a_mistake_is_one_line_and_leaves_no_file(generate, folder, house):
    (folder / "mine.txt").write_text("no picture")
    before = set(folder.iterdir())
    mistakes = {
        ("  ",): "the request is empty",
        ("<image> and <image>", "--image", "house.png"): "2 <image>, and 1 image is given",
        ("a cat", "--image", "nothing.png"): "nothing.png cannot be opened: No such file",
        ("a cat", "--image", "mine.txt"): "mine.txt is not a readable image",
        ("a cat", "--out", "story.pdf"): "end it in .html or .md or .zip",
        ("a cat", "--out", "nowhere/story.html"): "there is no folder",
        ("a cat", "--t-max", "0"): "t_max: Input should be greater",
        ("a cat", "--critic", "rl"): "no critic rl here",
        ("a cat", "--conditioning", "all"): "needs a generator that takes several images",
        ("a cat", "--profile", "skech"): "no profile 'skech'",
    }
    for args, complaint in mistakes.items():
        done = generate(*args)
        assert done.returncode == 1 and "Traceback" not in done.stderr, done.stderr
        line = done.stderr.strip().splitlines()[-1]
        assert complaint in line and line.startswith("error: ")
        assert set(folder.iterdir()) == before


def test_what_the_demo_world_cannot_draw_is_said(generate, folder):
    refused = generate("How to make a paper plane")
    assert refused.returncode == 1 and not list(folder.glob("story*"))
    assert (
        "We can't illustrate this request: the sketch world has no “paper plane”" in refused.stderr
    )
    assert "error" not in refused.stderr and "Traceback" not in refused.stderr
    drawn = generate("A castle with a dragon")
    assert drawn.returncode == 0 and "Not drawn: dragon" in drawn.stderr


@pytest.mark.parametrize(
    "number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.long)]
)
def test_ctrl_c_cancels(folder, environment, home, silent_server, number):
    endpoints = [{"url": f"http://127.0.0.1:{silent_server.getsockname()[1]}/v1"}]
    planner = {"endpoints": endpoints, "planner": {"model": "silent"}}
    roles = {"planner": "openai", "generator": "sketch", "critic": "sketch", "scorer": "sketch"}
    profile = tiny_foundry(folder, roles=roles, openai=planner).profile
    process = subprocess.Popen(
        [*INTERLEAVE, "generate", "A red house", "--profile", profile],
        cwd=folder,
        env=environment,
        stderr=subprocess.PIPE,
        text=True,
    )
    connection, _ = silent_server.accept()
    with connection:
        process.send_signal(number)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 130 and errors.splitlines()[-1] == "Cancelled."
    assert rows(home).status.tolist() == ["cancelled"]
    assert not (folder / "story.html").exists()
