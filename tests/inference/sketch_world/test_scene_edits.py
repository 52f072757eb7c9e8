import numpy as np

from inference.sketch_world.prompt_parser import parse
from inference.sketch_world.scene import (
    Scene,
    Thing,
    at_random,
    carry_out,
    closest_to,
    interpretations,
    make_cells,
)

VILLAGE = Scene(
    "meadow", make_cells([(6, "house", "red"), (4, "cat", "orange"), (2, "sun", "yellow")])
)


def after(text: str, before: Scene | None = VILLAGE) -> Scene:
    return carry_out(parse(text), before, at_random(np.random.default_rng(0))).scene


def test_edits_change_the_scene_as_written():
    cases = [
        ("Add a green frog at the top left.", 0, Thing("frog", "green")),
        ("Add a frog to the right of the cat.", 5, Thing("frog", "green")),
        ("Paint the house blue.", 6, Thing("house", "blue")),
        ("Turn the cat into a gray rabbit.", 4, Thing("rabbit", "gray")),
        ("Remove the cat.", 4, None),
        ("Move the cat to the top left.", 0, Thing("cat", "orange")),
        ("Move the cat to the top left.", 4, None),
        ("Paint the thing in the center black.", 4, Thing("cat", "black")),
        ("Paint the orange thing black.", 4, Thing("cat", "black")),
    ]
    for text, cell, thing in cases:
        assert after(text).cells.get(cell) == thing


def test_edits_apply_in_order():
    scene = after("Remove the cat, add a red ball in the center and paint the ball blue.")
    assert scene == VILLAGE.with_cell(4, Thing("ball", "blue"))


def test_an_image_from_scratch_starts_on_paper():
    assert after("Add a red ball in the center.", None) == Scene("paper", {4: Thing("ball", "red")})
    assert after("Draw a beach.", VILLAGE) == Scene("beach")


def test_interpretations_of_an_open_place_are_free_cells():
    for text, cells in (
        ("Add a dog next to the cat.", {1, 3, 5, 7}),
        ("Add a dog.", {0, 1, 3, 5, 7, 8}),
    ):
        (edit,) = parse(text).edits
        assert {option.place.cell for option in interpretations(edit, VILLAGE)} == cells


def test_the_interpretation_that_was_drawn_counts():
    command = parse("Add a dog next to the cat.")
    actual = VILLAGE.with_cell(7, Thing("dog", "brown"))
    assert carry_out(command, VILLAGE, closest_to(actual, command)).scene == actual


def test_a_missing_thing_is_not_expected_in_the_cell_of_another_requested_one():
    command = parse("Draw a meadow with a house, a sun and a cat.")
    actual = Scene("meadow", make_cells([(2, "sun", "yellow"), (4, "cat", "orange")]))
    expected = carry_out(command, None, closest_to(actual, command)).scene
    assert {expected.cells.get(2), expected.cells.get(4)} == set(actual.cells.values())


def test_a_colour_that_a_kind_cannot_have_is_impossible():
    command = parse("Add a blue sun at the top left. Paint the sun red.")
    result = carry_out(command, VILLAGE, at_random(np.random.default_rng(0)))
    assert result.impossible == 1
    assert result.scene == VILLAGE.with_cell(2, Thing("sun", "red"))


def test_edits_are_interpreted_by_their_purpose():
    assert after("Remove the dog.") == VILLAGE
    assert after("Paint the dog at the top left black.").cells[0] == Thing("dog", "black")
    assert after("Paint the blue house at the top right green.").cells[6].colour == "green"
    assert after("Move the dog to the top left.").cells[0] == Thing("dog", "brown")
