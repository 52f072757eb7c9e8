"""The demo world says what it draws: what it knows is drawn, the rest refused or named."""

import numpy as np
import pytest
from PIL import Image

from assets.benchmarks.sketch import SHAPES, SketchBenchmark
from assets.core.profile import load_profile
from assets.prompts.bank import generate_bank
from assets.prompts.pack_loader import load_pack
from inference.roles import PlanRequest
from inference.sketch_world.renderer import render
from inference.sketch_world.scene import Scene, Thing
from inference.sketch_world.understanding import EXAMPLES, NOTICE, scope
from warehouse import EncodedImage


def scope_of(text, *images):
    return scope(PlanRequest(text, tuple(EncodedImage.of(image) for image in images)))


@pytest.mark.parametrize(
    ("request_text", "reason"),
    [
        ("How to make a paper plane", "no “paper plane”"),
        ("What is photosynthesis?", "no “photosynthesis”"),
        ("Tell a story about a fox and a crow", "no “fox” or “crow”"),
        ("Explain how a bill becomes law", "no “bill” or “law”"),
        ("Show me how to build a birdhouse", "no “birdhouse”"),
        ("Zeichne ein Haus", "not in English"),
        ("Dessine un chat", "not in English"),
        ("画一只猫", "not in English"),
        ("Please show me something nice", "names nothing"),
        ("quantum chromodynamics", "names nothing"),
    ],
)
def test_what_it_does_not_know_is_refused(request_text, reason):
    refusal = scope_of(request_text).refusal
    assert refusal.startswith("We can't illustrate this request: ") and reason in refusal
    assert all(example in refusal for example in EXAMPLES)


def test_near_names_are_offered():
    assert "Close to it: house" in scope_of("Draw a hose and a sprocket").refusal
    assert "phases of the moon" in scope_of("Show the phases of an eclipse").refusal


@pytest.mark.parametrize(
    ("request_text", "not_drawn"),
    [
        ("Show me a castle with a dragon", ("dragon",)),
        ("Draw a dog riding a bicycle in the city", ("bicycle",)),
        ("A birthday party with a clown", ("clown",)),
        ("Show how a caterpillar becomes a butterfly", ()),
        ("Show my grandmother's cat becoming happy", ()),
        ("Bake a chocolate cake", ()),
        ("Show how a parcel with a red ball is packed, wrapped and delivered", ()),
    ],
)
def test_what_it_leaves_out_is_named(request_text, not_drawn):
    found = scope_of(request_text)
    assert (found.refusal, found.not_drawn, found.notice) == (None, not_drawn, NOTICE)


def test_examples_and_prompts_of_its_own_pack_are_known(tmp_path):
    profile = load_profile("sketch")
    rows = generate_bank(load_pack(profile.pack), profile.bank, 400)
    texts = [*EXAMPLES, *(row.text for row in rows if not row.input_images)]
    for shape in SHAPES:
        benchmark = SketchBenchmark.open(shape, tmp_path, difficulty=4, items=20)
        texts += [item.text for item in benchmark.items if not item.image_files]
    assert [text for text in texts if scope_of(text).refusal] == []


def test_a_picture_of_another_world_is_said_to_be_one():
    own = render(Scene("meadow", {0: Thing("sun", "yellow")}), 96)
    assert scope_of("Add a red house.", own).remarks == ()
    noise = np.random.default_rng(0).integers(0, 255, (96, 96, 3), dtype=np.uint8)
    found = scope_of("Add a red house.", own, Image.fromarray(noise))
    assert found.refusal is None and found.remarks[0].startswith("Picture 2 isn't one of the")


def test_continuing_needs_a_thing_to_add():
    own = render(Scene("meadow"), 96)
    assert scope_of("Describe this picture.", own).refusal is None
    assert scope_of("Continue with a volcano.", own).refusal
