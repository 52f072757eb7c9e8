"""Checks of the reviews: their keys, and whether every shard has enough of them."""

import dagster as dg

from ..core.checks import blocking_checks
from ..core.foundry import FoundryResource
from ..core.metadata import table_metadata
from .assets import REVIEW_SET, shard_shares, shares_table

reviews_checks = blocking_checks(REVIEW_SET)


@dg.asset_check(
    name="enough_reviewed",
    asset=REVIEW_SET.name,
    description="Every shard has verdicts of people on the share `curation.reviews.share` of its "
    "attempts; the others are held back from the training sets",
)
def enough_reviewed(foundry: FoundryResource) -> dg.AssetCheckResult:
    settings = foundry.settings.curation.reviews
    share = settings.share if settings else 0.0
    waiting = [each for each in shard_shares(foundry.home) if each.is_held_back(share)]
    metadata: dict[str, dg.MetadataValue] = {"share": dg.MetadataValue.float(share)}
    if waiting:
        names = ", ".join(each.shard for each in waiting)
        metadata["held_back"] = table_metadata(shares_table(waiting, share))
        metadata["remedy"] = dg.MetadataValue.text(
            f"{names}: open the page Review of the studio (`interleave serve`), give verdicts on "
            f"{share:.0%} of the attempts, then materialize `reviews`; or lower "
            "`curation.reviews.share`"
        )
    return dg.AssetCheckResult(
        passed=not waiting, severity=dg.AssetCheckSeverity.WARN, metadata=metadata
    )
