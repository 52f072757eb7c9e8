"""What users asked for, as prompts: with `prompts.requests` it becomes training data.

Every request that was answered with a story counts, each once, but for those given with pictures
and near-duplicates of the packs' own prompts (what is held out must stay unseen). They fill shards
of their own, which are told, scored and trained on like any other. A prompt stays in its shard for
as long as it counts; later ones come behind it.
"""

from collections import Counter
from collections.abc import Sequence
from hashlib import sha256
from typing import Any

import dagster as dg

from schemas import TABLES, FoundryError
from schemas.generations import GENERATIONS
from schemas.prompts import PROMPTS, CategoryRow, PromptRow, TemplateRow
from schemas.trajectories import MODEL_CALLS, TRAJECTORIES
from warehouse import Home
from warehouse.sql import run_query

from ..core.foundry import SHARDS, FoundryResource
from .bank import prompt_id, shard_name
from .near_duplicates import Content, NearDuplicates
from .settings import BankSettings
from .template_fills import content_words

ASKED = "requests"
"""Pack, category, sub-category and template of users' requests."""

CATEGORY = CategoryRow(
    pack=ASKED,
    category=ASKED,
    subcategory=ASKED,
    title="Requests",
    description="What users asked for",
    banks=[],
    heldout=False,
)
TEMPLATE = TemplateRow(
    pack=ASKED, template_id=ASKED, text="{request}", subcategories=[ASKED], heldout=False
)
_TEXTS = """
    select text from generations where status = 'complete' and len(input_images) = 0
    group by text order by min(started_at), text
"""


def requested_texts(home: Home) -> list[str]:
    """What was asked for and told, each text once, the first one first."""
    if home.lake.is_absent(GENERATIONS):
        return []
    return [row["text"] for row in run_query(home, _TEXTS).to_pylist()]


def requests_digest(home: Home) -> str:
    """Another one when something new was asked for."""
    return sha256("\n\n".join(requested_texts(home)).encode()).hexdigest()[:16]


def request_prompts(
    texts: Sequence[str],
    earlier: Sequence[PromptRow],
    others: Sequence[PromptRow],
    settings: BankSettings,
) -> list[PromptRow]:
    """The prompts that texts become, in the order of their shards.

    Args:
        earlier: what they became before.
        others: prompts of the packs, of which these are to be no near-duplicates.

    Raises:
        FoundryError: a pack has the name that stands for requests.
    """
    if any(row.pack == ASKED for row in others):
        raise FoundryError(f"a pack is named '{ASKED}', as users' requests are: rename it")
    seen, wanted = _index([row.text for row in others], settings.near_duplicate), set(texts)
    kept = [row for row in earlier if row.text in wanted and _is_new(row.text, seen)]
    new = [text for text in texts if _is_new(text, seen)]
    return kept + _placed(new, kept, settings.shard_size)


def current_request_prompts(
    foundry: FoundryResource, others: Sequence[PromptRow]
) -> list[PromptRow]:
    """`request_prompts` of a lake; none where the profile does not want them."""
    if not foundry.settings.prompts.requests:
        return []
    earlier = [row for shard in _shards(foundry.home) for row in foundry.rows(PROMPTS, shard)]
    return request_prompts(requested_texts(foundry.home), earlier, others, foundry.settings.bank)


def register_request_shards(
    foundry: FoundryResource, instance: dg.DagsterInstance, asked: Sequence[PromptRow]
) -> None:
    """Make the shards of these prompts partitions, and those of no other requests.

    What was told from others is deleted; what their calls cost stays in the ledger.
    """
    kept = {row.shard for row in asked}
    for shard in set(_shards(foundry.home)) - kept:
        instance.delete_dynamic_partition(str(SHARDS.name), shard)
        for table in TABLES.values():
            if table.sharded and table is not MODEL_CALLS:
                foundry.home.lake.delete(table, shard)
    instance.add_dynamic_partitions(str(SHARDS.name), sorted(kept))


def requests_without_trajectories(foundry: FoundryResource) -> int:
    """How many prompts of these the teachers have still to tell, near-duplicates counted, too."""
    if not foundry.settings.prompts.requests:
        return 0
    lake = foundry.home.lake
    told = sum(
        lake.rows(TRAJECTORIES, s) for s in lake.partitions(TRAJECTORIES) if is_request_shard(s)
    )
    return max(0, len(requested_texts(foundry.home)) - told)


def is_request_shard(shard: str) -> bool:
    """Whether a shard holds users' requests."""
    return shard.startswith(f"{ASKED}-")


def request_metadata(asked: Sequence[PromptRow]) -> dict[str, Any]:
    """Their number and a sample, where there are any."""
    lines = [f"- {row.text}" for row in asked[:: max(1, len(asked) // 12)][:12]]
    sample = dg.MetadataValue.md("\n".join(lines))
    return {f"{ASKED}/prompts": len(asked), f"{ASKED}/sample": sample} if asked else {}


def _shards(home: Home) -> list[str]:
    return [shard for shard in home.lake.partitions(PROMPTS) if is_request_shard(shard)]


def _index(texts: Sequence[str], threshold: float) -> NearDuplicates:
    words = Counter(word for text in texts for word in content_words(text))
    seen = NearDuplicates(threshold, {word: float(count) for word, count in words.items()})
    for text in texts:
        seen.add(_content(text))
    return seen


def _is_new(text: str, seen: NearDuplicates) -> bool:
    return bool(content_words(text)) and seen.add(_content(text))


def _content(text: str) -> Content:
    return Content(content_words(text), content_words(text))


def _placed(texts: Sequence[str], kept: Sequence[PromptRow], size: int) -> list[PromptRow]:
    """New prompts, in the room that the last shard has and in shards after it."""
    last = max((row.shard for row in kept), default=shard_name(ASKED, 0))
    number = int(last.rpartition("-")[2])
    first = number * size + sum(row.shard == last for row in kept)
    return [
        _prompt(text, shard_name(ASKED, place // size)) for place, text in enumerate(texts, first)
    ]


def _prompt(text: str, shard: str) -> PromptRow:
    return PromptRow(
        prompt_id=prompt_id(ASKED, text, []),
        pack=ASKED,
        category=ASKED,
        subcategory=ASKED,
        template_id=ASKED,
        text=text,
        terms=[],
        suffix=None,
        input_images=[],
        shard=shard,
        split="train",
    )
