"""Which model a profile's words mean, and when it counts as another one."""

import os

import pytest

from inference.backends.diffusers.model_selection import select_model
from inference.backends.diffusers.settings import DiffusersSettings
from inference.roles import BackendError


def chosen(**settings):
    return select_model(DiffusersSettings(**settings))


def pipeline_folder(folder, kind="Flux2KleinPipeline"):
    folder.mkdir()
    (folder / "model_index.json").write_text(f'{{"_class_name": "{kind}"}}')
    return folder


def test_a_name_of_the_registry():
    choice = chosen(model="qwen-image", steps=20)
    assert choice.identity.startswith("qwen-image@75e0b4be04f6-")
    assert (choice.manner.steps, choice.manner.guidance) == (20, 4.0)
    assert choice.manner.pixels == (1024, 1024)


def test_another_revision():
    choice = chosen(model="qwen-image", revision="refs/pr/1")
    assert choice.model.revision == "refs/pr/1"
    assert choice.identity.startswith("qwen-image@refs/pr/1-")


def test_a_folder_is_taken_for_what_its_class_can_do(tmp_path):
    choice = chosen(model=str(pipeline_folder(tmp_path / "mine")))
    assert choice.name == "mine"
    assert choice.model.can == ("text", "edit", "references")
    assert choice.manner.steps == 4


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("steps", 3),
        ("guidance", 2.0),
        ("negative_prompt", "fog"),
        ("size", "512x512"),
        ("dtype", "float16"),
        ("revision", "main"),
        ("model", "qwen-image-lightning"),
    ],
)
def test_what_pictures_depend_on_is_in_the_identity(setting, value):
    plain = {"model": "qwen-image"}
    assert chosen(**plain | {setting: value}).identity != chosen(**plain).identity


def test_where_and_how_many_at_once_is_not():
    assert chosen(device="cpu", batch=1).identity == chosen().identity


def test_a_changed_folder_is_another_model(tmp_path):
    folder = pipeline_folder(tmp_path / "mine")
    before = chosen(model=str(folder)).identity
    assert chosen(model=str(folder)).identity == before
    os.utime(folder / "model_index.json", (1, 1))
    assert chosen(model=str(folder)).identity != before


@pytest.mark.parametrize(
    ("model", "said"),
    [
        ("omnigen2", "omnigen2 is not for backend diffusers but for images: diffusers has no"),
        ("nano-banana-pro", "for gemini: name it in `gemini.generator.model`"),
        ("klein", "no generator 'klein'; there are: qwen-image, "),
    ],
)
def test_what_diffusers_does_not_play_is_one_line(model, said):
    with pytest.raises(BackendError, match=said) as caught:
        chosen(model=model)
    assert "\n" not in str(caught.value)


def test_a_folder_that_is_no_known_pipeline_is_one_line(tmp_path):
    with pytest.raises(BackendError, match=r"is no pipeline of diffusers: there is no model_index"):
        chosen(model=str(tmp_path))
    folder = pipeline_folder(tmp_path / "mine", "StableDiffusionPipeline")
    with pytest.raises(BackendError, match=r"is a StableDiffusionPipeline.*`diffusers.registry`"):
        chosen(model=str(folder))
