"""The prompt bank: taxonomy, vocabulary and templates of the packs, and prompts made from them.

With `prompts.expansion` in the profile, terms proposed by a model join the vocabulary; with
`prompts.requests`, users' requests join the prompts.
"""

import asyncio
from itertools import groupby
from typing import Any

import dagster as dg

from inference.vocabulary_engine import ASSET as EXPANSION_NAME
from schemas import Table
from schemas.prompts import (
    CATEGORIES,
    PROMPTS,
    TEMPLATES,
    VOCABULARY,
    VOCABULARY_PROPOSALS,
    PromptRow,
)
from schemas.trajectories import MODEL_CALLS

from ..core.foundry import SHARDS, FoundryResource
from ..core.node import Node, node
from ..core.progress import progress_of
from . import bank, user_requests
from .expansion.expand import expand_packs
from .expansion.term_filter import add_accepted_terms
from .metadata import (
    bank_metadata,
    expansion_metadata,
    expansion_warning,
    request_metadata,
    row_sample,
)
from .pack import Pack, category_rows, template_rows, vocabulary_rows
from .pack_loader import load_pack


def shard_names(pack: str, count: int) -> list[str]:
    """The first `count` shards of a pack."""
    return [bank.shard_name(pack, number) for number in range(count)]


def trajectory_shards(foundry: FoundryResource, instance: dg.DagsterInstance) -> int:
    """Number of shards of the profile's pack that are partitions, at least its smallest size."""
    pack = load_pack(foundry.settings.pack).name
    known = instance.get_dynamic_partitions(str(SHARDS.name))
    numbers = [int(name.rpartition("-")[2]) for name in known if name.startswith(f"{pack}-")]
    return max([min(foundry.settings.sizes.values()), *(number + 1 for number in numbers)])


def register_shards(foundry: FoundryResource, instance: dg.DagsterInstance, count: int) -> None:
    """Make the first `count` shards of the profile's pack partitions."""
    pack = load_pack(foundry.settings.pack).name
    instance.add_dynamic_partitions(str(SHARDS.name), shard_names(pack, count))


def load_packs(foundry: FoundryResource) -> list[Pack]:
    """The profile's pack, then the other packs whose bank is generated."""
    names = dict.fromkeys([foundry.settings.pack, *foundry.settings.banks])
    return [load_pack(name) for name in names]


def load_expanded_packs(foundry: FoundryResource) -> list[Pack]:
    """`load_packs`, with the accepted terms of the expansion."""
    packs = load_packs(foundry)
    if foundry.settings.prompts.expansion is None:
        return packs
    proposals = foundry.rows(VOCABULARY_PROPOSALS)
    return [add_accepted_terms(pack, proposals) for pack in packs]


def _pack_digests(foundry: FoundryResource, _instance: dg.DagsterInstance) -> object:
    return {pack.name: pack.digest for pack in load_packs(foundry)}


def _pack_inputs(foundry: FoundryResource, instance: dg.DagsterInstance) -> object:
    digests = _pack_digests(foundry, instance)
    return [digests, user_requests.REQUESTS_PACK] if foundry.settings.prompts.requests else digests


def _prompt_inputs(foundry: FoundryResource, instance: dg.DagsterInstance) -> object:
    requests = (
        [user_requests.requests_digest(foundry.home)] if foundry.settings.prompts.requests else []
    )
    return [_pack_digests(foundry, instance), trajectory_shards(foundry, instance), *requests]


def _expansion_inputs(foundry: FoundryResource, instance: dg.DagsterInstance) -> object:
    """The model and its parameters, the packs, and the worlds that must understand new terms."""
    expansion = foundry.settings.prompts.expansion
    worlds = [pack.taxonomy.reader for pack in load_packs(foundry)]
    return [_pack_digests(foundry, instance), worlds, expansion and expansion.model.identity]


def _pack_node(name: str, table: Table, description: str, deps: tuple[str, ...] = ()) -> Node:
    return node(
        name=name,
        group="taxonomy",
        description=description,
        tables=(table,),
        deps=deps,
        sections=("pack", "banks"),
        inputs=_pack_inputs,
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
    inputs=_expansion_inputs,
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
    inputs=_prompt_inputs,
)


@dg.asset(**TAXONOMY.asset_args())
def taxonomy(context: dg.AssetExecutionContext, foundry: FoundryResource) -> dg.MaterializeResult:
    rows = [row for pack in load_packs(foundry) for row in category_rows(pack)]
    if foundry.settings.prompts.requests:
        rows.append(user_requests.CATEGORY)
    return TAXONOMY.record(context, foundry, {CATEGORIES: rows}, row_sample(rows))


@dg.asset(**EXPANSION.asset_args())
def vocabulary_expansion(
    context: dg.AssetExecutionContext, foundry: FoundryResource
) -> dg.MaterializeResult:
    settings = foundry.settings.prompts.expansion
    if settings is None:
        note = {"expansion": "the profile has no `prompts.expansion`"}
        return EXPANSION.describe(context, foundry, {VOCABULARY_PROPOSALS.name: 0}, note)
    expanded = asyncio.run(
        expand_packs(foundry, load_packs(foundry), settings, progress_of(context))
    )
    if message := expansion_warning(expanded):
        context.log.warning(message)
    tables = {VOCABULARY_PROPOSALS: expanded.proposals, MODEL_CALLS: expanded.calls}
    result = EXPANSION.record(context, foundry, tables, {})
    version = foundry.home.lake.content_hash(VOCABULARY_PROPOSALS, "all")
    metadata = expansion_metadata(expanded, version)
    return result._replace(metadata={**(result.metadata or {}), **metadata})


@dg.asset(**VOCABULARY_BANKS.asset_args())
def vocabulary(context: dg.AssetExecutionContext, foundry: FoundryResource) -> dg.MaterializeResult:
    rows = [row for pack in load_expanded_packs(foundry) for row in vocabulary_rows(pack)]
    return VOCABULARY_BANKS.record(context, foundry, {VOCABULARY: rows}, row_sample(rows))


@dg.asset(**TEMPLATE_SET.asset_args())
def templates(context: dg.AssetExecutionContext, foundry: FoundryResource) -> dg.MaterializeResult:
    rows = [row for pack in load_packs(foundry) for row in template_rows(pack)]
    if foundry.settings.prompts.requests:
        rows.append(user_requests.TEMPLATE)
    return TEMPLATE_SET.record(context, foundry, {TEMPLATES: rows}, row_sample(rows))


@dg.asset(**PROMPT_BANK.asset_args())
def prompts(context: dg.AssetExecutionContext, foundry: FoundryResource) -> dg.MaterializeResult:
    register_shards(foundry, context.instance, trajectory_shards(foundry, context.instance))
    fingerprint = PROMPT_BANK.fingerprint(foundry, context.instance, None)
    rows, metadata = _pack_prompts(context, foundry)
    requests = user_requests.current_request_prompts(foundry, rows)
    user_requests.register_request_shards(foundry, context.instance, requests)
    rows += requests
    for shard, members in groupby(rows, key=lambda row: row.shard):
        foundry.home.lake.write(PROMPTS, members, shard)
    metadata |= request_metadata(requests)
    return PROMPT_BANK.describe(context, foundry, {PROMPTS.name: len(rows)}, metadata, fingerprint)


def _pack_prompts(
    context: dg.AssetExecutionContext, foundry: FoundryResource
) -> tuple[list[PromptRow], dict[str, Any]]:
    """Prompts of all packs, and their metadata."""
    rows: list[PromptRow] = []
    metadata: dict[str, Any] = {}
    packs, settings = load_expanded_packs(foundry), foundry.settings.bank
    progress = progress_of(context)
    for done, pack in enumerate(packs):
        progress.update(done, len(packs), f"packs; now {pack.name}")
        count = _shard_count(pack, foundry, context.instance) * settings.shard_size
        built = bank.build_bank(pack, settings, count)
        rows += built.prompts
        metadata |= bank_metadata(pack.name, built)
    progress.update(len(packs), len(packs), "packs")
    return rows, metadata


def _shard_count(pack: Pack, foundry: FoundryResource, instance: dg.DagsterInstance) -> int:
    shards = foundry.settings.banks.get(pack.name, 0)
    if load_pack(foundry.settings.pack).name == pack.name:
        return max(shards, trajectory_shards(foundry, instance))
    return shards
