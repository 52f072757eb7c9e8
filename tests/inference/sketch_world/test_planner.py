"""The teacher planner: requests in free English become plans that can be carried out."""

import asyncio
import re

import numpy as np
import pytest

from inference.backends.sketch.backend import SketchPlanner
from inference.roles import Plan, PlanRequest, UnusableAnswerError
from inference.sketch_world.outlines import is_achievable, outline_story
from inference.sketch_world.prompt_parser import parse
from inference.sketch_world.renderer import render
from inference.sketch_world.request_parser import RequestText
from inference.sketch_world.scene import (
    Add,
    Create,
    Move,
    Scene,
    Thing,
    at_random,
    carry_out,
    scene_after,
)
from inference.sketch_world.story_catalog import choose_story, load_stories
from warehouse import EncodedImage

STORIES = load_stories()


def plan(text: str, *scenes: Scene) -> Plan:
    images = tuple(EncodedImage.of(render(scene)) for scene in scenes)
    return asyncio.run(SketchPlanner().plan(PlanRequest(text, images)))


def final_scene(steps: Plan, before: Scene | None = None, seed: int = 0) -> Scene:
    """The scene after a plan's prompts, with random interpretations."""
    rng = np.random.default_rng(seed)
    scene = before
    for step in steps.steps:
        if step.prompt is not None:
            result = carry_out(parse(step.prompt), scene, at_random(rng))
            assert not result.impossible, step.prompt
            assert result.scene != scene, step.prompt
            scene = result.scene
    return scene or Scene()


def test_every_story_is_achievable_in_free_cells_with_all_slot_values():
    for story in STORIES.values():
        for values in story.all_values():
            outline = outline_story(story, values)
            assert 3 <= len(outline.steps) <= 7
            assert is_achievable(outline.steps, None), values
            scene: Scene | None = None
            for source, step in zip(story.fill_steps(values), outline.steps, strict=True):
                sentences = [s for s in source.draw.split(".") if s.strip()]
                assert len(step.edits) == len(sentences), source.draw
                for edit in step.edits:
                    if isinstance(edit, Add | Move) and scene:
                        assert edit.place.cell in scene.free_cells(), step
                    scene = scene_after([edit], scene)


def test_texts_of_stories_have_no_slots_or_prefixes():
    for story in STORIES.values():
        for values in list(story.all_values())[:40]:
            for step in story.fill_steps(values):
                assert all(text[0].isupper() for text in (step.name, step.say, step.tell) if text)
                words = f"{step.name} {step.draw} {step.say} {step.tell}"
                assert not re.search(r"[{}]|\ba [aeiou]|\ban [^aeiou]|step \d", words, re.I), words


def test_requests_match_their_story_and_set_its_slots():
    cases = [
        ("How to grow a red flower step by step?", "flower-growth", Thing("flower", "red")),
        ("show a PURPLE TULIP growing", "flower-growth", Thing("flower", "purple")),
        ("Show the phases of the moon", "moon-phases", Thing("full moon", "yellow")),
        ("How to build a snowman", "snowman", Thing("snowman", "white")),
        ("Set the table with a green plate", "set-table", Thing("plate", "green")),
        ("A gray cat walks home to a pink house", "walk-home", Thing("cat", "gray")),
        ("Visualize the phenomenon of the lifecycle of a frog", "frog-cycle", None),
        ("rocket launch in pink please", "rocket-launch", Thing("rocket", "pink")),
        ("the kitten goes home", "walk-home", None),
        ("What happens when blue and yellow paint are mixed?", "mix-colors", None),
        ("mix red and yellow paint", "mix-colors", Thing("heart", "orange")),
        ("mix blue with red", "mix-colors", Thing("heart", "purple")),
    ]
    for text, story, thing in cases:
        assert choose_story(RequestText(text)) is STORIES[story]
        if thing:
            assert thing in final_scene(plan(text)).cells.values()


def test_a_colour_belongs_to_the_thing_after_it():
    cases = [
        ("a bar chart with yellow bars and a green flag", "tall bar", "yellow"),
        ("play noughts and crosses with purple circles", "circle", "purple"),
        ("a purple bird that brings back a blue balloon", "balloon", "blue"),
    ]
    for text, kind, colour in cases:
        scene = final_scene(plan(f"Show {text}"))
        assert {t.colour for t in scene.cells.values() if t.kind == kind} == {colour}
        assert {t.colour for t in scene.cells.values()} - {colour}


def test_a_book_as_requested_format_is_not_drawn():
    about = "a black cat that walks home"
    for kind in ("picture book", "comic book", "photo book", "sketch-book"):
        scene = final_scene(plan(f"Make a {kind} about {about}"))
        assert "cat" in {thing.kind for thing in scene.cells.values()}
        assert "book" not in {thing.kind for thing in scene.cells.values()}


def test_the_first_step_creates_and_the_others_edit():
    steps = plan("How to grow a red flower?").steps
    assert isinstance(parse(steps[0].prompt or "").edits[0], Create)
    edits = [edit for step in steps[1:] for edit in parse(step.prompt or "").edits]
    assert edits and not any(isinstance(edit, Create) for edit in edits)
    assert [step.step_number for step in steps] == list(range(1, len(steps) + 1))
    assert all(step.instruction and step.step_name for step in steps)


def test_requests_that_name_nothing_get_a_one_line_error():
    for text in ["", "xyzzy", "Prove Fermat's last theorem"]:
        with pytest.raises(UnusableAnswerError, match=r"^nothing to draw in [^\n]*$"):
            plan(text)


def test_captions_only_if_requested():
    cases = [
        ("How to build a snowman?", False),
        ("How to build a snowman both visually and textually?", True),
        ("Build a snowman. Output each image together with a concise text caption.", True),
        ("Build a snowman. Give every picture a short caption.", True),
    ]
    for text, expected in cases:
        captions = [step.auxiliary_text for step in plan(text).steps]
        assert all(captions) if expected else not any(captions)


def test_a_plan_has_the_requested_number_of_images():
    asks = {"pick-and-place": "pick up a red ball", "walk-home": "a dog walks home"}
    for name in ["snowman", "walk-home", "traffic-light", "pick-and-place"]:
        for count in [2, 3, 4, 5]:
            ask = asks.get(name, name)
            text = f"{ask} in {count} pictures".replace("-", " ")
            short, full = plan(text), plan(ask.replace("-", " "))
            assert len(short.steps) == count
            assert len(full.steps) >= 5
            final_scene(short)


def test_plans_are_deterministic_and_wording_varies():
    texts = [f"How to build a village, number {n * 37}?" for n in range(120)]
    plans = [plan(text) for text in texts]
    assert plans[:20] == [plan(text) for text in texts[:20]]
    commands = [parse(step.prompt or "") for p in plans for step in p.steps[1:]]
    adds = [c.edits[0] for c in commands if isinstance(c.edits[0], Add)]
    assert 0.1 < np.mean([c.keep for c in commands]) < 0.6
    assert 0.1 < np.mean([add.place.cell is None for add in adds]) < 0.8
    assert 0.1 < np.mean([add.colour is None for add in adds]) < 0.8


def test_every_interpretation_of_a_plan_has_the_same_things():
    for text in ("build a village", "plant a garden", "a day at the beach", "still life"):
        for variant in range(12):
            steps = plan(f"{text} {variant}")
            scenes = [final_scene(steps, seed=seed) for seed in range(5)]
            kinds = {tuple(sorted(t.kind for t in s.cells.values())) for s in scenes}
            assert len(kinds) == 1, steps


def test_a_requested_description_comes_first():
    first, *others = plan("Describe a village at night in words, then draw it").steps
    assert (first.prompt, first.instruction) == (None, None)
    assert "night sky" in (first.auxiliary_text or "")
    assert all(step.prompt for step in others)


def test_input_images_are_described_from_their_pixels():
    scene = Scene("beach", {4: Thing("boat", "green"), 0: Thing("sun", "yellow")})
    (step,) = plan("What do you see? Describe it. <image>", scene).steps
    assert (step.prompt, step.instruction) == (None, None)
    assert "a green boat in the center" in (step.auxiliary_text or "")
    assert "a beach" in (step.auxiliary_text or "")


def test_step_counts_are_parsed():
    cases = [
        ("Draw the three most important steps", 3),
        ("in 4 pictures", 4),
        ("split it into 3 sequential parts", 3),
        ("one picture at a time", None),
        ("three blocks, step by step", None),
    ]
    for text, count in cases:
        assert RequestText(text).step_count == count


def test_questions_about_images_are_distinguished_from_requests_to_draw():
    cases = [
        ("Describe what the pictures show <image> <image>", True),
        ("What do you see in this picture? <image>", True),
        ("Explain each step <image>", True),
        ("Continue the story and describe it <image>", False),
        ("Show what happens <image>", False),
        ("Generate the rest <image>", False),
    ]
    for text, words_only in cases:
        assert RequestText(text).wants_words_only == words_only


def test_remaining_steps_follow_from_the_image_alone():
    values = {"first": "green", "second": "purple"}
    outline = outline_story(STORIES["fold-laundry"], values)
    current = scene_after([e for step in outline.steps[:2] for e in step.edits], None)
    assert current is not None
    text = "Based on the initial state and existing steps of folding the clothes, draw the rest"
    rest = plan(text, current, current)
    assert final_scene(rest, before=current) == scene_after(
        [e for step in outline.steps for e in step.edits], None
    )


def test_remaining_steps_cover_no_existing_things():
    before = Scene("meadow", {5: Thing("house", "red"), 2: Thing("church", "gray")})
    for variant in range(8):
        text = f"Build a village with a red house, variant {variant}. Continue. <image>"
        rest = plan(text, before)
        scene = final_scene(rest, before=before)
        assert (scene.cells[5], scene.cells[2]) == (before.cells[5], before.cells[2])
        assert len(scene.cells) == len(before.cells) + len(rest.steps)


def test_named_things_are_added_to_an_image_of_no_story():
    before = Scene("room", {4: Thing("gift", "red")})
    rest = plan("Now draw a black cat and a candle <image>", before)
    things = final_scene(rest, before=before).cells.values()
    assert {Thing("gift", "red"), Thing("cat", "black")} <= set(things)
    with pytest.raises(UnusableAnswerError):
        plan("Now go on <image>", before)


def test_reasoning_has_correct_articles():
    assert "about how an orange flower grows" in plan("grow an orange flower").reasoning
