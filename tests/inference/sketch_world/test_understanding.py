"""The demo world says what it draws: what it knows is drawn, the rest refused or named."""

import numpy as np
from PIL import Image

from assets.benchmarks.sketch import SketchBenchmark
from assets.benchmarks.sketch_tasks import SHAPES
from assets.core.profile import load_profile
from assets.prompts.bank import generate_bank
from assets.prompts.pack_loader import load_pack
from inference.roles import PlanRequest
from inference.sketch_world.object_catalog import KINDS
from inference.sketch_world.prompt_writer import with_article
from inference.sketch_world.renderer import render
from inference.sketch_world.scene import Scene, Thing
from inference.sketch_world.understanding import EXAMPLES, NOTICE, _titles, scope
from warehouse import EncodedImage


def scope_of(text, *images):
    return scope(PlanRequest(text, tuple(EncodedImage.of(image) for image in images)))


def test_what_it_does_not_know_is_refused():
    cases = [
        ("How to make a paper plane", "no “paper plane”"),
        ("What is photosynthesis?", "no “photosynthesis”"),
        ("Tell a story about a fox and a crow", "no “fox” or “crow”"),
        ("Explain how a bill becomes law", "no “bill” or “law”"),
        ("Show me how to build a birdhouse", "no “birdhouse”"),
        ("Zeichne ein Haus", "English only"),
        ("Dessine un chat", "English only"),
        ("画一只猫", "English only"),
        ("Wie baut man einen Schneemann?", "English only"),  # "man" is a person of this world
        ("une table et une orange", "English only"),
        ("Haus am Meer in der Nacht", "English only"),
        ("Come fare un aeroplano di carta", "English only"),
        ("A café at night", "no “café”"),
        ("Please show me something nice", "names nothing"),
        ("quantum chromodynamics", "no “quantum chromodynamics”"),
    ]
    for request_text, reason in cases:
        found = scope_of(request_text)
        assert found.refusal.startswith("We can't illustrate this request: ")
        assert reason in found.refusal
        assert set(EXAMPLES) <= set(found.suggestions)
        assert all(f"“{each}”" in found.refusal_text for each in found.suggestions)


def test_similar_requests_are_suggested_first():
    assert scope_of("Draw a hose and a sprocket").suggestions[0] == "Draw a house"
    suggestions = scope_of("Show the phases of an eclipse").suggestions
    assert suggestions[0] == "Show the phases of the moon" and len(suggestions) == 3


def test_every_suggestion_can_be_drawn():
    titles = [f"Show {title}" for title in _titles()]
    kinds = [f"Draw {with_article(kind)}" for kind in KINDS]
    assert [text for text in (*titles, *kinds) if scope_of(text).refusal] == []


def test_what_it_leaves_out_is_named():
    cases = [
        ("Show me a castle with a dragon", ("dragon",)),
        ("Draw a dog riding a bicycle in the city", ("bicycle", "riding")),
        ("A birthday party with a clown", ("clown",)),
        ("A dog playing chess in the park", ("chess", "playing")),
        ("A red house, a car, unicorns, in Paris", ("unicorns", "paris")),
        ("A house and a tree by Van Gogh, photorealistic", ("van gogh", "photorealistic")),
        ("A boat on the sea at night, step by step, please", ("night",)),
        ("Show how a caterpillar becomes a butterfly", ()),
        ("Show my grandmother's cat becoming happy", ("becoming", "happy")),
        ("Bake a chocolate cake", ()),
        ("Show how a parcel with a red ball is packed, wrapped and delivered", ()),
    ]
    for request_text, not_drawn in cases:
        found = scope_of(request_text)
        assert (found.refusal, found.not_drawn, found.notice) == (None, not_drawn, NOTICE)


def test_examples_and_prompts_of_its_own_pack_are_known(tmp_path):
    profile = load_profile("sketch")
    rows = generate_bank(load_pack(profile.pack), profile.bank, 150)
    texts = [*EXAMPLES, *(row.text for row in rows if not row.input_images)]
    assert sum(bool(scope_of(text).not_drawn) for text in texts) < 0.05 * len(texts)
    for shape in SHAPES:
        benchmark = SketchBenchmark.open(shape, tmp_path, difficulty=4, items=8)
        texts += [item.text for item in benchmark.items if not item.image_files]
    assert [text for text in texts if scope_of(text).refusal] == []


def test_a_picture_of_another_world_is_said_to_be_one():
    own = render(Scene("meadow", {0: Thing("sun", "yellow")}), 96)
    assert scope_of("Add a red house.", own).remarks == ()
    noise = np.random.default_rng(0).integers(0, 255, (96, 96, 3), dtype=np.uint8)
    found = scope_of("Add a red house.", own, Image.fromarray(noise))
    assert found.refusal is None and found.remarks[0].startswith("Image 2 wasn't drawn by")


def test_continuing_needs_a_thing_to_add():
    own = render(Scene("meadow"), 96)
    assert scope_of("Describe this picture.", own).refusal is None
    assert scope_of("Continue with a volcano.", own).refusal
