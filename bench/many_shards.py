"""A home with thousands of finished shards of one prompt each, made without calling a model.

Prompts are real ones; plans, trajectories, attempts and scores are synthetic, and their
materializations are written into Dagster's history as runs of theirs would have left them.
"""

import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from unittest.mock import patch
from uuid import uuid4

import dagster as dg
import sqlalchemy as db
from dagster._core.events import StepMaterializationData
from dagster._core.events.log import EventLogEntry
from dagster._core.storage.event_log import SqlEventLogStorage, SqlEventLogStorageTable
from dagster._core.storage.runs import SqlRunStorage
from dagster._core.storage.runs.schema import RunsTable
from dagster_shared.serdes import serialize_value
from PIL import Image

from assets.core.foundry import SHARDS, FoundryResource
from assets.core.node import DATA_VERSION_TAG, FINGERPRINT, NODES
from schemas import Row, Table
from schemas.prompts import PROMPTS, PromptRow
from schemas.trajectories import (
    ATTEMPTS,
    PLANS,
    SCORES,
    TRAJECTORIES,
    AttemptRow,
    PlanRow,
    ScoreRow,
    TrajectoryRow,
)
from warehouse import EncodedImage

SHARD_NODES = ("plans", "trajectories", "scores")
_PROFILE = """
name: many-shards
description: Shards of one prompt
roles: {planner: sketch, generator: sketch, critic: sketch, scorer: sketch}
pack: sketchbook
sizes: {demo: 1}
bank: {shard_size: 1}
"""


def write_profile(folder: Path) -> str:
    """A profile whose shards have one prompt; its path."""
    path = folder / "many_shards.yaml"
    path.write_text(_PROFILE)
    return str(path)


def synthesize_shards(
    foundry: FoundryResource, instance: dg.DagsterInstance, shards: Sequence[str]
) -> None:
    """Rows and materializations of some shards whose prompts are in the bank."""
    image = EncodedImage.of(Image.new("RGB", (32, 32), "white"))
    foundry.home.images.put(image)
    with patch("os.fsync"):  # it would take most of the time, and nobody needs these rows
        for prompt in (prompt for shard in shards for prompt in foundry.rows(PROMPTS, shard)):
            for table, rows in _rows_of(prompt, image.sha256).items():
                foundry.home.lake.write(table, rows, prompt.shard)
    for node in SHARD_NODES:
        report_materializations(foundry, instance, node, shards)


def report_materializations(
    foundry: FoundryResource, instance: dg.DagsterInstance, node: str, partitions: Sequence[str]
) -> None:
    """For each partition a successful run, and the event by which the node is up to date."""
    instance.add_dynamic_partitions(str(SHARDS.name), partitions)
    fingerprints = NODES[node].fingerprints(foundry, instance, partitions)
    versions = NODES[node].data_versions(foundry, partitions)
    _report(instance, node, {name: (fingerprints[name], versions[name]) for name in partitions})


def report_materialization(
    foundry: FoundryResource, instance: dg.DagsterInstance, node: str
) -> None:
    """The same for a node without partitions, with what its tables hold now."""
    fingerprint = NODES[node].fingerprint(foundry, instance, None)
    _report(instance, node, {None: (fingerprint, NODES[node].data_version(foundry, None))})


def _report(
    instance: dg.DagsterInstance, node: str, made: Mapping[str | None, tuple[str, str]]
) -> None:
    """Store runs and events of some partitions, whose fingerprints and versions are given."""
    runs, events = [], []
    for name, (fingerprint, version) in made.items():
        tags = {FINGERPRINT: fingerprint, DATA_VERSION_TAG: version}
        runs.append(_finished_run(name))
        events.append(_event(runs[-1], dg.AssetMaterialization(node, partition=name, tags=tags)))
    _store(instance, runs, events)


def _store(
    instance: dg.DagsterInstance, runs: Sequence[dg.DagsterRun], events: Sequence[EventLogEntry]
) -> None:
    """In one transaction for all, where Dagster has one for each."""
    history, log = instance.run_storage, instance.event_log_storage
    assert isinstance(history, SqlRunStorage) and isinstance(log, SqlEventLogStorage)
    with history.connect() as connection:
        connection.execute(RunsTable.insert(), [_run_columns(run) for run in runs])
    with log.index_transaction() as connection:
        connection.execute(
            SqlEventLogStorageTable.insert(), [log._event_to_row(event) for event in events]
        )
        columns, runs_of_these = SqlEventLogStorageTable.c, {run.run_id for run in runs}
        stored = connection.execute(db.select(columns.run_id, columns.id))
        ids = {row.run_id: row.id for row in stored if row.run_id in runs_of_these}
        event_ids = [ids[event.run_id] for event in events]
        log._store_asset_event_tags(connection, events, event_ids)
        log._store_asset_event(connection, events[-1], event_ids[-1])


def _run_columns(run: dg.DagsterRun) -> dict[str, object]:
    return {
        "run_id": run.run_id,
        "pipeline_name": run.job_name,
        "status": run.status.value,
        "run_body": serialize_value(run),
        "partition": run.tags.get("dagster/partition"),
        "create_timestamp": datetime.now(UTC),
    }


def _finished_run(partition: str | None) -> dg.DagsterRun:
    return dg.DagsterRun(
        job_name="many_shards",
        run_id=str(uuid4()),
        status=dg.DagsterRunStatus.SUCCESS,
        tags={"dagster/partition": partition} if partition else {},
    )


def _event(run: dg.DagsterRun, materialization: dg.AssetMaterialization) -> EventLogEntry:
    event = dg.DagsterEvent(
        event_type_value=dg.DagsterEventType.ASSET_MATERIALIZATION.value,
        job_name=run.job_name,
        event_specific_data=StepMaterializationData(materialization),
    )
    return EventLogEntry(
        user_message="",
        level="INFO",
        job_name=run.job_name,
        run_id=run.run_id,
        error_info=None,
        timestamp=time.time(),
        dagster_event=event,
    )


def _rows_of(prompt: PromptRow, image: str) -> dict[Table, list[Row]]:
    """Two steps; the first is accepted at its second attempt."""
    ids = {"prompt_id": prompt.prompt_id, "shard": prompt.shard}
    run = {**ids, "trajectory_id": f"{prompt.prompt_id}-run"}
    plan_id = f"{prompt.prompt_id}-plan"
    places = [(1, 0), (1, 1), (2, 0)]
    return {
        PLANS: [
            PlanRow(
                **ids,
                plan_id=plan_id,
                planner="bench",
                reasoning="One after the other.",
                step_number=step,
                step_name=f"Part {step}",
                instruction=f"Add part {step}",
                prompt=f"Add part {step} of {prompt.text}",
                auxiliary_text=None,
            )
            for step in (1, 2)
        ],
        TRAJECTORIES: [
            TrajectoryRow(
                **run,
                plan_id=plan_id,
                status="complete",
                on_exhausted="last",
                t_max=3,
                steps=2,
                attempts=3,
                error=None,
            )
        ],
        ATTEMPTS: [_attempt(run, prompt.text, image, *place) for place in places],
        SCORES: [_score(run, *place) for place in places],
    }


def _attempt(run: dict[str, str], text: str, image: str, step: int, iteration: int) -> AttemptRow:
    accepted = (step, iteration) != (1, 0)
    return AttemptRow(
        **run,
        step_number=step,
        iteration=iteration,
        prompt=f"Add part {step} of {text}, try {iteration}",
        source_image=image if step > 1 else None,
        image=image,
        seed=iteration,
        accepted=accepted,
        chosen=accepted,
        refined_prompt="" if accepted else "Add part 1, try 1",
        reasoning="I compare the images.",
        generator="bench",
        critic="bench",
        generator_seconds=0.5,
        critic_seconds=0.2,
    )


def _score(run: dict[str, str], step: int, iteration: int) -> ScoreRow:
    return ScoreRow(
        **run,
        step_number=step,
        iteration=iteration,
        **dict.fromkeys(_GRADES, 5.0 + 4 * ((step, iteration) != (1, 0))),
        over_edit=10.0,
        artifacts=10.0,
        scorer="bench",
    )


_GRADES = ("edit_success", "naturalness", "semantics", "quality", "overall")
