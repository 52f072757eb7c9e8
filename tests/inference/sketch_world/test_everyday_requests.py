"""Requests as people write them: what they say is drawn, or refused, or named as not drawn."""

import re
import sys
from collections import Counter

import numpy as np

from inference.roles import PlanRequest
from inference.sketch_world.grader import goals_of, plan_faults, plan_is_correct
from inference.sketch_world.object_catalog import PLACES
from inference.sketch_world.planner import write_plan
from inference.sketch_world.prompt_parser import parse
from inference.sketch_world.renderer import render
from inference.sketch_world.scene import Scene, at_random, carry_out, make_cells
from inference.sketch_world.understanding import scope
from warehouse import EncodedImage

GARDEN = Scene(
    "meadow",
    make_cells(
        [
            (0, "star", "yellow"),
            (1, "star", "yellow"),
            (2, "sun", "yellow"),
            (6, "house", "red"),
            (7, "cat", "orange"),
            (8, "tree", "green"),
        ]
    ),
)
AREAS = {"top": (0, 1, 2), "bottom": (6, 7, 8), "left": (0, 3, 6), "right": (2, 5, 8)}

# The request, and all that the last picture shows: "3 red ball" are three, "@top" says where.
DRAWN = {
    "Draw a cat": "orange cat",
    "a blue cat and a black dog": "blue cat, black dog",
    "a cat without a sun": "orange cat",
    "Draw a garden with no cats": "",
    "a house with neither a tree nor a sun": "red house",
    "Please draw a boat, but no fish": "red boat",
    "a beach with a ball and no umbrella, please": "red ball",
    "a red house at the top left": "red house@top left",
    "on the left a cat and on the right a dog": "orange cat@left, brown dog@right",
    "Draw a bird in the sky and a rabbit on the ground": "blue bird@top, gray rabbit@bottom",
    "a green circle in the middle": "green circle@center",
    "a yellow star in the upper right corner": "yellow star@top right",
    "Draw a night with seven stars": "7 yellow star",
    "three red balloons and two blue ones": "3 red balloon, 2 blue balloon",
    "nine black circles": "9 black circle",
    "a red circle above a blue square": "red circle, blue square",
    "a cat, a dog and a house in four pictures": "orange cat, brown dog, red house",
    "Show a cup and a plate in two images": "blue cup, blue plate",
    "five purple hearts in five steps": "5 purple heart",
    "Draw a house. Then paint it blue.": "blue house",
    "Draw a cat and a dog, then remove the dog": "orange cat",
    "First an egg, then turn the egg into a ball": "red ball",
    "Set the table with a cat": "orange cat",
    "Swap the cat and the dog": "orange cat, brown dog",
    "I'd like a kitten next to a cottage": "orange cat, red house",
    "There is a fish. Another fish comes.": "2 orange fish",
}

# The same for a picture of GARDEN. "+" adds to it, "-" takes away.
EDITED = {
    "Remove the tree": "-green tree",
    "take away the cat, please": "-orange cat",
    "Can you get rid of the sun?": "-yellow sun",
    "Remove both stars": "-2 yellow star",
    "delete all stars and the tree": "-2 yellow star, -green tree",
    "no cats": "-orange cat",
    "I want it without the sun": "-yellow sun",
    "Remove everything but the house": "-2 yellow star, -yellow sun, -orange cat, -green tree",
    "Remove everything that is not yellow": "-red house, -orange cat, -green tree",
    "Remove the star at the top left": "-yellow star@top left",
    "make the house blue": "-red house, +blue house@bottom left",
    "Paint the cat black.": "-orange cat, +black cat@bottom center",
    "change the color of the house to purple": "-red house, +purple house@bottom left",
    "the tree should be orange": "-green tree, +orange tree@bottom right",
    "Make all the stars red": "-2 yellow star, +red star@top left, +red star@top center",
    "Paint the house in the colour of the cat": "-red house, +orange house@bottom left",
    "Move the cat to the center": "-orange cat, +orange cat@center",
    "put the sun in the middle": "-yellow sun, +yellow sun@center",
    "Move the tree above the cat": "-green tree, +green tree@center",
    "Swap the cat and the tree": "-orange cat, -green tree, +orange cat@bottom right, "
    "+green tree@bottom center",
    "Let the house and the cat change places": "-red house, -orange cat, "
    "+orange cat@bottom left, +red house@bottom center",
    "Replace the cat with a dog": "-orange cat, +brown dog@bottom center",
    "a rabbit instead of the cat": "-orange cat, +gray rabbit@bottom center",
    "Turn the sun into a cloud": "-yellow sun, +white cloud@top right",
    "add a dog": "+brown dog",
    "Add a pink flower at the middle left": "+pink flower@middle left",
    "add two more birds": "+2 blue bird",
    "Add a dog, remove the tree and make the house pink": "+brown dog, -green tree, -red house, "
    "+pink house@bottom left",
    "a bird next to the house": "+blue bird@middle left",
    "Do not remove the sun, remove the tree": "-green tree",
}

# What is not understood: refused with a reason, or drawn and named beside the picture.
REFUSED = {
    ("Remove the dog", GARDEN): "no dog in the picture",
    ("make the house bigger", GARDEN): "bigger",
    ("Paint the sun blue", GARDEN): "sun cannot be blue",
    ("Make it blue", GARDEN): "any of 6 things",
    ("Move the cat to the top left", GARDEN): "No place is free",
    ("Remove the tree", None): "attach a picture",
    ("Make it blue", None): "attach a picture",
    ("Turn it into a dog", None): "attach a picture",
    ("Move it to the top left", None): "attach a picture",
    ("Add a dragon", GARDEN): "“dragon”",
    ("red " * 1500, None): "at most 4000 characters",
}
NAMED = {
    ("plant a tree", None): "plant",
    ("a house being built", None): "built",
    ("set the table for two", None): "two",
    ("a dog chasing a cat", None): "chasing",
    ("a cat behind a house", None): "behind a house",
    ("a fish in a box", None): "in a box",
    ("a blue house with a red door", None): "red door",
    ("a big tree", None): "big",
    ("fifteen stars", None): "fifteen",
    ("15 stars", None): "no room",
    ("Show how a flower grows in twelve steps", None): "not 12",
    ("Draw a cat in six pictures", None): "not 6",
    ("a blue sun", None): "sun cannot be blue",
    ("a cat that is not black", None): "black",
    ("a red blue house", None): "red",
    ("a cat next to a house next to a tree", None): "Only the first place of “a cat” counts",
    ("Add a boat on the sea", GARDEN): "stays a meadow",
    ("Remove the tree and make the house bigger", GARDEN): "bigger",
}


def request_of(text: str, before: Scene | None = None) -> PlanRequest:
    return PlanRequest(text, (EncodedImage.of(render(before)),) if before else ())


def ends_of(request: PlanRequest, before: Scene | None) -> list[Scene]:
    """The scenes that a plan's prompts may lead to."""
    ends = []
    for seed in range(4):
        scene, choose = before, at_random(np.random.default_rng(seed))
        for step in write_plan(request).steps:
            scene = carry_out(parse(step.prompt or ""), scene, choose).scene
        ends.append(scene or Scene())
    return ends


def things_of(words: str) -> list[tuple[str, str, int, str]]:
    """Sign, thing, number and place of each of "-2 yellow star, +red cat@top"."""
    parts = re.findall(r"([+-]?)(?:(\d) )?(\w+ \w[\w ]*?)(?:@([\w ]+))?(?:, |$)", words)
    return [(sign, thing, int(number or 1), place) for sign, number, thing, place in parts]


def check_places(scene: Scene, words: str) -> None:
    for sign, thing, _, place in things_of(words):
        cells = AREAS.get(place) or (PLACES.index(place),) if place else range(9)
        there = [f"{t.colour} {t.kind}" for c, t in scene.cells.items() if c in cells]
        assert (thing in there) == (sign != "-") or not place, (thing, place, scene)


def test_what_is_asked_for_is_drawn_and_nothing_else():
    for text in DRAWN:
        request, expected = request_of(text), Counter[str]()
        for _, thing, number, _ in things_of(DRAWN[text]):
            expected[thing] += number
        for scene in ends_of(request, None):
            assert Counter(f"{t.colour} {t.kind}" for t in scene.cells.values()) == expected
            check_places(scene, DRAWN[text])
            assert goals_of(request).accept(scene)
        assert not plan_faults(request, write_plan(request))
        assert plan_is_correct(request, write_plan(request))
        found = scope(request)
        assert (found.refusal, found.not_drawn, found.remarks) == (None, (), ())


def test_a_picture_is_changed_as_asked_and_in_nothing_else():
    for text in EDITED:
        request = request_of(text, GARDEN)
        expected = Counter(f"{t.colour} {t.kind}" for t in GARDEN.cells.values())
        for sign, thing, number, _ in things_of(EDITED[text]):
            expected[thing] += -number if sign == "-" else number
        for scene in ends_of(request, GARDEN):
            assert Counter(f"{t.colour} {t.kind}" for t in scene.cells.values()) == +expected
            check_places(scene, EDITED[text])
            assert goals_of(request).accept(scene)
        assert not goals_of(request).accept(GARDEN)
        assert not plan_faults(request, write_plan(request))
        assert plan_is_correct(request, write_plan(request))
        found = scope(request)
        assert (found.refusal, found.not_drawn, found.remarks) == (None, (), ())


def test_what_cannot_be_done_is_refused_with_its_reason():
    for text, before in REFUSED:
        assert REFUSED[text, before] in (scope(request_of(text, before)).refusal or "")


def test_what_is_left_out_of_a_picture_is_named():
    for text, before in NAMED:
        found = scope(request_of(text, before))
        assert found.refusal is None
        assert NAMED[text, before] in " ".join([*found.not_drawn, *found.remarks])


def test_a_colour_that_is_not_wanted_is_not_drawn():
    (scene, *_) = ends_of(request_of("a cat that is not black"), None)
    assert [thing.colour for thing in scene.cells.values()] == ["orange"]


def test_a_background_is_changed_and_things_stay():
    (scene, *_) = ends_of(request_of("Change the background to a night sky", GARDEN), GARDEN)
    assert scene == Scene("night sky", GARDEN.cells)
    for text in ("make it winter", "paint it in winter"):
        request = request_of(text, GARDEN)
        assert ends_of(request, GARDEN)[0] == Scene("snow", GARDEN.cells)
        assert scope(request).remarks == ()


def test_the_number_of_pictures_is_as_asked():
    for text, count in (
        ("a cat, a dog and a house in four pictures", 4),
        ("Show in nine pictures how to grow a pink flower", 9),
        ("a fish and a boat in one picture", 1),
    ):
        drawn = [step for step in write_plan(request_of(text)).steps if step.prompt]
        assert len(drawn) == count, text


def test_long_requests_are_read_in_linear_time():
    """Calls of functions are counted, not seconds: of twice the text at most some twice as many."""
    for words in ("2 ", "red ", "a\tcat ", "no ", "the cat next to "):
        few, many = (calls_of(words * n + "cats") for n in (100, 200))
        assert many < 3 * few, words


def calls_of(text: str) -> int:
    """How many calls of functions reading a request takes."""
    calls = 0

    def count(*_: object) -> None:
        nonlocal calls
        calls += 1

    sys.setprofile(count)
    try:
        scope(request_of(text))
    finally:
        sys.setprofile(None)
    return calls
