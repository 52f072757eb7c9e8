"""Verdicts of another critic or scorer on recorded attempts, through a journal a shard."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from inference.calls.ask import ModelCalls
from inference.calls.progress import Progress
from inference.roles import Roles, UnusableAnswerError
from inference.settings import Limits
from schemas.trajectories import MODEL_CALLS
from warehouse import Home

from .recorded import AttemptKey, Chain, RecordedAttempt

ASSET = "replay"
Verdicts = dict[AttemptKey, bool]
"""Attempt -> whether it is accepted; those without a readable answer are missing."""


@dataclass(frozen=True)
class AttemptJudge:
    """Asks the critic, or the scorer, of `roles`; finished calls are journaled, and never repeated.

    Args:
        accept_at_least: overall score and quality from which on a scorer accepts; None: the
            critic is asked.
    """

    home: Home
    roles: Roles
    limits: Limits
    accept_at_least: float | None = None

    async def verdicts(self, chains: Sequence[Chain], progress: Progress) -> Verdicts:
        """Verdicts on all attempts, and their calls in the ledger.

        Raises:
            FoundryError: a call failed after all retries.
        """
        shards: dict[str, list[RecordedAttempt]] = defaultdict(list)
        for chain in chains:
            shards[chain[0].shard] += chain
        verdicts: Verdicts = {}
        for shard, attempts in shards.items():
            verdicts |= await self._judge_shard(shard, attempts, progress)
        return verdicts

    async def _judge_shard(
        self, shard: str, attempts: Sequence[RecordedAttempt], progress: Progress
    ) -> Verdicts:
        found: Verdicts = {}
        with ModelCalls(self.home, ASSET, shard, self.roles, self.limits) as calls:

            async def judge(attempt: RecordedAttempt) -> None:
                try:
                    found[attempt.key] = await self._accepts(calls, attempt)
                except UnusableAnswerError:
                    return

            await calls.map(judge, attempts, self.limits.in_flight, progress)
            self.home.lake.write(MODEL_CALLS, calls.ledger(), f"{ASSET}-{shard}")
        return found

    async def _accepts(self, calls: ModelCalls, attempt: RecordedAttempt) -> bool:
        source = attempt.source_image
        before = await calls.image(source) if source else None
        after = await calls.image(attempt.image)
        if self.accept_at_least is None:
            asked = (attempt.site, before, after, attempt.goal, attempt.rewritten)
            return (await calls.judge(*asked)).answer.accepted
        score = (await calls.score(attempt.site, before, after, attempt.goal)).score
        return min(score.overall, score.quality) >= self.accept_at_least
