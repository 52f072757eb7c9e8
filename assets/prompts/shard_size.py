"""A bank is cut into shards of one size: with another, prompts would move to other shards, and
everything made from them would be made again."""

from contextlib import suppress

from schemas import FoundryError, StorageError
from schemas.prompts import PROMPTS

from ..core.foundry import FoundryResource
from .pack import Pack, shard_name


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
