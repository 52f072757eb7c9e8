"""Registered checkpoints without weights."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

from schemas.training import CheckpointRow, CheckpointStatus


def checkpoint_row(
    name: str, version: str, folder: Path, status: CheckpointStatus = "candidate", day: int = 0
) -> CheckpointRow:
    """One that was made on some day of a year."""
    return CheckpointRow(
        name=name,
        version=version,
        parent=None,
        dataset_version="rows",
        config_hash="config",
        metrics="{}",
        status=status,
        uri=str(folder),
        created_at=datetime(2026, 1, 1, tzinfo=UTC) + timedelta(days=day),
    )
