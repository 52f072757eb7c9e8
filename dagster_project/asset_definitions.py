"""Every asset and check below `assets`."""

import warnings
from datetime import timedelta
from typing import cast

import dagster as dg

import assets

# Later than this, the UI marks them as stale: no new data, or no training.
FRESHNESS = {
    "exports": dg.FreshnessPolicy.time_window(timedelta(days=7), warn_window=timedelta(days=2)),
    "promotion": dg.FreshnessPolicy.time_window(timedelta(days=60), warn_window=timedelta(days=30)),
}


def _assets() -> list[dg.AssetsDefinition]:
    """Every asset below `assets`, with its source file and, if it has one, its freshness policy."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dg.BetaWarning)
        loaded = dg.with_source_code_references(dg.load_assets_from_package_module(assets))
    definitions = cast("list[dg.AssetsDefinition]", loaded)
    return [definition.map_asset_specs(_with_freshness) for definition in definitions]


def _with_freshness(spec: dg.AssetSpec) -> dg.AssetSpec:
    policy = FRESHNESS.get(spec.key.to_user_string())
    return dg.apply_freshness_policy(spec, policy) if policy else spec


ASSETS = _assets()
CHECKS = dg.load_asset_checks_from_package_module(assets)
