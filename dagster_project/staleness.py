"""Whether a node's last materialization is up to date."""

import dagster as dg

from assets.core.foundry import FoundryResource
from assets.core.node import DATA_VERSION_TAG, FINGERPRINT, Node


def is_up_to_date(
    node: Node, foundry: FoundryResource, instance: dg.DagsterInstance, partition: str | None = None
) -> bool:
    """Whether the run that last made a node succeeded, its fingerprint (code, settings, inputs) is
    unchanged, and what it wrote is still there."""
    records = instance.fetch_materializations(
        dg.AssetRecordsFilter(
            asset_key=dg.AssetKey(node.name), asset_partitions=[partition] if partition else None
        ),
        limit=1,
    ).records
    if not records or not records[0].asset_materialization:
        return False
    tags = records[0].asset_materialization.tags or {}
    if tags.get(FINGERPRINT) != node.fingerprint(foundry, instance, partition):
        return False
    if tags.get(DATA_VERSION_TAG) != node.data_version(foundry, partition):
        return False
    run = instance.get_run_by_id(records[0].run_id)
    return run is not None and run.status == dg.DagsterRunStatus.SUCCESS
