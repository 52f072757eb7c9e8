"""Which model a word stands for."""

import json

import pytest

from inference.backends.checkpoint.manifest import FILE, Manifest
from tests.helpers.checkpoint_rows import checkpoint_row
from training.registry import RECORD, CheckpointRegistry, RegistryError
from training.serving import find_model

NAME = "critic_rl_checkpoint"


def manifest(version):
    return Manifest(
        name=NAME,
        version=version,
        role="critic",
        agent_prompts={"critic": "critic-brief@1"},
        image_max_pixels=96 * 96,
        max_new_tokens={"critic": 300},
    )


@pytest.fixture
def registry(home):
    """Versions a and b, whole as far as is looked at here."""
    registry = CheckpointRegistry(home)
    for place, version in enumerate("ab"):
        folder = registry.folder(NAME, version)
        folder.mkdir(parents=True)
        (folder / FILE).write_text(manifest(version).model_dump_json())
        (folder / "config.json").write_text('{"text_config": {"max_position_embeddings": 4096}}')
        (folder / RECORD).write_text(json.dumps({"files": [FILE, "config.json"]}))
        registry.register(checkpoint_row(NAME, version, folder, day=place))
    return registry


def test_a_name_is_its_newest_version_until_one_is_promoted(registry, home):
    assert find_model(NAME, home).name == f"{NAME}@b"
    registry.promote(NAME, "a", "better")
    model = find_model(NAME, home)
    assert model.name == f"{NAME}@a"
    assert model.source == str(registry.folder(NAME, "a")) and model.is_local
    assert model.manifest == manifest("a") and model.longest == 4096
    assert find_model(NAME, home, "b").name == f"{NAME}@b"


def test_a_folder_is_served_as_what_it_says_it_is(registry, home):
    assert find_model(str(registry.folder(NAME, "a")), home).name == f"{NAME}@a"


def test_a_folder_of_others_is_served_by_its_name(tmp_path, home):
    folder = tmp_path / "some-model"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    model = find_model(str(folder), home)
    assert (model.name, model.manifest, model.longest) == ("some-model", None, None)


def test_an_id_of_hugging_face_keeps_its_revision(home):
    model = find_model("Qwen/Qwen3-VL-8B-Instruct", home, "main")
    assert (model.name, model.revision) == ("Qwen/Qwen3-VL-8B-Instruct", "main")
    assert not model.is_local


@pytest.mark.parametrize("word", ["critic", "./critic", "/no/such/folder", "a/b/c", "~/x", "a/"])
def test_anything_else_is_one_line_with_what_there_is(registry, home, word):
    with pytest.raises(RegistryError, match=f"no checkpoint {word} .*there are: {NAME}") as raised:
        find_model(word, home)
    assert "\n" not in str(raised.value)


def test_a_version_that_is_not_there_is_one_line(registry, home):
    with pytest.raises(RegistryError, match=f"no checkpoint {NAME} c; there are: {NAME} a"):
        find_model(NAME, home, "c")


def test_a_folder_has_no_versions(registry, home):
    with pytest.raises(RegistryError, match="no versions"):
        find_model(str(registry.folder(NAME, "a")), home, "a")


def test_an_incomplete_checkpoint_says_how_to_make_it_again(registry, home):
    (registry.folder(NAME, "b") / "config.json").unlink()
    with pytest.raises(RegistryError, match=f"{NAME} b.*incomplete.*run --select {NAME}"):
        find_model(NAME, home)


def test_a_folder_without_a_model_is_one_line(tmp_path, home):
    with pytest.raises(RegistryError, match=r"no config\.json"):
        find_model(str(tmp_path), home)
