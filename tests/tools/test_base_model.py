"""The tiny base model: its samples are correct, tools accept it as a Qwen3-VL, and it sees."""

import json
import re

import numpy as np
import pytest

from inference.backends import torch_cpu_shim
from inference.sketch_world.object_catalog import KINDS, PLACES
from inference.sketch_world.perception import perceive
from inference.sketch_world.prompt_parser import parse
from inference.sketch_world.scene import carry_out
from tools.base_model.architecture import Architecture
from tools.base_model.batches import Collator, pixels
from tools.base_model.pretrain import BaseModelSettings, PretrainingSettings, pretrain
from tools.base_model.pretraining_samples import (
    MARKS,
    caption,
    drill_sample,
    image_sample,
    reading_sample,
)
from tools.base_model.scenes import EditPair, EditSample
from tools.base_model.vision_pretraining import cell_sample
from tools.base_model.vocabulary import build_tokenizer
from training.base_model import PACKAGED_MODEL

PHASES = {"drill_steps": 4, "surprise_steps": 4, "threads": 1}
SHORT = BaseModelSettings(
    architecture=Architecture(hidden=32, layers=1, feed_forward=64, vision_hidden=32),
    lessons=PretrainingSettings(sight_steps=4, sight_batch=4, steps=6, batch=4, **PHASES),
)
EQUAL_MARKS = {"right", "same"}


def only(_, options):
    assert len(options) == 1
    return options[0]


def test_a_goal_is_unambiguous_and_leads_to_the_target():
    for seed in range(100):
        edit = EditSample(seed)
        result = carry_out(parse(edit.goal), edit.before, only)
        assert result.scene == edit.target, edit.goal
        assert result.impossible == 0


def test_captions_describe_the_image():
    for seed in range(40):
        edit = EditSample(seed)
        sample = image_sample(seed, 1.0)
        perceived = perceive(sample.images[0])
        assert perceived.scene == edit.after
        assert sample.answer == caption(edit.after, edit.flaws)
        assert sample.question == ""


def test_comparisons_mark_the_cells_that_changed():
    marks = {True: ", same", False: ", changed"}
    for seed in range(40):
        sample = image_sample(seed, 0.0)
        if len(sample.images) == 2 and not sample.question:
            _, after = (perceive(image) for image in sample.images)
            pair = EditPair(seed)
            assert after.scene == pair.after
            for cell in set(range(9)) - after.crooked - after.blemished:
                was = pair.before.cells.get(cell) if pair.before else None
                now = pair.after.cells.get(cell)
                if was or now:
                    line = sample.answer.split(f"{PLACES[cell].capitalize()}: ")[1].split(".")[0]
                    assert line.endswith(marks[was == now])


def test_inspections_mark_what_differs_from_the_request():
    samples = [image_sample(seed, 0.0) for seed in range(60)]
    inspections = [sample for sample in samples if len(sample.images) == 2 and sample.question]
    assert len(inspections) > 15
    for sample in inspections:
        before, after = (perceive(image) for image in sample.images)
        target = carry_out(parse(sample.question), before.scene, only).scene
        lines = dict(line.rstrip(".").split(": ", 1) for line in sample.answer.splitlines()[1:])
        for cell in set(range(9)) - after.blemished:
            same = target.cells.get(cell) == after.scene.cells.get(cell)
            line = lines.get(PLACES[cell].capitalize(), "right")
            assert line.endswith("wrong") is not same


@pytest.mark.parametrize("surprises", [False, True])
def test_results_of_surprises_say_little_about_the_request(surprises):
    edits = [EditSample(seed, surprises) for seed in range(200)]
    assert [edit.target for edit in edits] == [EditSample(seed).target for seed in range(200)]
    requested = [
        (thing, edit.after.cells.get(cell))
        for edit in edits
        for cell, thing in edit.target.cells.items()
        if not edit.before or edit.before.cells.get(cell) != thing
    ]
    met = np.mean([thing == result for thing, result in requested])
    assert bool(met < 0.7) is surprises


def test_drills_mark_equal_phrases():
    marks = []
    for seed in range(40):
        for line in drill_sample(seed).answer.splitlines():
            one, other, mark = line.split(": ", 1)[1].rstrip(".").split(", ")
            assert (one.split(" ", 1)[1] == other.removeprefix("see ")) == (mark in EQUAL_MARKS)
            marks.append(mark)
    assert set(marks) == MARKS
    assert 0.4 < np.mean([mark in EQUAL_MARKS for mark in marks]) < 0.65


@pytest.mark.parametrize("varied", [False, True])
def test_a_reading_names_its_objects(varied):
    """A varied one has plurals, which are named in the singular, and compounds, which are not."""
    plurals = {
        f"{c} {kind.plural}": f"{c} {kind.name}" for kind in KINDS.values() for c in kind.colours
    }
    plural_count = compound_count = 0
    for seed in range(100):
        sample = reading_sample(seed, varied=varied)
        named = sample.answer.removeprefix("Named: ").rstrip(".").split(", ")
        for thing in named:
            forms = {thing, *(plural for plural, one in plurals.items() if one == thing)}
            assert any(form in sample.question for form in forms)
            plural_count += re.search(rf"{thing}\b", sample.question) is None
        compound_count += any(f"a picture {kind}" in sample.question for kind in KINDS)
        assert not any(thing.startswith("picture ") for thing in named)
    assert (plural_count > 25) is (compound_count > 2) is varied


def test_only_the_marks_of_a_drill_count():
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(PACKAGED_MODEL)
    labels = Collator(tokenizer)([drill_sample(1), drill_sample(2)])["labels"]
    learned = [tokenizer.decode([token]) for token in labels[labels >= 0]]
    lines = sum(len(drill_sample(seed).answer.splitlines()) for seed in (1, 2))
    assert {word.strip(" ,.\n") for word in learned} <= MARKS
    assert lines - 2 <= len(learned) <= lines


def test_cell_classes_are_those_of_the_image():
    kinds = [None, *KINDS]
    for seed in range(20):
        sample = cell_sample(seed)
        perceived = perceive(sample.image)
        for cell in set(range(9)) - perceived.blemished:
            thing = perceived.scene.cells.get(cell)
            assert kinds[sample.classes[0][cell]] == (thing.kind if thing else None)


@pytest.mark.slow
def test_patches_are_those_of_the_real_processor():
    torch_cpu_shim.install()
    from transformers import AutoProcessor

    processor = AutoProcessor.from_pretrained(PACKAGED_MODEL)
    images = list(image_sample(2, 0.0).images)
    theirs = processor.image_processor(images=images, return_tensors="pt")
    ours = pixels(images)
    assert np.allclose(ours["pixel_values"], theirs["pixel_values"], atol=1e-6)
    assert ours["image_grid_thw"].tolist() == theirs["image_grid_thw"].tolist()


@pytest.mark.long
def test_a_killed_training_resumes_and_ends_in_the_same_weights(tmp_path, monkeypatch):
    from tools.base_model import pretrain as module

    class KilledError(Exception):
        pass

    def kill(progress):
        if progress.step == 16:
            raise KilledError

    torch_cpu_shim.install()
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(PACKAGED_MODEL)
    monkeypatch.setattr(module, "build_tokenizer", lambda _entries: tokenizer)
    monkeypatch.setattr(module, "_SAVE_EVERY", 2)
    monkeypatch.setattr(module, "_REPORT_EVERY", 2)
    pretrain(tmp_path / "uninterrupted", SHORT, lambda _: None)
    with pytest.raises(KilledError):
        pretrain(tmp_path / "killed", SHORT, kill)
    steps = []
    pretrain(tmp_path / "killed", SHORT, lambda progress: steps.append(progress.step))
    assert steps == [16, 18]
    uninterrupted, resumed = (
        (tmp_path / name / "model.safetensors").read_bytes() for name in ("uninterrupted", "killed")
    )
    assert resumed == uninterrupted


@pytest.mark.long
def test_the_shipped_tokenizer_is_made_again():
    made = build_tokenizer(2048).backend_tokenizer.to_str()
    assert json.loads(made) == json.loads((PACKAGED_MODEL / "tokenizer.json").read_text())
    assert "python -m tools.base_model" in (PACKAGED_MODEL / "README.md").read_text("utf-8")


@pytest.mark.slow
def test_the_shipped_model_sees():
    import torch

    torch_cpu_shim.install()
    from transformers import AutoTokenizer, Qwen3VLForConditionalGeneration

    assert (PACKAGED_MODEL / "model.safetensors").stat().st_size <= 8e6
    model = Qwen3VLForConditionalGeneration.from_pretrained(PACKAGED_MODEL, dtype=torch.float32)
    samples = [image_sample(10**12 + seed, 1.0) for seed in range(32)]
    batch = Collator(AutoTokenizer.from_pretrained(PACKAGED_MODEL))(samples)
    labels = batch.pop("labels")[:, 1:]
    with torch.inference_mode():
        guesses = model(**batch).logits[:, :-1].argmax(-1)
    counted = labels >= 0
    assert (guesses == labels)[counted].float().mean() > 0.95
