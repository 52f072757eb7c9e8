"""Blocking Dagster checks from rules: one multi-check per asset, each rule with its violations.

A check of a partitioned asset reads the partition of its run; outside one, the whole table.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import partial

import dagster as dg

from .foundry import FoundryResource
from .integrity import Violations, dangling_references, repeated_rows
from .metadata import table_metadata
from .node import Node

Rule = Callable[[FoundryResource, str | None], Violations]


def blocking_checks(node: Node, **rules: tuple[str, Rule]) -> dg.AssetChecksDefinition:
    """Key and reference checks of a node's tables, and its own rules, each with a description."""
    all_rules: dict[str, tuple[str, Rule]] = {
        "keys_unique": ("Every key occurs once", partial(_duplicates, node)),
        "references_hold": ("Every row that a row refers to exists", partial(_dangling, node)),
        **rules,
    }
    specs = [
        dg.AssetCheckSpec(name, asset=node.name, blocking=True, description=description)
        for name, (description, _) in all_rules.items()
    ]

    # `can_subset`: a single check can be executed again from the UI.
    @dg.multi_asset_check(name=f"{node.name}_checks", specs=specs, can_subset=True)
    def checks(
        context: dg.AssetCheckExecutionContext, foundry: FoundryResource
    ) -> Iterator[dg.AssetCheckResult]:
        partition = partition_of(context.run.tags) if node.is_partitioned else None
        selected = {key.name for key in context.selected_asset_check_keys}
        for name, (_, rule) in all_rules.items():
            if name in selected:
                violations = rule(foundry, partition)
                metadata = {"broken": table_metadata(violations)} if violations else {}
                yield dg.AssetCheckResult(
                    passed=not violations, asset_key=node.name, check_name=name, metadata=metadata
                )

    return checks


def partition_of(tags: Mapping[str, str]) -> str | None:
    """The partition of a run, by its tags: that of a backfill has a range, of one partition.

    (`partition_key` of a check's context raises in an unpartitioned run.)
    """
    return tags.get("dagster/partition") or tags.get("dagster/asset_partition_range_start")


def _duplicates(node: Node, foundry: FoundryResource, shard: str | None) -> Violations:
    partitions, lake = [shard] if shard else None, foundry.home.lake
    keys = (lake.read(table, partitions, columns=list(table.key)) for table in node.tables)
    return [row for data in keys for row in repeated_rows(data)]


def _dangling(node: Node, foundry: FoundryResource, shard: str | None) -> Violations:
    lake = foundry.home.lake
    return [row for table in node.tables for row in dangling_references(table, lake, shard)]
