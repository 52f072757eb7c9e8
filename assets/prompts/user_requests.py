"""Users' requests as prompts: with `prompts.requests` they become training data.

Every completed request counts once, except those with input images and near-duplicates of the
packs' own prompts (held-out prompts must stay unseen). They fill shards of their own, which are
planned, run and trained on like any other. A prompt stays in its shard for as long as it counts;
later ones follow behind it.
"""

from collections import Counter
from collections.abc import Sequence
from hashlib import sha256

import dagster as dg

from schemas import TABLES, FoundryError
from schemas.generations import GENERATIONS
from schemas.prompts import PROMPTS, CategoryRow, PromptRow, TemplateRow
from schemas.trajectories import MODEL_CALLS, TRAJECTORIES
from warehouse import Home
from warehouse.sql import run_query

from ..core.foundry import SHARDS, FoundryResource
from .pack import prompt_id, shard_name
from .settings import BankSettings
from .template_fills import Content, NearDuplicates, content_words

REQUESTS_PACK = "requests"
"""Pack, category, sub-category and template of users' requests."""

_SUBCATEGORY = dict.fromkeys(("pack", "category", "subcategory"), REQUESTS_PACK)
CATEGORY = CategoryRow(
    **_SUBCATEGORY, title="Requests", description="What users asked for", banks=[], heldout=False
)
TEMPLATE = TemplateRow(
    pack=REQUESTS_PACK,
    template_id=REQUESTS_PACK,
    text="{request}",
    subcategories=[REQUESTS_PACK],
    heldout=False,
)
_TEXTS = """
    select text from generations where status = 'complete' and len(input_images) = 0
    group by text order by min(started_at), text
"""


def completed_texts(home: Home) -> list[str]:
    """Texts of completed requests without images, each once, in order of first use."""
    absent = home.lake.is_absent(GENERATIONS)
    return [] if absent else run_query(home, _TEXTS)["text"].to_pylist()


def requests_digest(home: Home) -> str:
    return sha256("\n\n".join(completed_texts(home)).encode()).hexdigest()[:16]


def request_prompts(
    texts: Sequence[str],
    earlier: Sequence[PromptRow],
    others: Sequence[PromptRow],
    settings: BankSettings,
) -> list[PromptRow]:
    """Prompts of the texts, in the order of their shards, without near-duplicates of `others`.

    `earlier` are the prompts that this function returned before. FoundryError if one of the packs
    (`others`) has the name that is reserved for requests.
    """
    if any(row.pack == REQUESTS_PACK for row in others):
        raise FoundryError(f"a pack is named '{REQUESTS_PACK}', as users' requests are: rename it")
    words = Counter(word for row in others for word in content_words(row.text))
    index = NearDuplicates(words)

    def add(text: str) -> bool:
        content = content_words(text)
        return bool(content) and index.add(Content(content, content))

    for row in others:
        add(row.text)
    wanted = set(texts)
    current = [row for row in earlier if row.text in wanted and add(row.text)]
    new = [text for text in texts if add(text)]
    return current + _assign_shards(new, current, settings.shard_size)


def _assign_shards(texts: list[str], current: list[PromptRow], size: int) -> list[PromptRow]:
    """New prompts: they fill up the last shard, then shards after it."""
    last = max((row.shard for row in current), default=shard_name(REQUESTS_PACK, 0))
    first = int(last.rpartition("-")[2]) * size + sum(row.shard == last for row in current)
    return [
        PromptRow(
            **_SUBCATEGORY,
            prompt_id=prompt_id(REQUESTS_PACK, text),
            template_id=REQUESTS_PACK,
            text=text,
            terms=[],
            suffix=None,
            input_images=[],
            shard=shard_name(REQUESTS_PACK, number // size),
            split="train",
        )
        for number, text in enumerate(texts, first)
    ]


def current_request_prompts(foundry: FoundryResource, others: list[PromptRow]) -> list[PromptRow]:
    """`request_prompts` of a lake; none if the profile does not use them."""
    if not foundry.settings.prompts.requests:
        return []
    earlier = [row for shard in _shards(foundry.home) for row in foundry.rows(PROMPTS, shard)]
    return request_prompts(completed_texts(foundry.home), earlier, others, foundry.settings.bank)


def register_request_shards(
    foundry: FoundryResource, instance: dg.DagsterInstance, prompts: Sequence[PromptRow]
) -> None:
    """Make the shards of these prompts partitions, and delete all other shards of requests.

    The rows of deleted shards go with them; only their model calls stay in the ledger.
    """
    shards = {row.shard for row in prompts}
    for shard in set(_shards(foundry.home)) - shards:
        instance.delete_dynamic_partition(str(SHARDS.name), shard)
        for table in TABLES.values():
            if table.sharded and table is not MODEL_CALLS:
                foundry.home.lake.delete(table, shard)
    instance.add_dynamic_partitions(str(SHARDS.name), sorted(shards))


def requests_without_trajectories(foundry: FoundryResource) -> int:
    """Number of requests that have no trajectory yet, near-duplicates included."""
    if not foundry.settings.prompts.requests:
        return 0
    lake = foundry.home.lake
    finished = sum(
        lake.rows(TRAJECTORIES, s) for s in lake.partitions(TRAJECTORIES) if is_request_shard(s)
    )
    return max(0, len(completed_texts(foundry.home)) - finished)


def is_request_shard(shard: str) -> bool:
    return shard.startswith(f"{REQUESTS_PACK}-")


def _shards(home: Home) -> list[str]:
    return [shard for shard in home.lake.partitions(PROMPTS) if is_request_shard(shard)]
