"""From rules to blocking Dagster checks: one multi-check per asset, each rule with its rows.

A check of a sharded asset looks at the shard of its run; without one, at the whole table.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import partial

import dagster as dg

from . import integrity
from .foundry import FoundryResource
from .node import Node, sample

Rule = Callable[[FoundryResource, str | None], integrity.Broken]


def blocking_checks(
    node: Node, rules: Mapping[str, tuple[str, Rule]] | None = None
) -> dg.AssetChecksDefinition:
    """Key and reference checks of a node's tables, and its own rules (name -> why, rule)."""
    every = {**_schema_rules(node), **(rules or {})}
    specs = [
        dg.AssetCheckSpec(name, asset=node.name, blocking=True, description=why)
        for name, (why, _) in every.items()
    ]

    # `can_subset`: a single check can be executed again from the UI.
    @dg.multi_asset_check(name=f"{node.name}_checks", specs=specs, can_subset=True)
    def checks(
        context: dg.AssetCheckExecutionContext, foundry: FoundryResource
    ) -> Iterator[dg.AssetCheckResult]:
        shard = _shard(context) if node.partitioned else None
        chosen = {key.name for key in context.selected_asset_check_keys}
        for name, (_, rule) in every.items():
            if name in chosen:
                yield _result(node, name, rule(foundry, shard))

    return checks


def schema_broken(
    node: Node, foundry: FoundryResource, shard: str | None = None
) -> integrity.Broken:
    """Rows of a node's tables that break keys or references."""
    return _duplicates(node, foundry, shard) + _dangling(node, foundry, shard)


def _schema_rules(node: Node) -> dict[str, tuple[str, Rule]]:
    return {
        "keys_unique": ("Every key occurs once", partial(_duplicates, node)),
        "references_hold": ("Every row that a row refers to exists", partial(_dangling, node)),
    }


def _duplicates(node: Node, foundry: FoundryResource, shard: str | None) -> integrity.Broken:
    broken: integrity.Broken = []
    for table in node.tables:
        data = foundry.home.lake.read(table, _partitions(shard), columns=list(table.key))
        broken += integrity.duplicate_keys(table, data)
    return broken


def _dangling(node: Node, foundry: FoundryResource, shard: str | None) -> integrity.Broken:
    broken: integrity.Broken = []
    for table in node.tables:
        columns = {c for reference in table.references for c in reference.columns}
        if columns:
            lake = foundry.home.lake
            data = lake.read(table, _partitions(shard), columns=sorted(columns))
            broken += integrity.dangling_references(table, data, lake, shard)
    return broken


def _partitions(shard: str | None) -> list[str] | None:
    return None if shard is None else [shard]


def _shard(context: dg.AssetCheckExecutionContext) -> str | None:
    # `partition_key` of a check's context raises in an unpartitioned run; the run's tag does not.
    return context.run.tags.get("dagster/partition")


def _result(node: Node, name: str, broken: integrity.Broken) -> dg.AssetCheckResult:
    metadata = {"broken": sample(broken)} if broken else {}
    return dg.AssetCheckResult(
        passed=not broken, asset_key=node.name, check_name=name, metadata=metadata
    )
