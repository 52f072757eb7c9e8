"""The tasks of each shape: how requests are worded, and what a right answer shows."""

from collections.abc import Callable, Sequence
from random import Random

from inference.sketch_world.object_catalog import KINDS, PLACES
from inference.sketch_world.prompt_writer import join_with_and, with_article
from inference.sketch_world.scene import Scene, Thing

from .sketch_tasks import NUMBERS, Draft, Requirement, Task, counted, noun_of

_SIDES = {
    "at the top": (0, 1, 2),
    "at the bottom": (6, 7, 8),
    "on the left side": (0, 3, 6),
    "on the right side": (2, 5, 8),
}
_CORNERS = (0, 2, 6, 8)
_MIXTURES = {
    "orange": ("red", "yellow"),
    "green": ("blue", "yellow"),
    "purple": ("red", "blue"),
    "pink": ("red", "white"),
    "gray": ("black", "white"),
}
_GIVEN = 2  # pictures that a continuation begins with


def write_task(shape: str, skill: str, difficulty: int, rng: Random) -> Task:
    draft = Draft(skill, difficulty, rng)
    writers: dict[str, Callable[[Draft], Task]] = {
        "interleaved": lambda draft: _growing(draft, given=0),
        "continuation": lambda draft: _growing(draft, given=_GIVEN),
        "inferred": lambda draft: _INFERRED[skill](draft),
        "edits": lambda draft: _EDITS[skill](draft),
    }
    return writers[shape](draft)


def _growing(draft: Draft, given: int) -> Task:
    """Pictures with one more thing each, from text or after given ones."""
    skill, rng, named = draft.skill, draft.rng, draft.skill == "colour"
    things = draft.things(3 if skill == "count" else 2 + draft.difficulty, coloured=named)
    copies = rng.randint(2, draft.difficulty + 1) if skill == "count" else 1
    new = [things[0]] * copies + things[1 : 2 if given and skill == "count" else None]
    old = draft.things(given)
    scenes = draft.scenes([*old, *new])
    final = scenes[-1]
    placed = dict(zip(draft.cells[given:], new, strict=False))
    words: dict[Thing, str] = {thing: noun_of(thing, named) for thing in things}
    words[things[0]] = counted(things[0], copies) if copies > 1 else words[things[0]]
    required = [Requirement(t.kind, t.colour if named else None, new.count(t)) for t in set(new)]
    required = sorted(required, key=lambda requirement: str(requirement.kind))
    tail = ""
    if skill == "position":
        required, places = _placed(draft, placed)
        words |= {thing: f"{words[thing]} {place}" for thing, place in places.items()}
    elif skill == "memory":
        required = _remembered(scenes[given:])
        tail = ". Keep everything that is there already"
    elif skill == "negation" and rng.random() < 0.5:
        unwanted = draft.thing()
        required.append(Requirement(unwanted.kind, count=0))
        tail = f", but no {unwanted.kind}"
    elif skill == "negation":
        required.append(Requirement(None, count=len(final.cells)))
        tail = ", and nothing else"
    contents = join_with_and([words[thing] for thing in dict.fromkeys(new)])
    if given:
        opening = f"{'<image> ' * given}Continue these pictures, thing by thing: add "
    else:
        surface, pictures = with_article(draft.background), NUMBERS[len(new)]
        opening = f"Draw {surface} in {pictures} pictures, thing by thing: "
    return draft.task(f"{opening}{contents}{tail}.", scenes[given:], required, scenes[:given])


def _placed(draft: Draft, placed: dict[int, Thing]) -> tuple[list[Requirement], dict[Thing, str]]:
    """Requirements on the places of some things, and their words: sides, then exact cells."""
    required, words = [], {}
    for cell, thing in list(placed.items())[: draft.difficulty]:
        sides = [side for side, cells in _SIDES.items() if cell in cells]
        if draft.difficulty == 1 and sides:
            words[thing] = draft.rng.choice(sides)
            cells: tuple[int, ...] = _SIDES[words[thing]]
        else:
            words[thing] = f"{'in' if PLACES[cell] == 'center' else 'at'} the {PLACES[cell]}"
            cells = (cell,)
        required.append(Requirement(thing.kind, cells=cells))
    return required, words


def _remembered(scenes: Sequence[Scene]) -> list[Requirement]:
    """Every picture has all the things of its scene."""
    return [
        Requirement(thing.kind, picture=number - len(scenes))
        for number, scene in enumerate(scenes)
        for thing in scene.cells.values()
    ]


def _opposite_corner(draft: Draft) -> Task:
    things = draft.things(2 + draft.difficulty)
    corners = draft.rng.sample(_CORNERS, draft.difficulty)
    draft.cells = [*corners, *(cell for cell in draft.cells if cell not in corners)]
    nouns = [noun_of(thing) for thing in things]
    for number, corner in enumerate(corners):
        nouns[number] += f" in the corner farthest from the {PLACES[8 - corner]}"
    required = [
        Requirement(thing.kind, cells=(corner,))
        for thing, corner in zip(things, corners, strict=False)
    ]
    text = f"Draw {with_article(draft.background)} with {join_with_and(nouns)}."
    return draft.task(text, [draft.scene(things)], required)


def _mixed_colour(draft: Draft) -> Task:
    colours = draft.rng.sample(sorted(_MIXTURES), draft.difficulty)
    mixed = [Thing(draft.thing().kind, colour) for colour in colours]
    others = draft.things(2)
    nouns = [noun_of(thing) for thing in others]
    for thing in mixed:
        parts = join_with_and(_MIXTURES[thing.colour])
        nouns.append(f"{noun_of(thing)} in the colour that {parts} give together")
    required = [Requirement(thing.kind, thing.colour) for thing in mixed]
    text = f"Draw {with_article(draft.background)} with {join_with_and(nouns)}."
    return draft.task(text, [draft.scene([*others, *mixed])], required)


def _sum(draft: Draft) -> Task:
    thing, *others = draft.things(3)
    first, second = (draft.rng.randint(1, 1 + draft.difficulty // 2) for _ in range(2))
    leaves = draft.difficulty > 1 or draft.rng.random() < 0.5
    parts = [counted(thing, first), *map(noun_of, others)]
    text = f"A picture of {with_article(draft.background)} shows {join_with_and(parts)}. "
    text += f"{counted(thing, second, 'more ').capitalize()} {'joins' if second == 1 else 'join'}. "
    text += f"One {thing.kind} goes. " if leaves else ""
    total = first + second - leaves
    required = [Requirement(thing.kind, count=total), *(Requirement(o.kind) for o in others)]
    scene = draft.scene([*[thing] * total, *others])
    return draft.task(f"{text}Draw the picture now.", [scene], required)


def _remember_events(draft: Draft) -> Task:
    things = draft.things(2 + draft.difficulty)
    leaves = draft.difficulty > 1 or draft.rng.random() < 0.5
    gone = things[: int(leaves)]
    events = [f"{noun_of(thing).capitalize()} comes." for thing in things]
    events += [f"The {thing.kind} goes." for thing in gone]
    required = [Requirement(thing.kind, count=int(thing not in gone)) for thing in things]
    text = f"There is an empty {draft.background}. {' '.join(events)} Draw the picture now."
    return draft.task(text, [draft.scene(things[len(gone) :])], required)


def _all_but(draft: Draft) -> Task:
    things = draft.things(3 + draft.difficulty)
    left_out, *kept = things
    nouns = join_with_and([noun_of(thing) for thing in sorted(things, key=lambda t: t.kind)])
    surface = with_article(draft.background)
    text = f"Think of {nouns}. Draw {surface} with all of them but the {left_out.kind}."
    required = [*(Requirement(t.kind) for t in kept), Requirement(left_out.kind, count=0)]
    return draft.task(text, [draft.scene(kept)], required)


def _edit(
    draft: Draft, text: str, given: Sequence[Scene], after: Scene, free: str | None = None
) -> Task:
    """An edit of the last given picture; everything is where `after` has it, but kind `free`."""
    required = [
        Requirement(thing.kind, thing.colour, cells=(cell,))
        for cell, thing in sorted(after.cells.items())
        if thing.kind != free
    ]
    if free:
        count = sum(thing.kind == free for thing in after.cells.values())
        required.append(Requirement(free, count=count))
    required.append(Requirement(None, count=len(after.cells)))
    return draft.task(f"{'<image> ' * len(given)}{text}", [after], required, given)


def _swap(draft: Draft) -> Task:
    first, second, *others = draft.things(2 + draft.difficulty, coloured=True)
    before, after = draft.scene([first, second, *others]), draft.scene([second, first, *others])
    text = f"Let the {first.kind} and the {second.kind} change places."
    return _edit(draft, text, [before], after)


def _same_colour(draft: Draft) -> Task:
    model, *others = draft.things(1 + draft.difficulty, coloured=True)
    colours = [colour for colour in KINDS["ball"].colours if colour != model.colour]
    painted = Thing(draft.thing().kind, draft.rng.choice(colours))
    before = draft.scene([painted, model, *others])
    after = draft.scene([Thing(painted.kind, model.colour), model, *others])
    text = f"Paint the {painted.kind} in the colour of the {model.kind}."
    return _edit(draft, text, [before], after)


def _double(draft: Draft) -> Task:
    thing, *others = draft.things(2)
    count = draft.rng.randint(1, 1 + draft.difficulty // 2)
    before = [*others, *[thing] * count]
    after = draft.scene([*before, *[thing] * count])
    text = f"Draw twice as many {KINDS[thing.kind].plural}."
    return _edit(draft, text, [draft.scene(before)], after, free=thing.kind)


def _put_back(draft: Draft) -> Task:
    things = draft.things(2 + draft.difficulty, coloured=True)
    first = draft.scene(things)
    lost = Scene(first.background, dict(list(first.cells.items())[(draft.difficulty + 1) // 2 :]))
    text = "Draw the second picture again with everything that the first has and it has lost."
    return _edit(draft, text, [first, lost], first)


def _keep_only(draft: Draft) -> Task:
    things = draft.things(2 + draft.difficulty, coloured=True)
    text = f"Remove everything that is not a {things[0].kind}."
    return _edit(draft, text, [draft.scene(things)], draft.scene(things[:1]))


_INFERRED: dict[str, Callable[[Draft], Task]] = {
    "position": _opposite_corner,
    "colour": _mixed_colour,
    "count": _sum,
    "memory": _remember_events,
    "negation": _all_but,
}
_EDITS: dict[str, Callable[[Draft], Task]] = {
    "position": _swap,
    "colour": _same_colour,
    "count": _double,
    "memory": _put_back,
    "negation": _keep_only,
}
