"""The registry: which version is in use, after promotions, rejections, rollbacks and crashes."""

import json
import os
import subprocess
import sys
from itertools import pairwise

import pytest

from inference.backends.checkpoint.manifest import MANIFEST_FILE, RECORD, CheckpointError, promoted
from inference.backends.checkpoint.promotions import record
from schemas.training import CHECKPOINTS, SFT_CRITIC
from tests.helpers.checkpoint_rows import checkpoint_row
from training.registry import CheckpointRegistry

NAME = "critic_rl_checkpoint"
PLANNER = "planner_sft_checkpoint"


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


def test_the_promoted_version_replaces_the_one_before(registry):
    assert statuses(registry) == {"a": "candidate", "b": "candidate", "c": "candidate"}
    assert registry.promoted(NAME) is None
    registry.promote(NAME, "a", "first of its name")
    event = registry.history(NAME)[-1]
    assert (event.action, event.why) == ("promote", "first of its name")
    assert event.at.tzinfo is not None
    registry.register(checkpoint_row(NAME, "a", registry.folder(NAME, "a")))
    assert statuses(registry)["a"] == "promoted", "registering again keeps the status"
    assert registry.reject(NAME, "b", "worse").status == "rejected"
    assert registry.promoted(NAME).version == "a"
    assert registry.promote(NAME, "b", "better").status == "promoted"
    assert registry.promoted(NAME).version == "b"
    assert statuses(registry) == {"a": "candidate", "b": "promoted", "c": "candidate"}
    registry.promote(NAME, "b", "again")
    promotions = [event for event in registry.history(NAME) if event.action == "promote"]
    assert [event.version for event in promotions] == ["a", "b"]


def test_what_trainers_of_published_checkpoints_resumed_from_is_garbage(registry):
    published, running = (registry.job_folder(NAME, version) for version in ("a", "unpublished"))
    for job in (published, running):
        (job / "checkpoints" / "global_step_8").mkdir(parents=True)
        (job / "checkpoints" / "global_step_8" / "optimizer.pt").write_bytes(bytes(1000))
        (job / "checkpoints" / "trainer_log.jsonl").write_text("{}")
        (job / "rollouts.jsonl").write_text("{}")
        (job / "model").mkdir()
    weights = registry.folder(NAME, "a") / MANIFEST_FILE
    os.link(weights, published / "model" / MANIFEST_FILE)  # as published ones are
    dry = list(registry.collect_working_files(dry_run=True))
    assert sorted(each.bytes for each in dry) == [0, 1000]
    assert list(registry.collect_working_files()) == dry
    files = [path.name for path in published.rglob("*") if path.is_file()]
    assert sorted(files) == ["rollouts.jsonl", "trainer_log.jsonl"] and weights.exists()
    assert (running / "checkpoints" / "global_step_8" / "optimizer.pt").exists()
    assert list(registry.collect_working_files()) == []


def test_rolling_back_twice_returns_two_versions(registry):
    for version in "abc":
        registry.promote(NAME, version, "better")
    assert registry.roll_back(NAME, "bad in practice").version == "b"
    assert registry.roll_back(NAME, "this too").version == "a"
    assert statuses(registry) == {"a": "promoted", "b": "rejected", "c": "rejected"}
    with pytest.raises(CheckpointError, match="before a"):
        registry.roll_back(NAME, "and this")


def test_of_the_critics_the_last_one_promoted_is_in_use(registry):
    """Supervised or reinforced: a rollback returns to the one before, whichever that was."""
    folder = registry.folder(SFT_CRITIC, "s")
    folder.mkdir(parents=True)
    (folder / RECORD).write_text('{"files": []}')
    registry.register(checkpoint_row(SFT_CRITIC, "s", folder))
    registry.promote(SFT_CRITIC, "s", "first of its role")
    registry.promote(NAME, "a", "better")
    assert promoted(registry.home)["critic"] == f"{NAME}@a"
    assert registry.promoted(SFT_CRITIC) is None
    assert registry.find(SFT_CRITIC, "s").status == "candidate"
    with pytest.raises(CheckpointError, match=f"{SFT_CRITIC} is not in use, {NAME} is"):
        registry.roll_back(SFT_CRITIC, "it never was, now")
    assert registry.roll_back(NAME, "bad in practice").name == SFT_CRITIC
    assert registry.promoted(SFT_CRITIC).status == "promoted"
    assert statuses(registry)["a"] == "rejected"


def test_roll_backs_pass_over_what_was_rolled_back_or_promoted_twice(registry):
    for version in "ab":
        registry.promote(NAME, version, "better")
    registry.roll_back(NAME, "a mistake")
    registry.promote(NAME, "b", "the rollback was the mistake")
    registry.promote(NAME, "a", "to and fro")
    assert registry.promoted(NAME).version == "a"
    assert registry.roll_back(NAME, "bad").version == "b"
    with pytest.raises(CheckpointError, match="before b"):
        registry.roll_back(NAME, "and this")


def test_rolling_back_a_version_that_was_promoted_twice_leaves_it(registry):
    for version in "aabb":
        record(registry.home, "promote", {NAME: version}, "by two processes at once")
    assert registry.roll_back(NAME, "bad").version == "a"
    assert statuses(registry) == {"a": "promoted", "b": "rejected", "c": "candidate"}
    with pytest.raises(CheckpointError, match="before a"):
        registry.roll_back(NAME, "and this")


CHANGE = """
import sys
from training.registry import CheckpointRegistry
from warehouse import Home
registry = CheckpointRegistry(Home(sys.argv[1]))
for _ in range(4):
    for version in "ab":
        registry.promote("critic_rl_checkpoint", version, "at the same time")
"""


@pytest.mark.slow
def test_processes_change_the_registry_one_after_the_other(registry):
    root = registry.home.root
    writers = [subprocess.Popen([sys.executable, "-c", CHANGE, root]) for _ in range(2)]
    assert [writer.wait(120) for writer in writers] == [0, 0]
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


def test_planner_and_critic_are_promoted_at_once(registry, monkeypatch):
    """Killed before the table is written, the service uses both or none of them."""
    folder = registry.folder(PLANNER, "p")
    folder.mkdir(parents=True)
    (folder / RECORD).write_text('{"files": []}')
    registry.register(checkpoint_row(PLANNER, "p", folder))

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(CheckpointRegistry, "_update_statuses", killed)
    with pytest.raises(KeyboardInterrupt):
        registry.promote_system({PLANNER: "p", NAME: "a"}, "good", {"final_success": 0.8})
    in_use = {"planner": f"{PLANNER}@p", "critic": f"{NAME}@a"}
    assert promoted(registry.home) == in_use
    assert len(list(registry.home.journal("promotions", "registry").records())) == 1


def test_a_promotion_that_was_killed_halfway_is_finished_by_the_next_command(registry):
    registry.promote(NAME, "a", "first")
    record(registry.home, "promote", {NAME: "b"}, "killed after the journal, before the table")
    assert registry.promoted(NAME).version == "b"
    assert promoted(registry.home)["critic"] == f"{NAME}@b"  # what the service would use
    registry.promote(NAME, "b", "again")
    assert statuses(registry) == {"a": "candidate", "b": "promoted", "c": "candidate"}


def test_what_is_unknown_or_incomplete_is_not_promoted(registry):
    with pytest.raises(CheckpointError, match=f"no checkpoint {NAME}@z in .*; there are: {NAME}@a"):
        registry.promote(NAME, "z", "typo")
    assert registry.is_complete(NAME, "a") and not registry.is_complete(NAME, "z")
    about = registry.folder(NAME, "a") / MANIFEST_FILE
    about.unlink()
    with pytest.raises(CheckpointError, match="incomplete"):
        registry.promote(NAME, "a", "half of it")
    about.symlink_to("gone")
    registry.home.lake.delete(CHECKPOINTS, f"{NAME}-b")
    assert not registry.is_complete(NAME, "a") and not registry.is_complete(NAME, "b")
    assert not registry.history(NAME)
