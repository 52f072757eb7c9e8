"""Pages link to files that exist, name commands as they are, and show what a script draws."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from typer.main import get_command

from dagster_project.cli.app import app
from tests.helpers.browser import CHROMIUM

ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
SCRIPT = ROOT / "docs" / "screenshots.py"
IMAGES = {path.name for path in (ROOT / "docs" / "images").iterdir()}
HOURS = {"ablation.png", "rounds.png"}  # drawn where those assets were materialized


def links(page):
    """Relative links of a page, without anchors; addresses of other sites are none."""
    return [link for link in re.findall(r"\]\(([^)#\s]+)", page.read_text()) if ":" not in link]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_relative_links_exist(page):
    missing = [link for link in links(page) if not (page.parent / link).exists()]
    assert not missing


def commands(page):
    """Words of every `interleave ...`, in blocks and in lines of text."""
    text = page.read_text().replace("\\\n", " ")
    found = re.findall(
        r'(?:^|[`(;|&]\s*|= )interleave((?: +(?:"[^"]*"|[^\s`;|&#)]+))+)', text, re.M
    )
    return [re.findall(r'"[^"]*"|[^\s"]+', words) for words in found]


def wrong_word(command, words):
    """The first one that is neither a command nor an option of it; None: all are."""
    rest = list(words)
    while (group := getattr(command, "commands", None)) and rest and not rest[0].startswith("-"):
        if (name := rest.pop(0)) not in group:
            return name
        command = group[name]
    options = {option for item in command.params for option in (*item.opts, *item.secondary_opts)}
    named = [word.strip("[](),.:").split("=")[0] for word in rest]
    wrong = [word for word in named if word.startswith("--") and word not in options | {"--help"}]
    return wrong[0] if wrong else None


def test_commands_and_options_exist():
    pages = [page for page in PAGES if page.name != "CHANGELOG.md"]
    named = [words for page in pages for words in commands(page)]
    assert len(named) > 200
    program = get_command(app)
    assert not [(words, wrong) for words in named if (wrong := wrong_word(program, words))]
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.M))
    made = {
        name for page in pages for name in re.findall(r"(?:`|^)make (\w[\w-]*)", page.read_text())
    }
    assert made and made <= targets


def test_every_picture_is_shown_and_made_by_the_script():
    shown = {Path(link).name for page in PAGES for link in links(page) if link.endswith(".png")}
    made = set(re.findall(r'folder / "(\w+\.png)"', SCRIPT.read_text()))
    assert shown == made == IMAGES
    assert sum((ROOT / "docs" / "images" / name).stat().st_size for name in made) < 2_000_000


def test_the_index_lists_every_page():
    index = ROOT / "docs" / "README.md"
    listed = {(index.parent / link).resolve() for link in links(index)}
    assert {page for page in (ROOT / "docs").rglob("*.md") if page != index} <= listed


@pytest.mark.browser
@pytest.mark.long
@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here: install Debian's `chromium`")
def test_the_script_takes_all_pictures(trained_folder, tmp_path):
    shutil.copytree(trained_folder, tmp_path, dirs_exist_ok=True)
    images = tmp_path / "images"
    done = subprocess.run(
        [sys.executable, str(SCRIPT), ".interleave", str(images)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "INTERLEAVE_PROFILE": "small.yaml"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
    assert {path.name for path in images.iterdir()} == IMAGES - HOURS
