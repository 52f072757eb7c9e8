"""The asset `reviews`: what people said of attempts, and how far they agree with the models."""

from collections.abc import Iterable

import dagster as dg

from inference.review_log import restore_reviews
from schemas.reviews import REVIEWS
from warehouse import Home

from ..core.duckdb_session import duckdb_session
from ..core.foundry import FoundryResource
from ..core.metadata import table_metadata
from ..core.node import Node
from .agreement import agreement_metadata, shard_labels
from .opinions import ReviewShare, add_opinions, review_shares


def _stored(foundry: FoundryResource) -> list[str | None]:
    """Hashes of the reviews, where the profile follows them."""
    if not REVIEW_SET.in_profile(foundry.settings):
        return []
    lake = foundry.home.lake
    return list(lake.content_hashes(REVIEWS).values())


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
        "shards": table_metadata(shares_table(shard_shares(foundry.home), settings.reviews.share))
    }
    return REVIEW_SET.describe(context, foundry, rows, metadata)


def shard_shares(home: Home) -> list[ReviewShare]:
    """How much of every shard is reviewed."""
    with duckdb_session(home) as connection:
        add_opinions(connection, used=True)
        return review_shares(connection)


def shares_table(shares: Iterable[ReviewShare], required: float) -> list[dict[str, object]]:
    """A row for each shard, and whether it waits for more. `required`: the share of reviews."""
    return [
        {
            "shard": each.shard,
            "attempts": each.attempts,
            "reviewed": each.reviewed,
            "share": f"{each.reviewed / each.attempts:.1%}",
            "held back": "yes" if each.is_held_back(required) else "no",
        }
        for each in shares
    ]
