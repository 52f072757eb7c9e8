"""How far critic, scorer and people agree on whether an attempt succeeded."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from typing import Any

import dagster as dg
import duckdb

from schemas.reviews import REVIEWS
from schemas.training import EvaluationRow
from schemas.trajectories import ATTEMPTS, SCORES
from warehouse import Home

from ..core.metadata import table_metadata
from ..core.statistics import Agreement, agreement
from .opinions import add_opinions

# Who -> attempt (`trajectory/step/iteration`) -> accepted or rejected; None: no opinion.
Labels = Mapping[str, Mapping[str, str | None]]
CRITIC, SCORER, PEOPLE = "critic", "scorer", "people"
_KEY = ["trajectory_id", "step_number", "iteration"]
_READ = {
    ATTEMPTS: [*_KEY, "shard", "accepted", "image"],
    SCORES: [*_KEY, "overall", "quality"],
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
    add_opinions(connection, used=True)
    rows = connection.execute(
        """
        SELECT concat_ws('/', trajectory_id, step_number, iteration), accepted,
               least(overall, quality) >= $least, person_accepted, reviewers IS NOT NULL
        FROM attempts LEFT JOIN scores USING (trajectory_id, step_number, iteration)
        LEFT JOIN all_verdicts USING (trajectory_id, step_number, iteration)
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
        common = [key for key in labels[first] if key in labels[second]]
        found = agreement(labels[first], labels[second]) if common else None
        pair = {"between": f"{first} and {second}", "attempts": str(len(common))}
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
    share, kappa = (found.share, found.kappa) if found else (None, None)
    return {
        "share [95 %]": "–" if share is None else format(share),
        "kappa [95 %]": "–" if kappa is None else format(kappa),
        "without an opinion": "–" if found is None else f"{found.unscored:.1%}",
    }


def _label(accepted: bool | None) -> str | None:
    return None if accepted is None else "accepted" if accepted else "rejected"
