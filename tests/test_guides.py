"""The guides of `docs/guides/`: their commands and snippets run, in order, in an empty folder."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
GUIDES = sorted((ROOT / "docs" / "guides").glob("*.md"))
_BLOCK = re.compile(r"^```(\w+)([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(guide):
    """Language, what follows it, and text of every block."""
    return [(kind, more.strip(), text) for kind, more, text in _BLOCK.findall(guide.read_text())]


def script_of(guide):
    """One bash script; Python snippets run in processes of their own."""
    lines = ["set -euo pipefail"]
    for kind, more, text in blocks(guide):
        if more.startswith("not-run:"):
            continue
        lines.append(
            text if kind == "bash" else f"python - <<'END_OF_SNIPPET'\n{text}END_OF_SNIPPET"
        )
    return "\n".join(lines)


@pytest.mark.parametrize("guide", GUIDES, ids=lambda guide: guide.stem)
def test_blocks_are_run_or_say_why_not(guide):
    for kind, more, text in blocks(guide):
        assert kind in ("bash", "python") and text.strip()
        assert not more or re.fullmatch(r"not-run: \w.+", more)


@pytest.mark.long
@pytest.mark.parametrize("guide", GUIDES, ids=lambda guide: guide.stem)
def test_commands_and_snippets_run(guide, tmp_path):
    if re.search(r"^npm ", script_of(guide), re.MULTILINE) and not shutil.which("npm"):
        pytest.skip("Node and npm are not installed")
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    hidden = ("INTERLEAVE", "DAGSTER")
    environment = {n: v for n, v in os.environ.items() if not n.startswith(hidden)} | {"PATH": path}
    command = ["bash", "-c", script_of(guide)]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
