"""Pages link to files that exist, and show the pictures that a script takes."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.browser import CHROMIUM

ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
SCRIPT = ROOT / "docs" / "screenshots.py"
IMAGES = {path.name for path in (ROOT / "docs" / "images").iterdir()}
HOURS = {"ablation.png", "rounds.png"}  # drawn where those assets were materialized
DATA = (
    "taxonomy,vocabulary_expansion,vocabulary,templates,prompts,plans,trajectories,scores,"
    "reviews,steps,critic_sft,critic_rl,planner_sft,sequences,exports"
)


def links(page):
    """Relative links of a page, without anchors; addresses of other sites are none."""
    return [link for link in re.findall(r"\]\(([^)#\s]+)", page.read_text()) if ":" not in link]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_relative_links_exist(page):
    missing = [link for link in links(page) if not (page.parent / link).exists()]
    assert not missing


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
@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here: install Debian's `chromium`")
def test_the_script_takes_all_pictures(tmp_path):
    home, images = tmp_path / "home", tmp_path / "images"
    run = ["-m", "dagster_project.cli.app", "run", "--home", str(home), "--select", DATA]
    for command in (run, [str(SCRIPT), str(home), str(images)]):
        done = subprocess.run(
            [sys.executable, *command],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
    assert {path.name for path in images.iterdir()} == IMAGES - HOURS
