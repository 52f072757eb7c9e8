"""The prompt bank: taxonomy, vocabulary and templates of the packs, and the prompts they make.

Where the profile has `prompts.expansion`, a model's proposals join the vocabulary; where it has
`prompts.requests`, what users asked for joins the prompts.
"""

from collections import Counter
from collections.abc import Sequence
from itertools import groupby
from typing import Any

import dagster as dg

from inference.vocabulary_engine import ASSET as EXPANSION_NAME
from schemas import Row, Table
from schemas.prompts import (
    CATEGORIES,
    PROMPTS,
    TEMPLATES,
    VOCABULARY,
    VOCABULARY_PROPOSALS,
    PromptRow,
)
from schemas.trajectories import MODEL_CALLS

from ..core import figures
from ..core.foundry import SHARDS, FoundryResource, run_async
from ..core.node import Node, node, picture, sample
from ..core.progress import progress_of
from . import bank, user_requests
from .expansion.expand import expand_packs
from .expansion.report import expansion_metadata, warning
from .expansion.term_filter import grown
from .pack import Pack, load_pack
from .pack_rows import category_rows, template_rows, vocabulary_rows
from .report import bank_report


def shard_names(pack: str, count: int) -> list[str]:
    """The first `count` shards of a pack."""
    return [bank.shard_name(pack, number) for number in range(count)]


def trajectory_shards(foundry: FoundryResource, instance: dg.DagsterInstance) -> int:
    """Shards of the told pack: those registered as partitions, at least the smallest size."""
    pack = load_pack(foundry.settings.pack).name
    known = instance.get_dynamic_partitions(str(SHARDS.name))
    numbers = [int(name.rpartition("-")[2]) for name in known if name.startswith(f"{pack}-")]
    return max([min(foundry.settings.sizes.values()), *(number + 1 for number in numbers)])


def register_shards(foundry: FoundryResource, instance: dg.DagsterInstance, count: int) -> None:
    """Make the first `count` shards of the told pack partitions."""
    pack = load_pack(foundry.settings.pack).name
    instance.add_dynamic_partitions(str(SHARDS.name), shard_names(pack, count))


def packs_of(foundry: FoundryResource) -> list[Pack]:
    """The told pack, then those whose bank is generated beside it."""
    names = dict.fromkeys([foundry.settings.pack, *foundry.settings.banks])
    return [load_pack(name) for name in names]


def grown_packs(foundry: FoundryResource) -> list[Pack]:
    """`packs_of`, with the terms that an expansion has added to them."""
    packs = packs_of(foundry)
    if foundry.settings.prompts.expansion is None:
        return packs
    proposals = foundry.rows(VOCABULARY_PROPOSALS)
    return [grown(pack, proposals) for pack in packs]


def _pack_digests(foundry: FoundryResource, _instance: dg.DagsterInstance) -> object:
    return {pack.name: pack.digest for pack in packs_of(foundry)}


def _sources(foundry: FoundryResource, instance: dg.DagsterInstance) -> object:
    digests = _pack_digests(foundry, instance)
    return [digests, user_requests.ASKED] if foundry.settings.prompts.requests else digests


def _prompts_wanted(foundry: FoundryResource, instance: dg.DagsterInstance) -> object:
    requests = (
        [user_requests.requests_digest(foundry.home)] if foundry.settings.prompts.requests else []
    )
    return [_pack_digests(foundry, instance), trajectory_shards(foundry, instance), *requests]


def _expander(foundry: FoundryResource, instance: dg.DagsterInstance) -> object:
    """Who is asked, in which words; what it is asked about, and who must understand it."""
    expansion = foundry.settings.prompts.expansion
    readers = [pack.taxonomy.reader for pack in packs_of(foundry)]
    return [_pack_digests(foundry, instance), readers, expansion and expansion.model.identity]


def _pack_node(name: str, table: Table, description: str, deps: tuple[str, ...] = ()) -> Node:
    return node(
        name=name,
        group="taxonomy",
        description=description,
        tables=(table,),
        deps=deps,
        sections=("pack", "banks"),
        facts=_sources,
        kinds=frozenset({"yaml", "parquet"}),
    )


TAXONOMY = _pack_node("taxonomy", CATEGORIES, "Categories and sub-categories of every pack.")
EXPANSION = node(
    name=EXPANSION_NAME,
    group="taxonomy",
    description="Terms that a model proposes for the vocabulary banks, accepted or rejected.",
    tables=(VOCABULARY_PROPOSALS,),
    ledger=(MODEL_CALLS,),
    sections=("pack", "banks", "prompts.expansion"),
    facts=_expander,
    pool="agents",
    may_be_empty=True,
)
VOCABULARY_BANKS = _pack_node(
    "vocabulary", VOCABULARY, "Terms of the vocabulary banks.", (EXPANSION_NAME,)
)
TEMPLATE_SET = _pack_node("templates", TEMPLATES, "Templates whose slots the banks fill.")
PROMPT_BANK = node(
    name="prompts",
    group="prompts",
    description="Distinct, balanced prompts in shards of about 100, with two held-out splits.",
    tables=(PROMPTS,),
    deps=("taxonomy", "vocabulary", "templates", EXPANSION_NAME),
    sections=("pack", "banks", "bank"),
    facts=_prompts_wanted,
)


@dg.asset(**TAXONOMY.asset_args())
def taxonomy(context: dg.AssetExecutionContext, foundry: FoundryResource) -> dg.MaterializeResult:
    rows = [row for pack in packs_of(foundry) for row in category_rows(pack)]
    if foundry.settings.prompts.requests:
        rows.append(user_requests.CATEGORY)
    return TAXONOMY.record(context, foundry, {CATEGORIES: rows}, {"sample": _sample(rows)})


@dg.asset(**EXPANSION.asset_args())
def vocabulary_expansion(
    context: dg.AssetExecutionContext, foundry: FoundryResource
) -> dg.MaterializeResult:
    settings = foundry.settings.prompts.expansion
    if settings is None:
        unused = {"expansion": "the profile has no `prompts.expansion`"}
        return EXPANSION.describe(context, foundry, {VOCABULARY_PROPOSALS.name: 0}, unused)
    expanded = run_async(expand_packs(foundry, packs_of(foundry), settings, progress_of(context)))
    if lacking := warning(expanded):
        context.log.warning(lacking)
    tables = {VOCABULARY_PROPOSALS: expanded.proposals, MODEL_CALLS: expanded.calls}
    result = EXPANSION.record(context, foundry, tables, {})
    version = foundry.home.lake.content_hash(VOCABULARY_PROPOSALS, "all")
    metadata = expansion_metadata(expanded, version)
    return result._replace(metadata={**(result.metadata or {}), **metadata})


@dg.asset(**VOCABULARY_BANKS.asset_args())
def vocabulary(context: dg.AssetExecutionContext, foundry: FoundryResource) -> dg.MaterializeResult:
    rows = [row for pack in grown_packs(foundry) for row in vocabulary_rows(pack)]
    return VOCABULARY_BANKS.record(context, foundry, {VOCABULARY: rows}, {"sample": _sample(rows)})


@dg.asset(**TEMPLATE_SET.asset_args())
def templates(context: dg.AssetExecutionContext, foundry: FoundryResource) -> dg.MaterializeResult:
    rows = [row for pack in packs_of(foundry) for row in template_rows(pack)]
    if foundry.settings.prompts.requests:
        rows.append(user_requests.TEMPLATE)
    return TEMPLATE_SET.record(context, foundry, {TEMPLATES: rows}, {"sample": _sample(rows)})


@dg.asset(**PROMPT_BANK.asset_args())
def prompts(context: dg.AssetExecutionContext, foundry: FoundryResource) -> dg.MaterializeResult:
    register_shards(foundry, context.instance, trajectory_shards(foundry, context.instance))
    fingerprint = PROMPT_BANK.fingerprint(foundry, context.instance, None)
    metadata: dict[str, Any] = {}
    rows: list[PromptRow] = []
    packs = grown_packs(foundry)
    progress = progress_of(context)
    for done, pack in enumerate(packs):
        progress.update(done, len(packs), f"packs; now {pack.name}")
        shards = _shards_of(pack, foundry, context.instance)
        settings = foundry.settings.bank
        drawn = bank.draw_bank(pack, settings, shards * settings.shard_size)
        rows += drawn.prompts
        metadata |= _bank_metadata(pack, drawn)
    progress.update(len(packs), len(packs), "packs")
    requests = user_requests.current_request_prompts(foundry, rows)
    user_requests.register_request_shards(foundry, context.instance, requests)
    _write_shards(foundry, rows + requests)
    metadata |= user_requests.request_metadata(requests)
    written = {PROMPTS.name: len(rows) + len(requests)}
    return PROMPT_BANK.describe(context, foundry, written, metadata, fingerprint)


def _shards_of(pack: Pack, foundry: FoundryResource, instance: dg.DagsterInstance) -> int:
    beside = foundry.settings.banks.get(pack.name, 0)
    told = load_pack(foundry.settings.pack).name == pack.name
    return max(beside, trajectory_shards(foundry, instance)) if told else beside


def _write_shards(foundry: FoundryResource, rows: list[PromptRow]) -> None:
    for shard, members in groupby(rows, key=lambda row: row.shard):
        foundry.home.lake.write(PROMPTS, members, shard)


def _bank_metadata(pack: Pack, drawn: bank.Bank) -> dict[str, Any]:
    """Counts, balance and a sample of one pack's prompts."""
    report = bank_report(drawn.prompts, drawn.near_duplicates)
    spread = f"min {report.minimum}, median {report.median:g}, max {report.maximum}"
    plot = figures.counts_by_category(_by_category(drawn.prompts), f"prompts of {pack.name}")
    return {
        f"{pack.name}/prompts": report.prompts,
        f"{pack.name}/per_subcategory": spread,
        f"{pack.name}/splits": report.splits,
        f"{pack.name}/near_duplicates": report.near_duplicates,
        f"{pack.name}/categories": picture(plot, f"Prompts of {pack.name} by category"),
        f"{pack.name}/sample": dg.MetadataValue.md("\n".join(f"- {t}" for t in report.sample)),
    }


def _by_category(rows: list[PromptRow]) -> dict[str, Counter[str]]:
    counts: dict[str, Counter[str]] = {}
    for row in rows:
        counts.setdefault(row.category, Counter())[row.subcategory] += 1
    return counts


def _sample(rows: Sequence[Row], count: int = 12) -> dg.MetadataValue:
    chosen = rows[:: max(1, len(rows) // count)][:count]
    return sample([row.model_dump() for row in chosen])
