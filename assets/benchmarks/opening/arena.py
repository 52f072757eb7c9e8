"""Comparisons of OpENING's arena, judged by any model: how far does it agree with people?"""

import asyncio
from collections.abc import Sequence
from pathlib import Path

from inference.calls.ask import QuestionCalls
from inference.calls.hashing import stable_hash
from inference.calls.progress import Progress
from inference.questions import Respondent
from inference.roles import qualified_name
from inference.settings import Limits
from schemas import FoundryError
from schemas.trajectories import MODEL_CALLS
from warehouse import Home

from ..benchmark import JudgeCall
from ..judging import ask
from .items import OpeningItem, load, load_images
from .judge import Verdict, compare_call, parse_verdict
from .layout import OutputFolder
from .scores import Duel

ASSET = "benchmark_agreement"


async def judge_duels(
    home: Home,
    source: Path,
    answers: Path,
    duels: Sequence[Duel],
    judge: Respondent,
    limits: Limits,
    tries: int,
    progress: Progress,
) -> list[Duel]:
    """The same comparisons with the verdicts of a judge; None: its answer could not be read.

    Args:
        source: a copy of the official repository.
        answers: the folder with a `<system>_output` of every system.

    Raises:
        FoundryError: an item, an answer or a picture is missing, or the judge gave no answer to a
            call; finished calls are journaled.
    """
    items = {item.total_uid: item for item in load(source)}
    shard = f"opening-{stable_hash('judge', qualified_name(judge))[:8]}"
    with QuestionCalls(home, ASSET, shard, judge, limits) as calls:

        async def judge_one(duel: Duel) -> Duel:
            call = await asyncio.to_thread(_call, source, answers, items, duel)
            judged = await ask(calls, duel.item_id, call, _parse, tries)
            return Duel(duel.item_id, duel.system_a, duel.system_b, judged.value)  # type: ignore[arg-type]

        try:
            return await calls.map(judge_one, duels, limits.agents, progress)
        finally:
            home.lake.write(MODEL_CALLS, calls.ledger(), f"{ASSET}-{shard}")


def _parse(_call: str, text: str) -> Verdict | None:
    return parse_verdict(text)


def _call(source: Path, answers: Path, items: dict[str, OpeningItem], duel: Duel) -> JudgeCall:
    item = items.get(duel.item_id)
    if item is None:
        raise FoundryError(f"{source}: has no item {duel.item_id}, which is compared")
    pair = []
    for system in (duel.system_a, duel.system_b):
        folder = OutputFolder(answers, system)
        answer = folder.read(duel.item_id)
        if answer is None:
            raise FoundryError(f"{folder.path}: has no answer to item {duel.item_id}; unpack it")
        pair.append(answer)
    return compare_call(item, load_images(source, item), *pair)
