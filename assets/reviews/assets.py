"""The asset `reviews`: what people said of attempts, and how far they agree with the models."""

import dagster as dg

from inference.review_log import restore_reviews
from schemas.reviews import REVIEWS
from warehouse import Home

from ..core.foundry import FoundryResource
from ..core.metadata import table_metadata
from ..core.node import Node
from ..curation.duckdb_session import duckdb_session
from .agreement import agreement_metadata, shard_labels
from .opinions import add_opinions, review_shares


def _stored(foundry: FoundryResource) -> list[str | None]:
    """Hashes of the reviews, where the profile follows them."""
    if not REVIEW_SET.in_profile(foundry.settings):
        return []
    lake = foundry.home.lake
    return [lake.content_hash(REVIEWS, shard) for shard in lake.partitions(REVIEWS)]


REVIEW_SET = Node(
    name="reviews",
    group="curation",
    description="What people said of attempts in the studio, and how far critic, scorer and people "
    "agree. Followed where a profile has `curation.reviews`.",
    tables=(REVIEWS,),
    deps=("trajectories", "scores"),
    sections=("curation.reviews",),
    automatic=True,
    output_hashes=_stored,
    may_be_empty=True,
)


@dg.asset(**REVIEW_SET.asset_args())
def reviews(context: dg.AssetExecutionContext, foundry: FoundryResource) -> dg.MaterializeResult:
    settings = foundry.settings.curation
    if settings.reviews is None:
        note = {"reviews": dg.MetadataValue.text("the profile has no `curation.reviews`")}
        return REVIEW_SET.describe(context, foundry, {REVIEWS.name: 0}, note)
    restore_reviews(foundry.home)
    rows = {REVIEWS.name: foundry.home.lake.rows(REVIEWS)}
    labels = shard_labels(foundry.home, None, settings.critic.verdicts.accept_at_least)
    metadata = agreement_metadata(labels) | {
        "shards": table_metadata(shards_table(foundry.home, settings.reviews.share))
    }
    return REVIEW_SET.describe(context, foundry, rows, metadata)


def shards_table(home: Home, share: float) -> list[dict[str, object]]:
    """A row for each shard: how much of it is reviewed, and whether it waits for more."""
    connection = duckdb_session(home)
    add_opinions(connection, used=True)
    return [
        {
            "shard": row["shard"],
            "attempts": row["attempts"],
            "reviewed": row["reviewed"],
            "share": f"{int(row['reviewed']) / int(row['attempts']):.1%}",
            "held back": "yes" if int(row["reviewed"]) < share * int(row["attempts"]) else "no",
        }
        for row in review_shares(connection)
    ]
