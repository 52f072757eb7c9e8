"""Rubrics of requests: one call per request, through a journal, so that each is written once."""

from collections.abc import Mapping
from dataclasses import dataclass

from schemas.trajectories import ModelCallRow
from warehouse import Home

from .calls.ask import CallSite, RubricCalls
from .calls.progress import Progress
from .calls.retry import summarize_error
from .roles import PlanRequest, Rubric, RubricWriter, UnusableAnswerError, uses_batch_api
from .settings import Limits

ASSET = "rubrics"


@dataclass(frozen=True)
class WrittenRubric:
    """The rubric of a request; `failure`: why there is none."""

    prompt_id: str
    rubric: Rubric | None
    failure: str | None = None


async def write_rubrics(
    requests: Mapping[str, PlanRequest],
    writer: RubricWriter,
    home: Home,
    pack: str,
    limits: Limits,
    progress: Progress,
) -> tuple[list[WrittenRubric], list[ModelCallRow]]:
    """Rubrics of requests (by prompt id), and the calls that were ever made for them.

    Raises FoundryError where the model gave no answer; finished calls are journaled.
    """

    async def write(prompt_id: str) -> WrittenRubric:
        try:
            result = await calls.write(CallSite(prompt_id), requests[prompt_id])
        except UnusableAnswerError as error:
            return WrittenRubric(prompt_id, None, summarize_error(error))
        return WrittenRubric(prompt_id, result.answer)

    with RubricCalls(home, ASSET, pack, writer, limits) as calls:
        workers = len(requests) if uses_batch_api(writer) else limits.agents
        return await calls.map(write, list(requests), workers, progress), calls.ledger()
