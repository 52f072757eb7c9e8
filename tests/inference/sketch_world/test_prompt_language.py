"""Prompts are parsed into edits and written from them; what edits do to a scene."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from inference.sketch_world.object_catalog import BACKGROUNDS, COLOURS, KINDS
from inference.sketch_world.prompt_parser import parse
from inference.sketch_world.prompt_writer import creation, phrase
from inference.sketch_world.scene import (
    ANYWHERE,
    Add,
    Command,
    Create,
    GridPlace,
    Move,
    Recolour,
    Remove,
    Replace,
    Scene,
    SetBackground,
    Target,
    Thing,
    at_random,
    carry_out,
    closest_to,
    interpretations,
    make_cells,
)

# The first call builds the parser; on a busy machine that takes longer than usual.
settings.register_profile("sketch", deadline=None)
settings.load_profile("sketch")

kinds = st.sampled_from(list(KINDS))
colours = st.sampled_from(list(COLOURS))
backgrounds = st.sampled_from(BACKGROUNDS)
cells = st.integers(0, 8)
targets = st.builds(Target, st.none() | kinds, st.none() | colours, st.none() | cells)
directions = st.sampled_from(["left of", "right of", "above", "below", "next to"])
places = (
    st.just(ANYWHERE)
    | st.builds(lambda cell: GridPlace(cell=cell), cells)
    | st.builds(lambda d, a: GridPlace(direction=d, anchor=a), directions, targets)
)
adds = st.builds(Add, kinds, st.none() | colours, places)
edits = st.one_of(
    adds,
    st.builds(Remove, targets),
    st.builds(Recolour, targets, colours),
    st.builds(Move, targets, places),
    st.builds(Replace, targets, kinds, st.none() | colours),
    st.builds(SetBackground, backgrounds),
    st.builds(Create, backgrounds, st.lists(adds, max_size=5).map(tuple)),
)
WORDS = ["add", "remove", "the", "a", "red", "cat", "house", ",", "and", "to", "top", "left", "not"]
HOUSE, CAT = Target("house"), Target("cat")
LEFT_OF_PLATE = GridPlace(direction="left of", anchor=Target("plate"))
VILLAGE = Scene(
    "meadow", make_cells([(6, "house", "red"), (4, "cat", "orange"), (2, "sun", "yellow")])
)


@given(st.lists(edits, min_size=1, max_size=4), st.booleans())
def test_written_edits_parse_back_to_the_same(several, keep):
    command = Command(tuple(several), keep)
    assert parse(phrase(command)) == command


@given(st.text())
def test_any_text_can_be_parsed(text):
    parse(text)


@given(st.lists(st.sampled_from(WORDS)))
def test_any_order_of_known_words_can_be_parsed(words):
    parse(" ".join(words))


def test_other_wordings():
    cases = [
        ("Paint the house blue.", Recolour(HOUSE, "blue")),
        ("Change the colour of the house to grey.", Recolour(HOUSE, "gray")),
        ("change the house to gray", Recolour(HOUSE, "gray")),
        ("Make the house blue, please.", Recolour(HOUSE, "blue")),
        ("The house should be blue!", Recolour(HOUSE, "blue")),
        ("Move the cat to the centre.", Move(CAT, GridPlace(cell=4))),
        ("Put the cat in the middle", Move(CAT, GridPlace(cell=4))),
        ("Put a cat in the upper-left corner", Add("cat", None, GridPlace(cell=0))),
        ("Add a new moon at the top", Add("new moon", None, GridPlace(cell=1))),
        ("Add the sun at the top right of the picture.", Add("sun", None, GridPlace(cell=2))),
        ("Add a fork on the left of the plate", Add("fork", None, LEFT_OF_PLATE)),
        ("Delete the cat", Remove(CAT)),
        ("Replace the cat with a gray dog.", Replace(CAT, "dog", "gray")),
        ("Change the background to night sky.", SetBackground("night sky")),
        ("Draw an empty sheet of paper.", Create("paper")),
        ("Try again: carefully remove the cat.", Remove(CAT)),
    ]
    for text, edit in cases:
        assert parse(text).edits == (edit,)


def test_articles_agree():
    edits = (Add("cat", "orange"), Add("umbrella"), Replace(CAT, "apple", "red"))
    prompt = "Add an orange cat. Add an umbrella. Turn the cat into a red apple."
    assert phrase(Command(edits)) == prompt


def test_a_scene_is_phrased_in_full():
    scene = Scene(
        "meadow", make_cells([(6, "house", "red"), (2, "sun", "yellow"), (4, "cat", "pink")])
    )
    assert phrase(Command((creation(scene),))) == (
        "Draw a meadow with a yellow sun at the top right, a pink cat in the center and "
        "a red house at the bottom left."
    )


def test_a_sentence_may_hold_several_edits():
    command = parse("Remove the cat and the dog, add a red apple then paint the house blue.")
    assert command.edits == (
        Remove(CAT),
        Remove(Target("dog")),
        Add("apple", "red"),
        Recolour(HOUSE, "blue"),
    )


def test_keep_clauses():
    cases = [
        "Keep everything else unchanged.",
        "leave the rest as it is",
        "Do not change anything else!",
        "keep everything else exactly the same",
    ]
    for text in cases:
        assert parse(f"Remove the cat. {text}") == Command((Remove(CAT),), keep=True)
        assert parse(f"Remove the cat and {text}").keep


def test_numbers_add_several_things():
    add = Add("house", "red")
    assert parse("Draw two red houses").edits == (add, add)
    assert parse("Draw a beach with three trees.").edits == (Create("beach", (Add("tree"),) * 3),)


def test_pleas_and_unknown_words_ask_for_nothing():
    for text in ["Make it better.", "Please try harder!", "", "Sing a song", "!?"]:
        assert parse(text) == Command(())


def test_a_sentence_that_is_not_understood_does_not_affect_the_others():
    command = parse("Frobnicate the cat. Remove the house. Be nice to it.")
    assert command.edits == (Remove(HOUSE),)


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
