"""Profiles: what differs at a size."""

import pytest

from assets.core.foundry import FoundryResource
from assets.core.profile import load_profile
from schemas import DocumentError
from schemas.trajectories import TRAJECTORIES

PROFILE = """
name: sized
description: Fewer steps at first
roles: {planner: sketch, generator: sketch, critic: sketch, scorer: sketch}
pack: sketchbook
sizes: {demo: 1, full: 2}
evaluation: {redraws: 4}
size_changes: {demo: {evaluation: {redraws: 1}}}
"""


@pytest.fixture
def profile(tmp_path):
    def write(text=PROFILE):
        path = tmp_path / "sized.yaml"
        path.write_text(text)
        return str(path)

    return write


def test_a_size_changes_only_what_it_names(profile):
    full, demo = load_profile(profile()), load_profile(profile()).at_size("demo")
    assert (full.evaluation.redraws, demo.evaluation.redraws) == (4, 1)
    changed = {"evaluation", "size_changes"}
    assert demo.model_dump(exclude=changed) == full.model_dump(exclude=changed)


def test_a_lake_has_the_size_that_its_shards_have_reached(profile, tmp_path):
    def redraws(size=""):
        root = str(tmp_path / "lake")
        return FoundryResource(profile=profile(), root=root, size=size).settings.evaluation.redraws

    assert (redraws(), redraws("full")) == (1, 4)
    lake = FoundryResource(profile=profile(), root=str(tmp_path / "lake")).home.lake
    for shard in ("sketchbook-0000", "sketchbook-0001"):
        assert redraws() == 1
        lake.write(TRAJECTORIES, [], shard)
    assert (redraws(), redraws("demo")) == (4, 1)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ("{small: {}}", "size_changes.small: there is no such size"),
        ("{demo: {evaluation: {redrawn: 1}}}", "size_changes.demo.evaluation.redrawn"),
        ("{demo: {evaluation: {redraws: many}}}", "size_changes.demo.evaluation.redraws"),
    ],
)
def test_a_wrong_change_is_named(profile, wrong, message):
    text = PROFILE.replace("{demo: {evaluation: {redraws: 1}}}", wrong)
    with pytest.raises(DocumentError, match=message):
        load_profile(profile(text))
