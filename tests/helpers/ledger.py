"""Rows of the ledger."""

from datetime import UTC, datetime, timedelta

from schemas.trajectories import ModelCallRow

START = datetime(2026, 11, 20, 12, tzinfo=UTC)


def model_call(number: int, **changes: object) -> ModelCallRow:
    """A critic's call of shard `a-0000`, 10 s after the one before, which took 2 s."""
    fields = {
        "call_id": f"{number}-{changes.get('asset', 'trajectories')}-{changes.get('shard', '')}",
        "asset": "trajectories",
        "shard": "a-0000",
        "prompt_id": f"prompt-{number}",
        "step_number": 1,
        "iteration": 0,
        "role": "critic",
        "backend": "openai",
        "model": "m-1",
        "request_hash": str(number),
        "input_tokens": 100,
        "output_tokens": 10,
        "images": 2,
        "seconds": 2.0,
        "cost_usd": 0.5,
        "cached": False,
        "retries": 0,
        "error": None,
        "started_at": START + timedelta(seconds=10 * number),
    }
    return ModelCallRow.model_validate(fields | changes)
