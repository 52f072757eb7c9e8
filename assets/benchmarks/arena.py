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

from .benchmark import Answer, JudgeCall
from .judging import ask
from .opening import SUFFIX, Duel, Opening, read_answer

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
    benchmark = Opening(source)
    shard = f"opening-{stable_hash('judge', qualified_name(judge))[:8]}"
    with QuestionCalls(home, ASSET, shard, judge, limits) as calls:

        async def judge_one(duel: Duel) -> Duel:
            call = await asyncio.to_thread(_call, benchmark, answers, duel)
            judged = await ask(calls, duel.item_id, call, benchmark.parse, tries)
            return Duel(duel.item_id, duel.system_a, duel.system_b, judged.value)  # type: ignore[arg-type]

        try:
            return await calls.map(judge_one, duels, limits.agents, progress)
        finally:
            home.lake.write(MODEL_CALLS, calls.ledger(), f"{ASSET}-{shard}")


def _call(benchmark: Opening, answers: Path, duel: Duel) -> JudgeCall:
    pair = [_answer(answers, system, duel.item_id) for system in (duel.system_a, duel.system_b)]
    return benchmark.compare(duel.item_id, *pair)


def _answer(answers: Path, system: str, item_id: str) -> Answer:
    folder = answers / f"{system}{SUFFIX}"
    answer = read_answer(folder, item_id)
    if answer is None:
        raise FoundryError(f"{folder}: has no answer to item {item_id}; unpack it")
    return answer
