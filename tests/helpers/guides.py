"""The commands and snippets of `docs/guides/`, as scripts."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

GUIDES = sorted((Path(__file__).parents[2] / "docs" / "guides").glob("*.md"))
AGENTS = next(guide for guide in GUIDES if guide.stem == "agents")
_BLOCK = re.compile(r"^```(\w+)([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(guide: Path) -> list[tuple[str, str, str]]:
    """Language, what follows it, and text of every block."""
    return [(kind, more.strip(), text) for kind, more, text in _BLOCK.findall(guide.read_text())]


def scripts(guide: Path) -> Iterator[str]:
    """Each block that is run, in bash; Python snippets run in processes of their own."""
    for kind, more, text in blocks(guide):
        if more.startswith("not-run:"):
            continue
        yield text if kind == "bash" else f"python - <<'END_OF_SNIPPET'\n{text}END_OF_SNIPPET\n"


def run_script(script: str, folder: Path) -> None:
    """In a folder; the assertion that fails has the end of the output."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    hidden = ("INTERLEAVE", "DAGSTER")
    environment = {n: v for n, v in os.environ.items() if not n.startswith(hidden)} | {"PATH": path}
    done = subprocess.run(
        ["bash", "-c", f"set -euo pipefail\n{script}"],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
