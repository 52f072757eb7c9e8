"""Checks of the imports: their keys, and that their images are stored."""

from schemas.imports import IMPORTS

from ..core.checks import blocking_checks
from ..core.foundry import FoundryResource
from ..core.integrity import Violations
from .assets import IMPORT_SET


def _missing_images(foundry: FoundryResource, _partition: str | None) -> Violations:
    images = foundry.home.images
    rows = foundry.home.lake.read(IMPORTS, columns=["row_id", "images"]).to_pylist()
    return [
        {"row_id": row["row_id"], "image": sha256}
        for row in rows
        for sha256 in row["images"]
        if not images.exists(sha256)
    ]


imports_checks = blocking_checks(
    IMPORT_SET, images_stored=("Every image of a row is in the store", _missing_images)
)
