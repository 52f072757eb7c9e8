"""The calls of generator and scorer for rewards, as rows of `model_calls`."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from inference.calls.hashing import stable_hash
from inference.calls.retry import CallOutcome, summarize_error
from inference.roles import Backend
from schemas.trajectories import ModelCallRow, Role
from warehouse import Journal

CALLS = "reward-calls.jsonl"  # in the job's folder


@dataclass(frozen=True)
class RewardCalls:
    """Writes a line for every call of a training.

    Args:
        asset: that is trained.
        run: version of the checkpoint that is being trained.
    """

    asset: str
    run: str
    journal: Journal

    def record(
        self,
        role: Role,
        model: Backend,
        row_id: str,
        request: Mapping[str, Any],
        outcome: CallOutcome[Any],
    ) -> None:
        """Add a call that was answered or failed; `row_id`: the row that asked for it first."""
        sent = (value for name, value in request.items() if name != "text" and value is not None)
        images = sum(1 if isinstance(value, str) else len(value) for value in sent)
        digest = stable_hash(role, model.backend, model.model, dict(request))
        row = ModelCallRow(
            call_id=stable_hash(self.run, digest, outcome.started_at.isoformat()),
            asset=self.asset,
            shard=self.run,
            prompt_id=row_id,
            step_number=None,
            iteration=None,
            role=role,
            backend=model.backend,
            model=model.model,
            request_hash=digest,
            input_tokens=outcome.input_tokens,
            output_tokens=outcome.output_tokens,
            images=images + (role == "generator"),
            seconds=outcome.seconds,
            cost_usd=outcome.cost_usd,
            estimated_usd=outcome.estimated_usd,
            cached=False,
            retries=max(outcome.tries - 1, 0) + outcome.retries,
            error=summarize_error(outcome.error) if outcome.error else None,
            started_at=outcome.started_at,
        )
        self.journal.append(row.model_dump(mode="json"))


def reward_call_rows(journal: Path, prompts: Mapping[str, str]) -> list[ModelCallRow]:
    """The calls of a training; none without a journal.

    Args:
        prompts: row of `critic_rl` -> the prompt that it came from.
    """
    rows = [ModelCallRow.model_validate(record) for record in Journal(journal).records()]
    return [row.model_copy(update={"prompt_id": prompts.get(row.prompt_id, "")}) for row in rows]
