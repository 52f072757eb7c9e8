"""`interleave verify`, `compact`, `gc`: damaged files, fewer files, none that nothing needs."""

import asyncio
import os
import re
import sys
from collections import Counter
from itertools import chain
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.progress import Progress

from schemas import FoundryError

from .options import HomeOption, ProfileOption, enable_interrupts

if TYPE_CHECKING:
    from assets.core.profile import Profile
    from warehouse import Home
    from warehouse.verify import Damage

_UNITS = {"d": 86_400, "h": 3600}
_SHORTEST_GRACE_DAYS = 2


def verify(
    home: HomeOption = ".interleave",
    profile: ProfileOption = "sketch",
    repair: Annotated[
        bool,
        typer.Option(
            "--repair", help="Make again what can be made without a paid call; move the rest away."
        ),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print findings as JSON.")] = False,
    jobs: Annotated[int, typer.Option(min=1, help="Files that are read at the same time.")] = max(
        4, os.cpu_count() or 1
    ),
) -> None:
    """Read every stored file and list what is damaged; exit status 1 if anything remains so."""
    from assets.core.foundry import FoundryResource
    from warehouse import Home

    from .. import verify as verification
    from ..instance import open_instance

    enable_interrupts()
    store, screen = Home(home), Console(stderr=True)
    damage, count = _find(store, jobs, screen)
    remaining = damage
    if repair and damage:
        foundry = FoundryResource(profile=profile, root=home)
        with open_instance(foundry.home, foundry.settings.cluster) as instance:
            work = verification.Repair(
                foundry, instance, lambda line: screen.print(line, soft_wrap=True, markup=False)
            )
            work.run(damage)
        remaining, count = _find(store, jobs, screen)
    files = {each.file for each in remaining}
    repaired = [each for each in damage if each.file not in files]
    if as_json:
        sys.stdout.buffer.write(verification.as_json(remaining, repaired))
    else:
        costs = verification.paid_for(store, remaining)
        for each in remaining:
            usd = costs.get(each.file)
            typer.echo(f"{each} (its calls cost {usd:.4g} USD)" if usd else str(each))
        notes = f", {len(repaired)} repaired; originals are in {work.folder}" if repaired else ""
        typer.echo(f"{count} files verified: {len(remaining)} damaged{notes}")
    if remaining:
        raise SystemExit(1)


def _find(home: "Home", jobs: int, screen: Console) -> "tuple[list[Damage], int]":
    """Damage, and the number of checks, with a progress bar on a terminal."""
    from warehouse.verify import find_damage

    from ..verify import all_checks

    checks = all_checks(home)
    with Progress(console=screen, disable=not screen.is_terminal) as bars:
        task = bars.add_task("Verifying", total=len(checks))
        return list(find_damage(checks, jobs, lambda: bars.advance(task))), len(checks)


DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Only list what would be done.")]


def compact(home: HomeOption = ".interleave", dry_run: DryRunOption = False) -> None:
    """Pack the images of finished shards, and compress their journals.

    Runs and services may go on meanwhile. Killed, it continues where it was.
    """
    from warehouse import Home
    from warehouse.compaction import compact

    total: Counter[str] = Counter()
    for done in compact(Home(home), dry_run):
        size = f"{done.bytes / 1e6:,.1f} MB"
        typer.echo(f"{done.shard}: {done.images} images ({size}), {done.journals} journals")
        total.update(shards=1, images=done.images, journals=done.journals)
    if not total:
        typer.echo("Nothing to do: finished shards are packed, unfinished ones stay as they are.")
        return
    counts = "{images} images of {shards} shards, {journals} journals".format_map(total)
    typer.echo(f"{counts} {'would be packed' if dry_run else 'packed'}")


def gc(
    profile: ProfileOption = "sketch",
    home: HomeOption = ".interleave",
    dry_run: DryRunOption = False,
    grace: Annotated[
        str,
        typer.Option(help="Files that nothing refers to stay so long: days (7d) or hours (48h)."),
    ] = "7d",
) -> None:
    """Remove images that nothing refers to, responses beyond `service.retention`, and checkpoints
    that trainers of published models left behind.

    Tables, journals, logs, stored responses, reviews, checkpoints and exports are searched for what
    they refer to.
    """
    from assets.core.profile import load_profile
    from training.registry import CheckpointRegistry
    from warehouse import Home
    from warehouse.garbage import collect_garbage

    seconds, lake, settings = _seconds(grace), Home(home), load_profile(profile)
    _apply_retention(settings, lake, dry_run)
    counts: Counter[str] = Counter()
    size = 0
    left_behind = CheckpointRegistry(lake).collect_working_files(dry_run)
    for garbage in chain(collect_garbage(lake, seconds, dry_run), left_behind):
        if dry_run:
            typer.echo(f"{garbage.kind}  {garbage.where}")
        counts[garbage.kind] += 1
        size += garbage.bytes
    found = ", ".join(f"{kind}: {count}" for kind, count in counts.items()) or "no garbage"
    done = "would be removed" if dry_run else "removed"
    typer.echo(f"{found}; {size / 1e6:,.1f} MB {done}")


def _apply_retention(profile: "Profile", home: "Home", dry_run: bool) -> None:
    from inference.generation.agent_resolver import AgentResolver
    from inference.service import app
    from inference.service.response_store import ResponseStore

    service = profile.service
    if not service.retention.is_set or not app.has_responses(home):
        return
    if dry_run:
        store = ResponseStore(home)
        expired = len(store.expired(service.retention))
        store.close()
        typer.echo(f"{expired} responses would be deleted (service.retention)")
        return
    if app.is_running(home):
        typer.echo("A service runs: it applies service.retention itself, once a day")
        return

    async def apply() -> int:
        resolver = AgentResolver(profile, home, service.agents)
        async with app.open_service(home, resolver, profile.limits, service) as manager:
            return await manager.apply_retention()

    typer.echo(f"{asyncio.run(apply())} responses deleted (service.retention)")


def _seconds(grace: str) -> float:
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([dh])", grace)
    seconds = float(found[1]) * _UNITS[found[2]] if found else 0
    if seconds < _SHORTEST_GRACE_DAYS * _UNITS["d"]:
        raise FoundryError(
            f"--grace is {grace!r}: give days (7d) or hours (48h), at least "
            f"{_SHORTEST_GRACE_DAYS}d, since what refers to a new image may not be written yet"
        )
    return seconds
