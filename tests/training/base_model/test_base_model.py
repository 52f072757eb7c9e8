"""The tiny base model: its lessons are true, it is a Qwen3-VL to every tool, and it really sees."""

import json
import re

import numpy as np
import pytest

from inference.backends import torch_cpu_shim
from inference.sketch_world.object_catalog import KINDS, PLACES
from inference.sketch_world.perception import perceive
from inference.sketch_world.prompt_parser import parse
from inference.sketch_world.scene_edits import carry_out
from training.base_model import packaged
from training.base_model.batches import SampleBatches
from training.base_model.pretrain import pretrain
from training.base_model.pretraining_samples import MARKS, caption, drill, lesson, reading
from training.base_model.scenes import EditPair, EditSample
from training.base_model.settings import Architecture, BaseModelSettings, Lessons
from training.base_model.vision_pretraining import sight
from training.base_model.vocabulary import build_tokenizer

PARTS = {"drill_steps": 4, "surprise_steps": 4}
SHORT = BaseModelSettings(
    source="train",
    architecture=Architecture(hidden=32, layers=1, feed_forward=64, vision_hidden=32),
    lessons=Lessons(sight_steps=4, sight_batch=4, steps=6, batch=4, threads=1, **PARTS),
)
ALIKE = {"right", "same"}


def only(_, options):
    assert len(options) == 1
    return options[0]


@pytest.mark.parametrize("seed", range(200))
def test_a_goal_can_be_read_in_one_way_only_and_leads_to_what_is_wanted(seed):
    stage = EditSample(seed)
    outcome = carry_out(parse(stage.goal), stage.before, only)
    assert outcome.scene == stage.wanted
    assert outcome.impossible == 0


def test_lessons_say_what_the_picture_shows():
    for seed in range(40):
        stage = EditSample(seed)
        shown = lesson(seed, 1.0)
        seen = perceive(shown.pictures[0])
        assert seen.scene == stage.after
        assert shown.answer == caption(stage.after, stage.flaws)
        assert shown.question == ""


def test_two_pictures_are_told_apart():
    marks = {True: ", same", False: ", changed"}
    for seed in range(40):
        told = lesson(seed, 0.0)
        if len(told.pictures) == 2 and not told.question:
            _, after = (perceive(picture) for picture in told.pictures)
            pair = EditPair(seed)
            assert after.scene == pair.after
            for cell in set(range(9)) - after.crooked - after.blemished:
                was = pair.before.cells.get(cell) if pair.before else None
                now = pair.after.cells.get(cell)
                if was or now:
                    line = told.answer.split(f"{PLACES[cell].capitalize()}: ")[1].split(".")[0]
                    assert line.endswith(marks[was == now])


def test_an_inspection_marks_what_is_not_as_asked_for():
    inspected = [shown for seed in range(60) if len((shown := lesson(seed, 0.0)).pictures) == 2]
    inspected = [shown for shown in inspected if shown.question]
    assert len(inspected) > 15
    for shown in inspected:
        before, after = (perceive(picture) for picture in shown.pictures)
        wanted = carry_out(parse(shown.question), before.scene, only).scene
        lines = dict(line.rstrip(".").split(": ", 1) for line in shown.answer.splitlines()[1:])
        for cell in set(range(9)) - after.blemished:
            same = wanted.cells.get(cell) == after.scene.cells.get(cell)
            said = lines.get(PLACES[cell].capitalize(), "right")
            assert said.endswith("wrong") is not same


@pytest.mark.parametrize("surprises", [False, True])
def test_surprises_say_little_about_what_was_asked_for(surprises):
    stages = [EditSample(seed, surprises) for seed in range(200)]
    assert [stage.wanted for stage in stages] == [EditSample(seed).wanted for seed in range(200)]
    asked = [
        (thing, stage.after.cells.get(cell))
        for stage in stages
        for cell, thing in stage.wanted.cells.items()
        if not stage.before or stage.before.cells.get(cell) != thing
    ]
    met = np.mean([thing == outcome for thing, outcome in asked])
    assert bool(met < 0.7) is surprises


def test_drills_mark_what_is_alike():
    marks = []
    for seed in range(40):
        for line in drill(seed).answer.splitlines():
            one, other, mark = line.split(": ", 1)[1].rstrip(".").split(", ")
            assert (one.split(" ", 1)[1] == other.removeprefix("see ")) == (mark in ALIKE)
            marks.append(mark)
    assert set(marks) == MARKS
    assert 0.4 < np.mean([mark in ALIKE for mark in marks]) < 0.65


def test_a_reading_names_what_is_there():
    for seed in range(40):
        asked = reading(seed)
        named = asked.answer.removeprefix("Named: ").rstrip(".").split(", ")
        assert all(f" {thing}" in f" {asked.question}" for thing in named)
        assert 1 <= len(named) <= 3


def test_a_varied_reading_names_many_as_one_and_no_picture_books():
    plurals = {
        f"{c} {kind.plural}": f"{c} {kind.name}" for kind in KINDS.values() for c in kind.colours
    }
    many = sounding = 0
    for seed in range(200):
        asked = reading(seed, varied=True)
        named = asked.answer.removeprefix("Named: ").rstrip(".").split(", ")
        for thing in named:
            forms = {thing, *(plural for plural, one in plurals.items() if one == thing)}
            assert any(form in asked.question for form in forms)
            many += re.search(rf"{thing}\b", asked.question) is None
        sounding += any(f"a picture {kind}" in asked.question for kind in KINDS)
        assert not any(thing.startswith("picture ") for thing in named)
    assert many > 50
    assert sounding > 5


def test_only_the_marks_of_a_drill_count():
    tokenizer = build_tokenizer(2048)
    labels = SampleBatches(tokenizer).of([drill(1), drill(2)])["labels"]
    learned = [tokenizer.decode([token]) for token in labels[labels >= 0]]
    lines = sum(len(drill(seed).answer.splitlines()) for seed in (1, 2))
    assert {word.strip(" ,.\n") for word in learned} <= MARKS
    assert lines - 2 <= len(learned) <= lines


def test_lessons_are_the_same_for_the_same_seed():
    once, again = lesson(7, 0.3), lesson(7, 0.3)
    assert once.answer == again.answer
    assert [p.tobytes() for p in once.pictures] == [p.tobytes() for p in again.pictures]


def test_sight_asks_about_what_is_drawn():
    for seed in range(20):
        asked = sight(seed)
        seen = perceive(asked.picture)
        kinds = [None, *KINDS]
        for cell in set(range(9)) - seen.blemished:
            thing = seen.scene.cells.get(cell)
            assert kinds[asked.kinds[cell]] == (thing.kind if thing else None)


@pytest.mark.slow
def test_patches_are_those_of_the_real_processor(tmp_path):
    torch_cpu_shim.install()
    from transformers import AutoProcessor

    from training.base_model.architecture import build_untrained
    from training.base_model.batches import pixels

    build_untrained(tmp_path / "tiny", SHORT)
    processor = AutoProcessor.from_pretrained(tmp_path / "tiny")
    pictures = list(lesson(2, 0.0).pictures)
    theirs = processor.image_processor(images=pictures, return_tensors="pt")
    ours = pixels(pictures)
    assert np.allclose(ours["pixel_values"], theirs["pixel_values"], atol=1e-6)
    assert ours["image_grid_thw"].tolist() == theirs["image_grid_thw"].tolist()


@pytest.mark.slow
def test_a_killed_training_goes_on_and_ends_in_the_same_weights(tmp_path, monkeypatch):
    from training.base_model import pretrain as course

    class KilledError(Exception):
        pass

    def killed(taught):
        if taught.step == 16:
            raise KilledError

    monkeypatch.setattr(course, "_SAVE_EVERY", 2)
    monkeypatch.setattr(course, "_REPORT_EVERY", 2)
    pretrain(tmp_path / "whole", SHORT, lambda _: None)
    with pytest.raises(KilledError):
        pretrain(tmp_path / "killed", SHORT, killed)
    steps = []
    pretrain(tmp_path / "killed", SHORT, lambda taught: steps.append(taught.step))
    assert steps == [16, 18]
    weights = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("whole", "killed")]
    assert weights[0] == weights[1]


def test_the_shipped_model_is_small_and_says_where_it_comes_from():
    folder = packaged()
    assert folder
    assert (folder / "model.safetensors").stat().st_size <= 8e6
    assert "interleave run --select base_model" in (folder / "README.md").read_text("utf-8")
    assert json.loads((folder / "config.json").read_text())["model_type"] == "qwen3_vl"


@pytest.mark.slow
def test_the_shipped_model_sees():
    import torch

    torch_cpu_shim.install()
    from transformers import AutoTokenizer, Qwen3VLForConditionalGeneration

    model = Qwen3VLForConditionalGeneration.from_pretrained(packaged(), dtype=torch.float32)
    lessons = [lesson(10**12 + seed, 1.0) for seed in range(32)]
    batch = SampleBatches(AutoTokenizer.from_pretrained(packaged())).of(lessons)
    labels = batch.pop("labels")[:, 1:]
    with torch.inference_mode():
        guesses = model(**batch).logits[:, :-1].argmax(-1)
    asked = labels >= 0
    assert (guesses == labels)[asked].float().mean() > 0.95
