"""Blocking checks of the training sets, which run before anything is trained on them."""

from collections.abc import Sequence
from contextlib import closing
from functools import partial
from itertools import chain, islice

import dagster as dg
import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from schemas import Table
from schemas.curation import IMPORTS, STEPS
from schemas.prompts import PROMPTS

from ..core import checks
from ..core.duckdb_session import duckdb_session
from ..core.foundry import FoundryResource
from ..core.node import Node
from ..trajectories.assets import SCORE_SET, TRAJECTORY_SET
from .assets import (
    CRITIC_DPO_SET,
    CRITIC_RL_SET,
    CRITIC_SFT_SET,
    IMPORT_SET,
    PLANNER_RL_SET,
    PLANNER_SFT_SET,
    SEQUENCE_SET,
    STEP_SET,
)
from .sources import image_columns, images_sql, verdict_sql

_TRAIN_ONLY = (
    "No prompt (with `curation.split.unit: step`: no step) is in both SFT and RL, and nothing of a "
    "held-out prompt is in either"
)
_PROMPT = ("prompt_id",)
_TOLERANCE = 0.02  # of the share of True, from one half
_PART_ROWS = 20_000  # checked at a time


def _heldout(foundry: FoundryResource) -> tuple[str, pa.Table]:
    """Prompts of held-out splits."""
    prompts = foundry.home.lake.read(PROMPTS, columns=["prompt_id", "split"])
    return "held-out", prompts.filter(pc.field("split") != "train")


def _side(foundry: FoundryResource, side: str) -> tuple[str, pa.Table]:
    """The steps of SFT or RL."""
    columns = ["prompt_id", "trajectory_id", "step_number", "split"]
    return side, foundry.home.lake.read(STEPS, columns=columns, where=pc.field("split") == side)


def mismatched_placeholders(data: pa.Table, images: str = "images") -> checks.Violations:
    """Rows whose messages have another number of `<image>` than `images` (SQL) has items."""
    query = f"""
        select row_id, image_count, placeholders from (
            select row_id, len({images}) as image_count, list_sum(list_transform(
                messages, lambda m: len(regexp_extract_all(m.content, '<image>')))) as placeholders
            from data)
        where image_count != placeholders
    """
    return checks.find_rows(query, data=data)


def unbalanced_verdicts(data: pa.Table, verdict: str, tolerance: float) -> checks.Violations:
    """Iterations whose share of accepting verdicts differs from 1/2 by more than `tolerance`.

    A difference of one row is always allowed: an odd number cannot be halved. `verdict` is SQL.
    """
    query = f"""
        select iteration, share, samples from (
            select iteration, avg(({verdict})::int) as share, count(*) as samples,
                   abs(2 * sum(({verdict})::int) - count(*)) as difference
            from data group by iteration)
        where difference > greatest({tolerance} * 2 * samples, 1)
    """
    return checks.find_rows(query, data=data)


def shared_units(
    sets: Sequence[tuple[str, pa.Table]], unit: Sequence[str] = ("prompt_id",)
) -> checks.Violations:
    """Prompts, or what the columns `unit` identify, that occur in more than one named set."""
    tables = {f"set_{i}": data.select(list(unit)) for i, (_, data) in enumerate(sets)}
    columns = ", ".join(unit)
    union = " union all ".join(
        f"select distinct {columns}, '{name}' as set_name from set_{i} where {unit[0]} is not null"
        for i, (name, _) in enumerate(sets)
    )
    query = (
        f"select {columns}, list(set_name order by set_name) as sets from ({union}) "
        f"group by {columns} having count(*) > 1"
    )
    return checks.find_rows(query, **tables)


def shards_hold(foundry: FoundryResource, _shard: str | None) -> checks.Violations:
    """Repeated keys and dangling references over all shards: a shard's own checks see only that.

    Raises:
        StorageError: a file is damaged.
    """
    tables = [*TRAJECTORY_SET.tables, *SCORE_SET.tables]
    with closing(duckdb_session(foundry.home)) as connection:
        try:
            return checks.broken_tables(connection, tables)
        except duckdb.Error:
            for table in tables:  # names a damaged file and its remedy
                foundry.home.lake.check(table)
            raise


def shared_between_splits(foundry: FoundryResource, _shard: str | None) -> checks.Violations:
    """Units (`curation.split.unit`) in both SFT and RL, and held-out prompts in either."""
    unit, heldout = foundry.settings.curation.split.unit_columns, _heldout(foundry)
    sft, rl = (_side(foundry, side) for side in ("sft", "rl"))
    pairs = [([sft, rl], unit), ([sft, heldout], _PROMPT), ([rl, heldout], _PROMPT)]
    return [row for pair, columns in pairs for row in shared_units(pair, columns)]


def outside_training(
    table: Table, split: str | None, foundry: FoundryResource, _shard: str | None
) -> checks.Violations:
    """A set holds prompts of the train split alone and, for critic sets, of its own side."""
    unit = foundry.settings.curation.split.unit_columns if split else _PROMPT
    columns = list(dict.fromkeys((*_PROMPT, *unit)))
    rows = (table.name, foundry.home.lake.read(table, columns=columns))
    violations = shared_units([rows, _heldout(foundry)])
    if split:
        other = _side(foundry, "rl" if split == "sft" else "sft")
        violations += shared_units([rows, other], unit)
    return violations


def _unbalanced(
    table: Table, side: str, foundry: FoundryResource, _shard: str | None
) -> checks.Violations:
    settings = getattr(foundry.settings.curation.critic, f"balance_{side}")
    if settings.mode == "none":
        return []
    verdict = verdict_sql(table.columns)
    rows = foundry.home.lake.read(table, columns=["iteration", verdict.split(".")[0]])
    return unbalanced_verdicts(rows, verdict, _TOLERANCE)


def _set_checks(declared: Node, split: str | None = None) -> dg.AssetChecksDefinition:
    """The checks of a set for training; `split` is the side that a critic set is of."""
    (table,) = declared.tables
    images = image_columns(table)

    def placeholders(foundry: FoundryResource, _shard: str | None) -> checks.Violations:
        listed = images_sql(table.columns)
        columns = [name for name in ("row_id", "messages", *images) if name in table.columns]
        parts = foundry.home.lake.stream(table, columns, part_rows=_PART_ROWS)
        found = (mismatched_placeholders(part, listed) for part in parts)
        return [*islice(chain.from_iterable(found), checks.MAX_ROWS)]

    def missing(foundry: FoundryResource, _shard: str | None) -> checks.Violations:
        store = foundry.home.images
        parts = foundry.home.lake.stream(table, images, part_rows=_PART_ROWS)
        names = (checks.distinct_strings(part) for part in parts)
        found = (checks.missing_images(store, each) for each in names)
        return [*islice(chain.from_iterable(found), checks.MAX_ROWS)]

    rules: dict[str, tuple[str, checks.Rule]] = {
        "splits_disjoint": (_TRAIN_ONLY, partial(outside_training, table, split)),
        "placeholders_match": ("As many <image> placeholders as images", placeholders),
        "images_present": ("Every image is in the store", missing),
    }
    if split:
        balanced = "As many True as False in every iteration, within the tolerance"
        rules["verdicts_balanced"] = (balanced, partial(_unbalanced, table, split))
    return checks.blocking_checks(declared, **rules)


def _missing_of_imports(foundry: FoundryResource, _partition: str | None) -> checks.Violations:
    images = foundry.home.images
    rows = foundry.home.lake.read(IMPORTS, columns=["row_id", "images"]).to_pylist()
    return [
        {"row_id": row["row_id"], "image": sha256}
        for row in rows
        for sha256 in row["images"]
        if not images.exists(sha256)
    ]


steps_checks = checks.blocking_checks(
    STEP_SET,
    shards_hold=("Keys and references hold over all shards", shards_hold),
    splits_disjoint=(_TRAIN_ONLY, shared_between_splits),
)
critic_sft_checks = _set_checks(CRITIC_SFT_SET, "sft")
critic_rl_checks = _set_checks(CRITIC_RL_SET, "rl")
critic_dpo_checks = _set_checks(CRITIC_DPO_SET)
planner_sft_checks = _set_checks(PLANNER_SFT_SET)
sequences_checks = _set_checks(SEQUENCE_SET)
planner_rl_checks = _set_checks(PLANNER_RL_SET)
imports_checks = checks.blocking_checks(
    IMPORT_SET, images_stored=("Every image of a row is in the store", _missing_of_imports)
)
