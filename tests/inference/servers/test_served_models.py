"""Which model a reference means."""

import json

import pytest

from inference.backends.checkpoint.manifest import MANIFEST_FILE, RECORD, CheckpointError
from inference.servers.vllm import find_model
from tests.helpers.checkpoint_rows import checkpoint_row
from tests.inference.backends.checkpoint.tiny_agents import BOTH
from training.registry import CheckpointRegistry

NAME = "critic_rl_checkpoint"


def manifest(version):
    return BOTH.model_copy(update={"name": NAME, "version": version, "role": "critic"})


@pytest.fixture
def registry(home):
    """Versions a and b, complete as far as the tests look."""
    registry = CheckpointRegistry(home)
    for day, version in enumerate("ab"):
        folder = registry.folder(NAME, version)
        folder.mkdir(parents=True)
        (folder / MANIFEST_FILE).write_text(manifest(version).model_dump_json())
        (folder / "config.json").write_text('{"text_config": {"max_position_embeddings": 4096}}')
        (folder / RECORD).write_text(json.dumps({"files": [MANIFEST_FILE, "config.json"]}))
        registry.register(checkpoint_row(NAME, version, folder, day=day))
    return registry


def test_a_name_is_its_newest_version_until_one_is_promoted(registry, home):
    assert find_model(NAME, home).name == f"{NAME}@b"
    registry.promote(NAME, "a", "better")
    model = find_model(NAME, home)
    assert model.name == f"{NAME}@a"
    assert model.source == str(registry.folder(NAME, "a")) and model.is_local
    assert model.manifest == manifest("a") and model.context_length == 4096
    assert find_model(NAME, home, "b").name == f"{NAME}@b"
    assert find_model(str(registry.folder(NAME, "b")), home).name == f"{NAME}@b"


def test_foreign_models_are_named_by_their_folder_or_id(tmp_path, home):
    folder = tmp_path / "some-model"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    model = find_model(str(folder), home)
    assert (model.name, model.manifest, model.context_length) == ("some-model", None, None)
    model = find_model("Qwen/Qwen3-VL-8B-Instruct", home, "main")
    assert (model.name, model.revision) == ("Qwen/Qwen3-VL-8B-Instruct", "main")
    assert not model.is_local


def test_what_is_no_model_is_one_line_that_says_what_there_is(registry, home, tmp_path):
    (registry.folder(NAME, "b") / "config.json").unlink()
    unknown = {
        (reference, None): f"no checkpoint {reference} .*there are: {NAME}"
        for reference in ("critic", "./critic", "/no/folder", "a/b/c", "~/x", "a/")
    }
    cases = unknown | {
        (NAME, "c"): f"no checkpoint {NAME}@c in .*; there are: {NAME}@a",
        (str(registry.folder(NAME, "a")), "a"): "no versions",
        (NAME, None): f"{NAME} b.*incomplete.*run --select {NAME}",
        (str(tmp_path), None): r"no config\.json",
    }
    for (reference, version), message in cases.items():
        with pytest.raises(CheckpointError, match=message) as raised:
            find_model(reference, home, version)
        assert "\n" not in str(raised.value)
