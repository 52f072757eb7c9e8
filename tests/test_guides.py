"""The guides of `docs/guides/`: their commands and snippets run, in order, in an empty folder."""

import re
import shutil

import pytest

from tests.helpers.guides import AGENTS, GUIDES, blocks, run_script, scripts


@pytest.mark.parametrize("guide", GUIDES, ids=lambda guide: guide.stem)
def test_blocks_are_run_or_say_why_not(guide):
    for kind, more, text in blocks(guide):
        assert kind in ("bash", "python") and text.strip()
        assert not more or re.fullmatch(r"not-run: \w.+", more)


@pytest.mark.long
@pytest.mark.parametrize("guide", GUIDES, ids=lambda guide: guide.stem)
def test_commands_and_snippets_run(guide, tmp_path, request):
    run = list(scripts(guide))
    if re.search(r"^npm ", "".join(run), re.MULTILINE) and not shutil.which("npm"):
        pytest.skip("Node and npm are not installed")
    if guide == AGENTS:  # its first block trains, once for all tests that need trained agents
        shutil.copytree(request.getfixturevalue("trained_folder"), tmp_path, dirs_exist_ok=True)
        run = run[1:]
    run_script("\n".join(run), tmp_path)
