"""The prompt bank: taxonomy, vocabulary and templates of the packs, prompts made from them, checks.

With `prompts.expansion` in the profile, terms proposed by a model join the vocabulary; with
`prompts.requests`, users' requests join the prompts.
"""

import asyncio
from contextlib import suppress
from functools import partial
from itertools import groupby
from typing import Any

import dagster as dg
from pydantic import Field

from schemas import FoundryError, StorageError, Table
from schemas.prompts import (
    CATEGORIES,
    PROMPTS,
    TEMPLATES,
    VOCABULARY,
    VOCABULARY_PROPOSALS,
    PromptRow,
)
from schemas.trajectories import MODEL_CALLS, ModelCallRow

from ..core.checks import Violations, blocking_checks, find_rows, repeated_rows
from ..core.foundry import SHARDS, FoundryResource
from ..core.metadata import model_call_costs
from ..core.node import NODES, Node
from ..core.progress import progress_of
from . import bank, file_pack, input_images, metadata, user_requests
from .expansion import ASSET as EXPANSION_NAME
from .expansion import add_accepted_terms, expand_packs
from .file_pack import IMPORTED
from .pack import Pack, pack_tables, shard_name
from .pack_loader import load_pack
from .rounds import recorded_rounds


class PromptsConfig(dg.Config):
    """What the launchpad offers for `prompts`."""

    shards: int = Field(
        0, ge=0, description="Grow the bank to so many shards; it never becomes smaller"
    )


def shard_names(pack: str, count: int) -> list[str]:
    return [shard_name(pack, number) for number in range(count)]


def trajectory_shards(foundry: FoundryResource, instance: dg.DagsterInstance) -> int:
    """Shards of the profile's pack up to the last one that is a partition, at least its smallest
    size; those of rounds come after the bank, so that some before them may be none."""
    pack = load_pack(foundry.settings.pack).name
    known = instance.get_dynamic_partitions(str(SHARDS.name))
    numbers = [int(name.rpartition("-")[2]) for name in known if name.startswith(f"{pack}-")]
    return max([min(foundry.settings.sizes.values()), *(number + 1 for number in numbers)])


def register_shards(foundry: FoundryResource, instance: dg.DagsterInstance, count: int) -> None:
    """Make the first `count` shards of the profile's pack partitions; others stay."""
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


def _pack_digests(foundry: FoundryResource) -> dict[str, str]:
    return {pack.name: pack.digest for pack in load_packs(foundry)}


def _pack_config(foundry: FoundryResource) -> object:
    digests = _pack_digests(foundry)
    return [digests, user_requests.REQUESTS_PACK] if foundry.settings.prompts.requests else digests


def _prompt_config(foundry: FoundryResource) -> object:
    folder = foundry.settings.prompts.input_images
    return [_pack_digests(foundry), folder and input_images.folder_digest(folder)]


def _prompt_inputs(foundry: FoundryResource, instance: dg.DagsterInstance) -> object:
    inputs: list[object] = [trajectory_shards(foundry, instance)]
    if rounds := recorded_rounds(foundry.home):
        inputs.append([[plan.shards, plan.quotas.model_dump()] for plan in rounds])
    if foundry.settings.prompts.requests:
        inputs.append(user_requests.requests_digest(foundry.home))
    return inputs


def _expansion_config(foundry: FoundryResource) -> object:
    expansion = foundry.settings.prompts.expansion
    worlds = [pack.taxonomy.reader for pack in load_packs(foundry)]  # they judge new terms
    return [_pack_digests(foundry), worlds, expansion and expansion.model.identity]


def _pack_asset(name: str, table: Table, *deps: str) -> dg.AssetsDefinition:
    """An asset with rows of every pack, and one for users' requests."""
    declared = Node(
        name=name,
        group="prompts",
        tables=(table,),
        deps=deps,
        config=_pack_config,
        kinds=frozenset({"yaml", "parquet"}),
    )
    of_requests = {CATEGORIES: user_requests.CATEGORY, TEMPLATES: user_requests.TEMPLATE}

    @dg.asset(**declared.asset_args())
    def pack_rows(
        context: dg.AssetExecutionContext, foundry: FoundryResource
    ) -> dg.MaterializeResult:
        packs = load_expanded_packs(foundry) if EXPANSION_NAME in deps else load_packs(foundry)
        rows = [row for pack in packs for row in pack_tables(pack)[table]]
        if foundry.settings.prompts.requests and table in of_requests:
            rows.append(of_requests[table])
        return declared.record(context, foundry, {table: rows}, metadata.row_sample(rows))

    return pack_rows


taxonomy = _pack_asset("taxonomy", CATEGORIES)
EXPANSION = Node(
    name=EXPANSION_NAME,
    group="prompts",
    description="New terms from a model, made where a profile has `prompts.expansion`.",
    tables=(VOCABULARY_PROPOSALS,),
    ledger=(MODEL_CALLS,),
    sections=("pack", "banks", "prompts.expansion"),
    config=_expansion_config,
    pool="agents",
    may_be_empty=True,
)


@dg.asset(**EXPANSION.asset_args())
def vocabulary_expansion(
    context: dg.AssetExecutionContext, foundry: FoundryResource
) -> dg.MaterializeResult:
    settings = foundry.settings.prompts.expansion
    if settings is None:
        note = {"expansion": "the profile has no `prompts.expansion`"}
        return EXPANSION.describe(context, foundry, {VOCABULARY_PROPOSALS.name: 0}, note)
    packs, progress = load_packs(foundry), progress_of(context)
    expanded = asyncio.run(expand_packs(foundry, packs, settings, progress))
    if message := metadata.expansion_warning(expanded):
        context.log.warning(message)
    tables = {VOCABULARY_PROPOSALS: expanded.proposals, MODEL_CALLS: expanded.calls}
    rows = EXPANSION.write(context, foundry, tables)
    version = foundry.home.lake.content_hash(VOCABULARY_PROPOSALS)
    details = metadata.expansion_metadata(expanded, version)
    return EXPANSION.describe(context, foundry, rows, details)


vocabulary = _pack_asset("vocabulary", VOCABULARY, EXPANSION_NAME)
templates = _pack_asset("templates", TEMPLATES)
PROMPT_BANK = Node(
    name="prompts",
    group="prompts",
    description="Distinct, balanced prompts in shards of about 100, with two held-out splits.",
    tables=(PROMPTS,),
    ledger=(MODEL_CALLS,),
    deps=("taxonomy", "vocabulary", "templates", EXPANSION_NAME),
    arrows=("taxonomy", "vocabulary", "templates"),
    sections=("pack", "banks", "bank"),
    config=_prompt_config,
    inputs=_prompt_inputs,
)


@dg.asset(**PROMPT_BANK.asset_args())
def prompts(
    context: dg.AssetExecutionContext, config: PromptsConfig, foundry: FoundryResource
) -> dg.MaterializeResult:
    _require_packs(foundry)
    check_shard_size(foundry, load_packs(foundry))
    smallest = min(foundry.settings.sizes.values())
    register_shards(foundry, context.instance, max(config.shards, smallest))
    fingerprint = PROMPT_BANK.fingerprint(foundry, context.instance, None)
    rows, calls, details = _pack_prompts(context, foundry)
    requests = user_requests.current_request_prompts(foundry, rows)
    user_requests.register_request_shards(foundry, context.instance, requests)
    rows += requests
    for shard, members in groupby(rows, key=lambda row: row.shard):
        foundry.home.lake.write(PROMPTS, members, shard)
    if calls:
        PROMPT_BANK.write(context, foundry, {MODEL_CALLS: calls})
        details |= model_call_costs(calls)
    details |= metadata.request_metadata(requests)
    return PROMPT_BANK.describe(context, foundry, {PROMPTS.name: len(rows)}, details, fingerprint)


def _require_packs(foundry: FoundryResource) -> None:
    made_by = {"taxonomy": CATEGORIES, "templates": TEMPLATES}
    if missing := [n for n, table in made_by.items() if not foundry.home.lake.partitions(table)]:
        raise FoundryError(
            f"{' and '.join(missing)} of the packs are not materialized yet: --select +prompts "
            "makes what prompts follow from as well"
        )


def _pack_prompts(
    context: dg.AssetExecutionContext, foundry: FoundryResource
) -> tuple[list[PromptRow], list[ModelCallRow], dict[str, Any]]:
    """Prompts of every pack, the calls that drew pictures for them, and what to say of them."""
    rows: list[PromptRow] = []
    calls: list[ModelCallRow] = []
    details: dict[str, Any] = {}
    packs, settings = load_expanded_packs(foundry), foundry.settings
    progress, size = progress_of(context), settings.bank.shard_size
    for done, pack in enumerate(packs):
        progress.update(done, len(packs), f"packs; now {pack.name}")
        shards = settings.banks.get(pack.name, 0)
        run = trajectory_shards(foundry, context.instance) if pack.name == packs[0].name else 0
        file_pack.store_images(foundry.home, pack)
        count = max(shards, run) * size
        drawn = (
            plan.stretch(size) for plan in recorded_rounds(foundry.home) if plan.pack == pack.name
        )
        built = bank.open_bank(pack, settings.bank, count, [*drawn])
        details |= metadata.bank_metadata(pack.name, built)
        own = built.prompts
        if run:
            used = partial(_is_used, shard_name(pack.name, run - 1))
            own, calls = input_images.add_input_images(foundry, pack.name, own, used, progress)
        details |= metadata.input_image_metadata(pack.name, built.prompts, own)
        rows += own
    progress.update(len(packs), len(packs), "packs")
    return rows, calls, details


def _is_used(last_shard: str, row: PromptRow) -> bool:
    """Whether a prompt of the profile's pack is run, or may be evaluated."""
    return row.split != "train" or row.shard <= last_shard


def check_shard_size(foundry: FoundryResource, packs: list[Pack]) -> None:
    """Raise FoundryError if the stored prompts of a pack are in shards of another size than the
    profile's `bank.shard_size`."""
    wanted = foundry.settings.bank.shard_size
    for pack in packs:
        stored = _stored_size(foundry, pack, wanted)
        if stored != wanted:
            settings = foundry.settings
            raise FoundryError(
                f"{foundry.home.root} has the prompts of pack {pack.name} in shards of {stored:,}, "
                f"profile {settings.name} wants shards of {wanted:,}: set `bank: {{shard_size: "
                f"{stored}}}` in the profile to continue with this home, or use another home "
                "(INTERLEAVE_HOME)"
            )


def _stored_size(foundry: FoundryResource, pack: Pack, wanted: int) -> int:
    """Prompts in a stored shard that is not the last one; `wanted` where nothing says otherwise."""
    lake = foundry.home.lake
    first, second = shard_name(pack.name, 0), shard_name(pack.name, 1)
    with suppress(StorageError):  # a damaged shard is written again
        rows = lake.rows(PROMPTS, first)
        # The last shard of prompts from a file may be smaller.
        may_be_smaller = bool(pack.prompts) and not lake.exists(PROMPTS, second)
        if rows and not (may_be_smaller and rows < wanted):
            return rows
    return wanted


# Prompts of files have no templates: each is held out, or not, by itself.
_HELDOUT_IN_TRAINING = f"""
    with train as (select * from data where split = 'train')
    select * from (
        select pack, 'template' as what, template_id as which from data
            where split = 'heldout' and template_id <> '{IMPORTED}'
            and (pack, template_id) in (select pack, template_id from train)
        union select pack, 'terms', array_to_string(terms, ', ') from data
            where split = 'heldout' and len(terms) > 1
            and (pack, list_sort(terms)) in (select pack, list_sort(terms) from train)
        union select pack, 'subcategory', subcategory from data
            where split = 'heldout_category'
            and (pack, subcategory) in (select pack, subcategory from train)
    )
"""


def _splits_disjoint(foundry: FoundryResource, _shard: str | None) -> Violations:
    """A held-out template, sub-category or combination of terms must not occur in training."""
    columns = ["pack", "subcategory", "template_id", "terms", "split"]
    prompts = foundry.home.lake.read(PROMPTS, columns=columns)
    return find_rows(_HELDOUT_IN_TRAINING, data=prompts)


def _texts_distinct(foundry: FoundryResource, _shard: str | None) -> Violations:
    columns = ["pack", "text", "input_images", "input_image_texts"]
    return repeated_rows(foundry.home.lake.read(PROMPTS, columns=columns))


pack_checks = [
    blocking_checks(node)
    for node in (NODES["taxonomy"], EXPANSION, NODES["vocabulary"], NODES["templates"])
]
prompts_checks = blocking_checks(
    PROMPT_BANK,
    splits_disjoint=("Nothing held out occurs in training", _splits_disjoint),
    texts_distinct=("No two prompts of a pack have the same text and pictures", _texts_distinct),
)
