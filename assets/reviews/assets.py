"""The asset `reviews`: what people said of attempts, and how far they agree with the models."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from typing import Any

import dagster as dg
import duckdb

from inference.review_log import restore_reviews
from schemas.training import EvaluationRow
from schemas.trajectories import ATTEMPT_KEY, ATTEMPTS, REVIEWS, SCORES
from warehouse import Home

from ..core.checks import blocking_checks
from ..core.foundry import FoundryResource
from ..core.metadata import table_metadata
from ..core.node import Node
from ..core.statistics import Agreement, agreement
from .opinions import ReviewShare, add_opinions, shard_shares


def _stored(foundry: FoundryResource) -> list[str | None]:
    """Hashes of the reviews, where the profile follows them."""
    if not REVIEW_SET.in_profile(foundry.settings):
        return []
    lake = foundry.home.lake
    return list(lake.content_hashes(REVIEWS).values())


REVIEW_SET = Node(
    name="reviews",
    group="reviews",
    description="Reviews of the studio, and how far critic, scorer and people agree. Followed "
    "where a profile has `curation.reviews`.",
    tables=(REVIEWS,),
    deps=("trajectories", "scores"),
    arrows=("scores",),
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


# Who -> attempt (`trajectory/step/iteration`) -> accepted or rejected; None: no opinion.
Labels = Mapping[str, Mapping[str, str | None]]
CRITIC, SCORER, PEOPLE = "critic", "scorer", "people"
_READ = {
    ATTEMPTS: [*ATTEMPT_KEY, "shard", "accepted", "image"],
    SCORES: [*ATTEMPT_KEY, "overall", "quality"],
    REVIEWS: list(REVIEWS.columns),
}
_METRICS = {"verdict_accuracy_true": True, "verdict_accuracy_false": False}


def shard_labels(home: Home, shards: Sequence[str] | None, accept_at_least: float) -> Labels:
    """What each says of the attempts of some shards (None: of all).

    `accept_at_least`: overall score and quality grade from which on the scorer accepts, as in the
    evaluation.
    """
    connection = duckdb.connect()
    for table, columns in _READ.items():
        connection.register(table.name, home.lake.read(table, shards, columns))
    add_opinions(connection)
    rows = connection.execute(
        """
        SELECT concat_ws('/', trajectory_id, step_number, iteration), accepted,
               least(overall, quality) >= $least, person_accepted, reviewers IS NOT NULL
        FROM attempts LEFT JOIN scores USING (trajectory_id, step_number, iteration)
        LEFT JOIN person_verdicts USING (trajectory_id, step_number, iteration)
        ORDER BY ALL
        """,
        {"least": accept_at_least},
    ).fetchall()
    return {
        CRITIC: {key: _label(critic) for key, critic, *_ in rows},
        SCORER: {key: _label(scorer) for key, _, scorer, *_ in rows if scorer is not None},
        PEOPLE: {key: _label(person) for key, *_, person, reviewed in rows if reviewed},
    }


def evaluated_labels(rows: Iterable[EvaluationRow], labels: Labels) -> dict[str, Labels]:
    """What each says of the attempts that an evaluation had judged, by benchmark and variant.

    Args:
        rows: values of an evaluation, which tell whether a critic judged as the scorer does.
        labels: of all attempts of the lake.
    """
    found: dict[str, dict[str, dict[str, str | None]]] = {}
    for row in rows:
        truth = _METRICS.get(row.metric)
        if truth is not None:
            sides = found.setdefault(f"{row.benchmark}: {row.variant}", {CRITIC: {}, SCORER: {}})
            sides[CRITIC][row.item_id] = _label(truth == bool(row.value))
            sides[SCORER][row.item_id] = _label(truth)
    people = labels[PEOPLE]
    return {
        name: {**sides, PEOPLE: {key: people[key] for key in sides[SCORER] if key in people}}
        for name, sides in found.items()
    }


def agreement_rows(labels: Labels) -> list[dict[str, str]]:
    """A row for each two of critic, scorer and people, as text; what is missing is a dash."""
    rows = []
    for first, second in combinations((CRITIC, SCORER, PEOPLE), 2):
        found = agreement(labels[first], labels[second])
        pair = {"between": f"{first} and {second}", "attempts": str(found.cases if found else 0)}
        rows.append(pair | _cells(found))
    return rows


def agreement_metadata(labels: Labels) -> dict[str, dg.MetadataValue]:
    """`agreement_rows` as metadata of an asset."""
    return {"people/agreement": table_metadata(agreement_rows(labels))}


def evaluation_metadata(
    rows: Iterable[EvaluationRow], labels: Labels
) -> dict[str, dg.MetadataValue]:
    """Agreement of every variant that has a critic; empty without such."""
    table: list[dict[str, Any]] = [
        {"benchmark and variant": name, **row}
        for name, sides in evaluated_labels(rows, labels).items()
        for row in agreement_rows(sides)
    ]
    return {"people/agreement": table_metadata(table)} if table else {}


def _cells(found: Agreement | None) -> dict[str, str]:
    return {
        "share [95 %]": "–" if not found or found.share is None else format(found.share),
        "kappa [95 %]": "–" if not found or found.kappa is None else format(found.kappa),
        "without an opinion": "–" if found is None else f"{found.unscored:.1%}",
    }


def _label(accepted: bool | None) -> str | None:
    return None if accepted is None else "accepted" if accepted else "rejected"


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
