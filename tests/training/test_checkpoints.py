"""The registry: which version is in use, after promotions, rejections, rollbacks and crashes."""

import json
import subprocess
import sys
from itertools import pairwise

import pytest

from inference.backends.checkpoint.manifest import MANIFEST_FILE, CheckpointError, promoted_agents
from schemas.training import CHECKPOINTS
from tests.helpers.checkpoint_rows import checkpoint_row
from training.registry import RECORD, CheckpointRegistry

NAME = "critic_rl_checkpoint"


@pytest.fixture
def registry(home):
    """Three versions, a to c, each with a folder."""
    registry = CheckpointRegistry(home)
    for day, version in enumerate("abc"):
        folder = registry.folder(NAME, version)
        folder.mkdir(parents=True)
        (folder / MANIFEST_FILE).write_text("{}")
        (folder / RECORD).write_text(json.dumps({"files": [MANIFEST_FILE]}))
        registry.register(checkpoint_row(NAME, version, folder, day=day))
    return registry


def statuses(registry):
    return {row.version: row.status for row in registry.rows(NAME)}


def test_a_trained_checkpoint_is_a_candidate(registry):
    assert statuses(registry) == {"a": "candidate", "b": "candidate", "c": "candidate"}
    assert registry.promoted(NAME) is None


def test_the_promoted_version_replaces_the_one_before(registry):
    registry.promote(NAME, "a", "first")
    assert registry.promote(NAME, "b", "better").status == "promoted"
    assert registry.promoted(NAME).version == "b"
    assert statuses(registry) == {"a": "candidate", "b": "promoted", "c": "candidate"}


def test_rolling_back_twice_returns_two_versions(registry):
    for version in "abc":
        registry.promote(NAME, version, "better")
    assert registry.roll_back(NAME, "bad in practice").version == "b"
    assert registry.roll_back(NAME, "this too").version == "a"
    assert statuses(registry) == {"a": "promoted", "b": "rejected", "c": "rejected"}
    with pytest.raises(CheckpointError, match="before a"):
        registry.roll_back(NAME, "and this")


def test_a_rolled_back_version_can_be_promoted_again(registry):
    for version in "ab":
        registry.promote(NAME, version, "better")
    registry.roll_back(NAME, "a mistake")
    registry.promote(NAME, "b", "the rollback was the mistake")
    assert registry.promoted(NAME).version == "b"
    assert registry.roll_back(NAME, "no, it was not").version == "a"


def test_rolling_back_a_version_that_was_promoted_twice_leaves_it(registry):
    for version in "aab":
        registry._append_change("promote", {NAME: version}, "by two processes at once")
    registry._append_change("promote", {NAME: "b"}, "by two processes at once")
    assert registry.roll_back(NAME, "bad").version == "a"
    assert statuses(registry) == {"a": "promoted", "b": "rejected", "c": "candidate"}
    with pytest.raises(CheckpointError, match="before a"):
        registry.roll_back(NAME, "and this")


def test_a_rollback_does_not_return_to_what_was_rolled_back_before(registry):
    for version in "aba":
        registry.promote(NAME, version, "to and fro")
    assert registry.roll_back(NAME, "bad").version == "b"
    with pytest.raises(CheckpointError, match="before b"):
        registry.roll_back(NAME, "and this")


CHANGE = """
import sys
from training.registry import CheckpointRegistry
from warehouse import Home
registry = CheckpointRegistry(Home(sys.argv[1]))
for _ in range(10):
    for version in "ab":
        registry.promote("critic_rl_checkpoint", version, "at the same time")
"""


@pytest.mark.slow
def test_processes_change_the_registry_one_after_the_other(registry):
    root = registry.home.root
    writers = [subprocess.Popen([sys.executable, "-c", CHANGE, root]) for _ in range(3)]
    assert [writer.wait(120) for writer in writers] == [0, 0, 0]
    versions = [event.version for event in registry.history(NAME)]
    assert all(one != other for one, other in pairwise(versions))
    assert statuses(registry)["b"] == "promoted"


def test_a_system_is_promoted_with_what_was_measured_of_it(registry):
    registry.promote_system({NAME: "a"}, "good", {"final_success": 0.8})
    event = registry.history(NAME)[-1]
    assert (event.system, event.means) == ({NAME: "a"}, {"final_success": 0.8})
    with pytest.raises(CheckpointError):
        registry.promote_system({NAME: "b", "planner_sft_checkpoint": "z"}, "half of it")
    assert registry.promoted(NAME).version == "a"


def test_promoting_the_promoted_version_changes_nothing(registry):
    registry.promote(NAME, "a", "first")
    registry.promote(NAME, "b", "better")
    registry.promote(NAME, "b", "again")
    assert [event.version for event in registry.history(NAME)] == ["a", "b"]


def test_a_rejected_version_leaves_the_promoted_one_in_use(registry):
    registry.promote(NAME, "a", "first")
    assert registry.reject(NAME, "b", "worse").status == "rejected"
    assert registry.promoted(NAME).version == "a"


def test_the_history_has_time_and_reason(registry):
    registry.promote(NAME, "a", "first of its name")
    event = registry.history(NAME)[-1]
    assert (event.action, event.why) == ("promote", "first of its name")
    assert event.at.tzinfo is not None


def test_registering_again_keeps_the_status(registry):
    registry.promote(NAME, "a", "first")
    registry.register(checkpoint_row(NAME, "a", registry.folder(NAME, "a")))
    assert statuses(registry)["a"] == "promoted"


def test_a_promotion_that_was_killed_halfway_is_finished_by_the_next_command(registry):
    registry.promote(NAME, "a", "first")
    registry._append_change("promote", {NAME: "b"}, "killed after the journal, before the table")
    assert registry.promoted(NAME).version == "b"
    registry.promote(NAME, "b", "again")
    assert statuses(registry) == {"a": "candidate", "b": "promoted", "c": "candidate"}


PLANNER = "planner_sft_checkpoint"


def pair(home):
    """What the service would load, and what the registry says, which never differ."""
    served = promoted_agents(home)
    registry = CheckpointRegistry(home)
    versions = {name: row.version for name in (PLANNER, NAME) if (row := registry.promoted(name))}
    assert {*served.values()} == {f"{name}@{version}" for name, version in versions.items()}
    return versions


@pytest.fixture
def systems(registry):
    """Two systems that were evaluated, a (in use) and b."""
    for version in "ab":
        folder = registry.folder(PLANNER, version)
        folder.mkdir(parents=True)
        (folder / RECORD).write_text(json.dumps({"files": []}))
        registry.register(checkpoint_row(PLANNER, version, folder))
    systems = [{PLANNER: version, NAME: version} for version in "ab"]
    registry.promote_system(systems[0], "first", {"final_success": 0.5})
    return systems


KILLED = """
import os, sys
from training.registry import CheckpointRegistry
from warehouse import Home
from warehouse.lake import Lake
from warehouse.journal import Journal
left = int(sys.argv[2])
def dying(method):
    def write(*args, **kwargs):
        global left
        if left == 0:
            os.kill(os.getpid(), 9)
        left -= 1
        return method(*args, **kwargs)
    return write
Lake.write, Journal.append = dying(Lake.write), dying(Journal.append)
system = {"planner_sft_checkpoint": "b", "critic_rl_checkpoint": "b"}
CheckpointRegistry(Home(sys.argv[1])).promote_system(system, "better", {"final_success": 0.6})
"""


@pytest.mark.slow
@pytest.mark.parametrize("writes", range(5))
def test_a_killed_promotion_never_leaves_a_pair_that_was_not_evaluated(registry, systems, writes):
    """Killed before its line in the journal, and before each of the four statuses."""
    root = registry.home.root
    killed = subprocess.run([sys.executable, "-c", KILLED, root, str(writes)], timeout=120)
    assert killed.returncode == -9
    assert pair(registry.home) == systems[writes > 0]
    registry.promote_system(systems[1], "again", {"final_success": 0.6})
    assert pair(registry.home) == systems[1]
    assert {row.name: row.version for row in registry.rows() if row.status == "promoted"} == (
        systems[1]
    )


def test_a_line_that_was_cut_off_promotes_neither(registry, systems):
    registry.promote_system(systems[1], "better", {"final_success": 0.6})
    path = registry.home.local / "journals" / "registry" / "changes.jsonl"
    path.write_bytes(path.read_bytes()[:-100])
    assert pair(registry.home) == systems[0]


def test_decisions_of_homes_from_before_the_common_journal_still_hold(registry, systems):
    """They have a journal per name, and the statuses in the table."""
    registry.home.journal("registry", "changes").remove()
    for name, version in systems[0].items():
        event = {"action": "promote", "version": version, "why": "first"}
        with registry.home.journal("promotions", name) as journal:
            journal.append(event | {"at": "2026-01-01T00:00:00+00:00"})
    assert pair(registry.home) == systems[0]
    registry.promote(NAME, "b", "better")
    assert pair(registry.home) == {PLANNER: "a", NAME: "b"}
    assert [event.version for event in registry.history(NAME)] == ["a", "b"]
    assert registry.roll_back(NAME, "bad").version == "a"
    assert pair(registry.home) == systems[0]


def test_unknown_and_incomplete_versions_are_not_promoted(registry):
    with pytest.raises(CheckpointError, match=f"no checkpoint {NAME}@z in .*; there are: {NAME}@a"):
        registry.promote(NAME, "z", "typo")
    (registry.folder(NAME, "a") / MANIFEST_FILE).unlink()
    with pytest.raises(CheckpointError, match="incomplete"):
        registry.promote(NAME, "a", "half of it")
    assert not registry.history(NAME)


def test_a_checkpoint_is_complete_while_row_and_files_exist(registry):
    assert registry.is_complete(NAME, "a") and not registry.is_complete(NAME, "z")
    about = registry.folder(NAME, "a") / MANIFEST_FILE
    about.unlink()
    about.symlink_to("gone")
    registry.home.lake.delete(CHECKPOINTS, f"{NAME}-b")
    assert not registry.is_complete(NAME, "a") and not registry.is_complete(NAME, "b")
