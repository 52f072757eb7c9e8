"""Profiles of tests."""

from pathlib import Path
from typing import Any

import yaml

from assets.core.profile import FOLDER, load_profile


def changed_profile(
    folder: Path, base: str | Path = FOLDER / "sketch.yaml", **sections: Any
) -> Path:
    """A copy of a profile with other sections, in a folder."""
    content = yaml.safe_load(Path(base).read_text()) | sections
    path = folder / "own.yaml"
    path.write_text(yaml.safe_dump(content))
    load_profile.cache_clear()
    return path
