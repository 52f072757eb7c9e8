"""What components add to profiles, and the errors of those that contradict a profile."""

import pytest
import yaml

from assets.core import additions
from assets.core.profile import Profile, load_profile
from assets.prompts.pack_loader import load_pack
from dagster_project import components
from schemas import DocumentError, FoundryError
from tests.dagster_project.conftest import tiny_foundry

SERVER = {"kind": "images", "model": "sketch", "gpus": 0}
ROWS = {"kind": "planner_sft", "file": "plans.jsonl"}


@pytest.fixture
def add(tmp_path, monkeypatch):
    """Writes a component; what it brings is in profiles that are read later."""
    monkeypatch.setattr(additions, "DEFS", tmp_path / "defs")

    def write(kind, name, **attributes):
        path = tmp_path / "defs" / name / "defs.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        document = {"type": f"dagster_project.components.{kind}", "attributes": attributes}
        path.write_text(yaml.safe_dump(document))
        return path

    return write


@pytest.fixture
def profile(tmp_path):
    return lambda **sections: tiny_foundry(tmp_path, **sections).settings


def test_each_brings_an_entry_of_its_section(add, profile):
    add("PackComponent", "garden", settings={"shards": 2})
    add("BenchmarkComponent", "wise-legacy", settings={"source": "WISE", "limit": 3})
    add("ServerComponent", "drawer", settings=SERVER)
    add("ImportComponent", "plans", settings=ROWS)
    found = profile(benchmarks={"run": {"rise": {"source": "RISE"}}, "seed": 1})
    assert found.banks == {"garden": 2}
    assert {name: run.source for name, run in found.benchmarks.run.items()} == {
        "rise": "RISE",
        "wise-legacy": "WISE",
    }
    assert (found.benchmarks.seed, found.benchmarks.run["wise-legacy"].limit) == (1, 3)
    assert found.servers["drawer"].model == "sketch"
    assert found.imports["plans"].file == "plans.jsonl"
    assert found.curation.exports.mix.planner_sft == {"ours": 1, "plans": 1}
    assert found.curation.exports.mix.critic_sft == {"ours": 1}


def test_what_was_added_is_added_once(add, profile):
    add("ServerComponent", "drawer", settings=SERVER)
    found = profile()
    assert Profile.model_validate(found.model_dump()) == found
    assert "drawer" in found.servers
    assert not profile(components=False).servers


def test_the_mix_of_a_profile_has_the_last_word_on_weights(add, profile):
    add("ImportComponent", "plans", settings=ROWS)
    mix = {"planner_sft": {"ours": 2, "plans": 0.5}}
    found = profile(curation={"exports": {"mix": mix}})
    assert found.curation.exports.mix.planner_sft == {"ours": 2, "plans": 0.5}


def test_a_profile_and_those_that_are_based_on_it_get_the_same(add, tmp_path):
    add("ServerComponent", "drawer", settings=SERVER)
    path = tmp_path / "mine.yaml"
    path.write_text("base: sketch\nname: mine\n")
    assert "drawer" in load_profile(str(path)).servers


@pytest.mark.parametrize(
    ("kind", "name", "settings", "sections"),
    [
        ("PackComponent", "sketchbook", {"shards": 1}, {}),
        ("PackComponent", "garden", {"shards": 1}, {"banks": {"packs/garden": 1}}),
        ("BenchmarkComponent", "rise", {}, {"benchmarks": {"run": {"rise": {}}}}),
        ("ServerComponent", "drawer", SERVER, {"servers": {"drawer": SERVER}}),
        ("ImportComponent", "plans", ROWS, {"imports": {"plans": ROWS}}),
    ],
)
def test_an_entry_is_brought_or_named_never_both(add, profile, kind, name, settings, sections):
    path = add(kind, name, settings=settings)
    with pytest.raises(DocumentError, match=f"tiny-0.yaml:1: .*{path} brings .*{name}.*: remove"):
        profile(**sections)
    add(kind, name)
    assert profile(**sections)


def test_two_that_bring_the_same_are_named(add, profile):
    one = add("ServerComponent", "a/drawer", settings=SERVER)
    two = add("ServerComponent", "b/drawer", settings=SERVER)
    with pytest.raises(DocumentError, match=f"{two} brings `servers.drawer`, and so does {one}"):
        profile()


def test_what_is_named_has_to_be_there(add, profile):
    path = add("BenchmarkComponent", "wise-legacy")
    with pytest.raises(DocumentError, match=f"{path} names `benchmarks.run.wise-legacy`, which"):
        profile()


@pytest.mark.parametrize(
    ("kind", "attributes", "problem"),
    [
        ("PackComponent", {"settings": {"shards": 0}}, "settings.shards: Input should be greater"),
        ("BenchmarkComponent", {"settings": {"limits": 3}}, "settings.limits: Extra inputs"),
        ("ServerComponent", {"settings": {"kind": "images"}}, "images.gpus: Field required"),
        ("ImportComponent", {"settings": {**ROWS, "kind": "rl"}}, "settings.kind: Input should be"),
        ("ImportComponent", {"file": "plans.jsonl"}, "attributes.file: Extra inputs"),
    ],
)
def test_an_invalid_setting_is_an_error_with_its_file(add, profile, kind, attributes, problem):
    path = add(kind, "mine", **attributes)
    with pytest.raises(DocumentError, match=rf"{path}: .*{problem}"):
        profile()


def test_other_components_and_further_documents_are_no_concern(add, profile):
    path = add("ServerComponent", "drawer", settings=SERVER)
    path.write_text(f"type: dagster.DefinitionsComponent\n---\n{path.read_text()}")
    assert "drawer" in profile().servers


def test_a_pack_is_found_by_its_name_unless_another_has_it(add):
    path = add("PackComponent", "garden", settings={"shards": 1})
    for name, text in components.PACK.items():
        file = path.parent / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
    assert load_pack("garden").name == "garden"
    add("PackComponent", "interleave", settings={"shards": 1})
    with pytest.raises(FoundryError, match="interleave: there is a pack of this name"):
        load_pack("garden")
