"""Runs a trainer's own parser, in the trainer's environment, on many configurations at once."""

import json
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def parse_all(
    python: Path, script: Path, cases: Mapping[str, Any], variables: Mapping[str, str]
) -> dict[str, dict[str, Any]]:
    """What `script` understood of each case; `{"error": ...}` for one that was rejected.

    The script gets the cases as JSON on its standard input and prints its results as the last line.
    """
    done = subprocess.run(
        [str(python), str(script)],
        input=json.dumps(cases),
        env=dict(variables),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return json.loads(done.stdout.splitlines()[-1])
