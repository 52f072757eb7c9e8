"""Profiles: what differs at a size, and from a profile that one is based on."""

import re

import pytest

from assets.core.foundry import FoundryResource
from assets.core.profile import load_profile
from schemas import DocumentError, FoundryError
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


def test_a_size_with_another_budget_alone_is_not_reduced(profile, tmp_path):
    def reduced(text, size="demo"):
        file, root = profile(text), str(tmp_path / "lake")
        load_profile.cache_clear()
        return FoundryResource(profile=file, root=root, size=size).reduced

    assert reduced(PROFILE) and not reduced(PROFILE, "full")
    assert not reduced(PROFILE.replace("{evaluation: {redraws: 1}}", "{budget: {usd: 5}}"))


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


def test_a_profile_says_what_differs_from_its_base(profile, tmp_path):
    sketch, own = (
        load_profile("sketch"),
        load_profile(profile("base: sketch\nname: own\nloop: {t_max: 2}\n")),
    )
    assert (own.name, own.loop.t_max) == ("own", 2)
    changed = {"name", "loop"}
    assert own.model_dump(exclude=changed) == sketch.model_dump(exclude=changed)
    last = tmp_path / "last.yaml"
    last.write_text(f"base: {profile()}\nsize_changes: {{demo: {{evaluation: {{redraws: 2}}}}}}\n")
    assert load_profile(str(last)).at_size("demo").evaluation.redraws == 2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("base: nothing", "no profile 'nothing'"),
        ("base: sketch\nloop: {tmax: 2}", "sized.yaml:2: loop.tmax"),
        ("base: {file}", "base: name a profile, or the path of a .yaml file, not this one"),
        ("base: [sketch]", "base: name a profile"),
    ],
)
def test_a_wrong_base_is_named(profile, tmp_path, text, message):
    file = tmp_path / "sized.yaml"
    with pytest.raises(FoundryError, match=re.escape(message)):
        load_profile(profile(text.replace("{file}", str(file))))
