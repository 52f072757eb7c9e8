"""The asset `imports`: reads the files that the profile names, and says which imports are used."""

import dagster as dg

from schemas import TABLES
from schemas.curation import IMPORTS

from ..core.foundry import FoundryResource
from ..core.metadata import table_metadata
from ..core.progress import progress_of
from ..curation.assets import IMPORT_SET
from ..curation.sources import TrainingSources
from .importer import import_rows
from .source import open_source

_SHOWN = 20


@dg.asset(**IMPORT_SET.asset_args())
def imports(context: dg.AssetExecutionContext, foundry: FoundryResource) -> dg.MaterializeResult:
    settings, home = foundry.settings.curation, foundry.home
    if settings.exports.mix is None:
        note = {"imports": dg.MetadataValue.text("the profile has no `curation.exports.mix`")}
        return IMPORT_SET.describe(context, foundry, {IMPORTS.name: 0}, note)
    rejected = {}
    for name, each in foundry.settings.imports.items():
        source = open_source(home, each.file, each.images)
        result = import_rows(home, each.kind, source, name, each.licence, progress_of(context))
        rows = [{"row": number, "reason": why} for number, why in result.rejected.items()]
        rejected[f"rejected/{name}"] = table_metadata(rows[:_SHOWN])
    sets = [TABLES[name] for name in type(settings.exports.mix).model_fields]
    used = [*TrainingSources(home, settings).import_origins(sets)]
    counts = {IMPORTS.name: home.lake.rows(IMPORTS)}
    metadata = {"used": table_metadata(used), **rejected}
    return IMPORT_SET.describe(context, foundry, counts, metadata)
