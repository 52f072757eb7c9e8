"""The model that a profile selects, and its identity."""

import os

import pytest

from inference.backends.diffusers.backend import DiffusersSettings, select_model
from inference.roles import BackendError


def select(**settings):
    return select_model(DiffusersSettings(**settings))


def pipeline_folder(folder, kind="Flux2KleinPipeline"):
    folder.mkdir()
    (folder / "model_index.json").write_text(f'{{"_class_name": "{kind}"}}')
    return folder


def test_a_name_of_the_registry():
    selected = select(model="qwen-image", steps=20)
    assert selected.identity.startswith("qwen-image@75e0b4be04f6-")
    assert (selected.params.steps, selected.params.guidance) == (20, 4.0)
    assert selected.params.pixels == (1024, 1024)


def test_a_folder_has_the_abilities_of_its_class(tmp_path):
    selected = select(model=str(pipeline_folder(tmp_path / "mine")))
    assert selected.name == "mine"
    assert selected.model.can == ("text", "edit", "references")
    assert selected.params.steps == 4


def test_the_identity_depends_on_what_images_depend_on():
    default = {"model": "qwen-image"}
    changes = (
        {},
        {"steps": 3},
        {"guidance": 2.0},
        {"negative_prompt": "fog"},
        {"size": "512x512"},
        {"dtype": "float16"},
        {"model": "qwen-image-lightning"},
    )
    assert len({select(**default | change).identity for change in changes}) == len(changes)
    assert select(device="cpu", batch=1).identity == select().identity


def test_a_changed_folder_changes_the_identity(tmp_path):
    folder = pipeline_folder(tmp_path / "mine")
    before = select(model=str(folder)).identity
    assert select(model=str(folder)).identity == before
    os.utime(folder / "model_index.json", (1, 1))
    assert select(model=str(folder)).identity != before


def test_models_of_other_backends_are_one_line():
    for model, message in {
        "omnigen2": "omnigen2 is not for backend diffusers but for images: diffusers has no",
        "nano-banana-pro": "for gemini: name it in `gemini.generator.model`",
        "klein": "no generator 'klein'; there are: qwen-image, ",
    }.items():
        with pytest.raises(BackendError, match=message) as caught:
            select(model=model)
        assert "\n" not in str(caught.value)


def test_an_unknown_pipeline_is_one_line(tmp_path):
    with pytest.raises(BackendError, match=r"is no pipeline of diffusers: there is no model_index"):
        select(model=str(tmp_path))
    folder = pipeline_folder(tmp_path / "mine", "StableDiffusionPipeline")
    with pytest.raises(BackendError, match=r"is a StableDiffusionPipeline.*`diffusers.registry`"):
        select(model=str(folder))
