"""The asset `imports`: training rows of other people that the profile mixes with ours, checked."""

import dagster as dg

from schemas import TABLES
from schemas.curation import IMPORTS

from ..core.checks import Violations, blocking_checks
from ..core.foundry import FoundryResource
from ..core.metadata import table_metadata
from ..core.node import Node
from ..curation.sources import TrainingSources


def _content(foundry: FoundryResource) -> list[str | None]:
    """Hashes of the imports, where the profile uses any."""
    if not IMPORT_SET.in_profile(foundry.settings):
        return []
    lake = foundry.home.lake
    return list(lake.content_hashes(IMPORTS).values())


IMPORT_SET = Node(
    name="imports",
    group="data_sets",
    description="Training rows of other people, which `interleave import` stores with origin and "
    "licence; used where a profile has `curation.exports.mix`.",
    tables=(IMPORTS,),
    sections=("curation.exports.mix",),
    inputs=lambda foundry, _instance: _content(foundry),
    output_hashes=_content,
    may_be_empty=True,
)


@dg.asset(**IMPORT_SET.asset_args())
def imports(context: dg.AssetExecutionContext, foundry: FoundryResource) -> dg.MaterializeResult:
    settings, home = foundry.settings.curation, foundry.home
    if settings.exports.mix is None:
        note = {"imports": dg.MetadataValue.text("the profile has no `curation.exports.mix`")}
        return IMPORT_SET.describe(context, foundry, {IMPORTS.name: 0}, note)
    sets = [TABLES[name] for name in type(settings.exports.mix).model_fields]
    used = [*TrainingSources(home, settings).import_origins(sets)]
    counts = {IMPORTS.name: home.lake.rows(IMPORTS)}
    return IMPORT_SET.describe(context, foundry, counts, {"used": table_metadata(used)})


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
