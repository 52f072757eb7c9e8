"""Safeguards against agents that feed on themselves: what blocks a round's data, with numbers."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from inference.calls.hashing import stable_hash
from schemas.prompts import PROMPTS, TEMPLATES
from schemas.rounds import ROUNDS, RoundDiversity, RoundRow
from schemas.trajectories import ATTEMPTS, PLANS
from warehouse import Home

from ..curation.sources import round_rows
from ..prompts.rounds import RoundPlan, recorded_rounds
from .data import OLDER_CONTENT, SETS, older_rows
from .settings import SafeguardSettings

_WINDOW = 100  # texts of which distinct pairs of words are counted together
_VARIED = ("distinct_plans", "distinct_refinements", "distinct_images")
_LENGTHS = ("plan_words", "refinement_words")
_DISTINCT = f"""
    SELECT count(*), count(DISTINCT content) FILTER (
        content NOT IN (SELECT {OLDER_CONTENT} FROM older)
    )
    FROM (SELECT {OLDER_CONTENT} AS content FROM own)
"""


@dataclass(frozen=True)
class SafeguardResult:
    """What a safeguard found: empty `problems` let the round go on."""

    problems: list[str]
    numbers: dict[str, float]


def heldout_free(home: Home, plan: RoundPlan, _limits: SafeguardSettings) -> SafeguardResult:
    """No held-out prompt, combination of terms or template is among the round's rows."""
    columns = ["prompt_id", "template_id", "terms", "split", "shard", "pack"]
    prompts = home.lake.read(PROMPTS, columns=columns).to_pylist()
    heldout = [row for row in prompts if row["split"] != "train" and row["pack"] == plan.pack]
    templates = home.lake.read(TEMPLATES, where=pc.field("heldout")).to_pylist()
    sets = [round_rows(home, [plan.number], table) for table in SETS]
    used = {*pa.concat_tables(sets)["prompt_id"].to_pylist()}
    own = [row for row in prompts if row["shard"] in plan.shards or row["prompt_id"] in used]
    combinations = {tuple(sorted(row["terms"])) for row in heldout if row["terms"]}
    reserved = {row["template_id"] for row in templates if row["pack"] == plan.pack}
    numbers = {
        "heldout_prompts": sum(row["split"] != "train" for row in own),
        "heldout_combinations": sum(tuple(sorted(row["terms"])) in combinations for row in own),
        "heldout_templates": sum(row["template_id"] in reserved for row in own),
        "prompts": len(own),
    }
    found = [f"{count} {name}" for name, count in numbers.items() if count and name != "prompts"]
    return SafeguardResult(found, {**numbers})


def few_duplicates(home: Home, plan: RoundPlan, limits: SafeguardSettings) -> SafeguardResult:
    """Every set has new rows; those that occurred before the round, or twice in it, are few."""
    problems, numbers = [], {}
    for table in SETS:
        with duckdb.connect() as connection:
            connection.register("own", round_rows(home, [plan.number], table))
            connection.register("older", older_rows(home, plan.number, table))
            [(rows, distinct)] = connection.execute(_DISTINCT).fetchall()
        share = 1 - distinct / rows if rows else 0.0
        numbers[f"duplicates/{table.name}"] = share
        if not rows:
            problems.append(f"no row of {table.name} is new")
        if share > limits.duplicates:
            limit = f"at most {limits.duplicates:.0%} may"
            problems.append(f"{share:.0%} of the rows of {table.name} occurred before, {limit}")
    return SafeguardResult(problems, numbers)


def not_collapsed(home: Home, plan: RoundPlan, limits: SafeguardSettings) -> SafeguardResult:
    """Plans and refined prompts are varied, of usual length, and verdicts are not all the same."""
    now, first = diversity(home, list(plan.shards)), _first_diversity(home, plan)
    problems, (least, most) = [], limits.accept_rate
    if not least <= now.accept_rate <= most:
        problems.append(f"{now.accept_rate:.0%} of the attempts are accepted")
    numbers = now.model_dump()
    if first:
        numbers |= {f"first/{name}": value for name, value in first.model_dump().items()}
        pairs = {name: (getattr(now, name), getattr(first, name)) for name in _VARIED + _LENGTHS}
        for name in _VARIED:
            ours, theirs = pairs[name]
            if ours < limits.diversity * theirs:
                problems.append(f"{name} fell from {theirs:.3f} to {ours:.3f}")
        for name in _LENGTHS:
            ours, theirs = pairs[name]
            if theirs and not 1 / limits.length_factor <= ours / theirs <= limits.length_factor:
                problems.append(f"{name} went from {theirs:.1f} to {ours:.1f}")
    return SafeguardResult(problems, numbers)


def diversity(home: Home, shards: list[str]) -> RoundDiversity:
    """How varied what agents made of some shards is."""
    plans = home.lake.read(PLANS, shards, ["plan_id", "step_number", "prompt"]).to_pylist()
    columns = ["trajectory_id", "iteration", "refined_prompt", "image", "accepted"]
    attempts = home.lake.read(ATTEMPTS, shards, columns).to_pylist()
    planned = [row["prompt"] for row in plans if row["prompt"]]
    refined = [row["refined_prompt"] for row in attempts if row["refined_prompt"].strip()]
    count = max(1, len(attempts))
    return RoundDiversity(
        distinct_plans=distinct_pairs(planned),
        distinct_refinements=distinct_pairs(refined),
        distinct_images=len({row["image"] for row in attempts}) / count,
        accept_rate=sum(row["accepted"] for row in attempts) / count,
        plan_words=_mean_words(planned),
        refinement_words=_mean_words(refined),
    )


def distinct_pairs(texts: Sequence[str]) -> float:
    """Distinct pairs of neighbouring words by all pairs, the mean over windows of 100 texts.

    In windows, because the share falls with the number of texts. 0 without any pair.
    """
    chosen = sorted(texts, key=stable_hash)
    windows = [chosen[start : start + _WINDOW] for start in range(0, len(chosen), _WINDOW)]
    complete = [each for each in windows if len(each) == _WINDOW] or windows
    shares = [share for each in complete if (share := _distinct_share(each)) is not None]
    return fmean(shares) if shares else 0.0


def _distinct_share(texts: Iterable[str]) -> float | None:
    words = (text.lower().split() for text in texts)
    pairs = [pair for each in words for pair in pairwise(each)]
    return len(set(pairs)) / len(pairs) if pairs else None


def _mean_words(texts: Sequence[str]) -> float:
    return fmean(len(text.split()) for text in texts) if texts else 0.0


def _first_diversity(home: Home, plan: RoundPlan) -> RoundDiversity | None:
    """Of the first round that was trained on; before it, of the trajectories that it began with."""
    rows = [RoundRow.model_validate(each) for each in home.lake.read(ROUNDS).to_pylist()]
    trained = [row for row in rows if row.round < plan.number and row.decision != "blocked"]
    if trained:
        return min(trained, key=lambda row: row.round).diversity
    made = {shard for each in recorded_rounds(home) for shard in each.shards}
    before = [name for name in home.lake.partitions(PLANS) if name not in made]
    return diversity(home, before) if before else None
