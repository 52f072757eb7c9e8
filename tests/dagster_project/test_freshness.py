"""The freshness policies of what schedules promise, evaluated by Dagster's own daemon."""

import sys
from datetime import datetime, timedelta

import dagster as dg
import pytest
from dagster._core.definitions.freshness import FreshnessState
from dagster._core.remote_origin import InProcessCodeLocationOrigin
from dagster._core.test_utils import InProcessTestWorkspaceLoadTarget, freeze_time
from dagster._core.types.loadable_target_origin import LoadableTargetOrigin
from dagster._core.workspace.context import WorkspaceProcessContext
from dagster._daemon.freshness import FreshnessDaemon

from dagster_project.stages import FRESHNESS

pytestmark = pytest.mark.slow
KEYS = [dg.AssetKey(name) for name in FRESHNESS]


@pytest.fixture
def workspace(instance):
    """The code location of `interleave ui`, in this process."""
    code = LoadableTargetOrigin(
        executable_path=sys.executable, module_name="dagster_project.definitions"
    )
    target = InProcessTestWorkspaceLoadTarget(InProcessCodeLocationOrigin(code))
    with WorkspaceProcessContext(instance, target) as workspace:
        yield workspace


@pytest.fixture
def states(instance, workspace):
    """The states that an iteration of the daemon stores, so many days from now."""

    def states(days: float = 0) -> dict[str, FreshnessState]:
        with freeze_time(datetime.now().astimezone() + timedelta(days=days)):
            list(FreshnessDaemon().run_iteration(workspace))
        records = instance.get_freshness_state_records(KEYS)
        return {key.to_user_string(): record.freshness_state for key, record in records.items()}

    return states


def test_states_follow_from_the_last_materialization(instance, states):
    unknown, fresh, old, stale = (FreshnessState[n] for n in ("UNKNOWN", "PASS", "WARN", "FAIL"))
    nightly = ["scores", "exports", "generations"]

    def expected(*states):
        return dict.fromkeys(nightly, states[0]) | dict(
            zip(("rounds", "promotion"), states[1:], strict=True)
        )

    assert instance.freshness_enabled, "the daemon of `interleave ui` evaluates them"
    assert states() == expected(unknown, unknown, unknown)
    for key in KEYS:
        instance.report_runless_asset_event(dg.AssetMaterialization(key))
    assert states() == expected(fresh, fresh, fresh)
    assert states(days=3) == expected(old, fresh, fresh)
    assert states(days=9) == expected(stale, old, fresh)
    assert states(days=31) == expected(stale, stale, old)
    assert states(days=61) == expected(stale, stale, stale)
    instance.report_runless_asset_event(dg.AssetMaterialization("scores", partition="s-0000"))
    assert states(days=1) == expected(fresh, fresh, fresh)
