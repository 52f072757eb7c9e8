"""The teacher critic: compares pixels with the goal, explains itself and rewrites the prompt.

Its verdict is wrong at a set rate, in both directions and always with a reasoning that fits the
verdict; its rewrites vary in quality: most are exact, some a vague plea, some a repeat.
"""

from dataclasses import replace

import numpy as np

from warehouse import EncodedImage

from ..roles import Verdict
from .comparison import Comparison, compare, overlook_defects
from .object_catalog import KINDS, PLACES
from .perception import Perception
from .prompt_parser import parse
from .prompt_writer import phrase_command, phrase_noun
from .scene import (
    ANYWHERE,
    Add,
    Command,
    Create,
    Edit,
    Move,
    Recolour,
    Remove,
    Replace,
    Target,
    Thing,
)
from .seeded_random import bernoulli, pick, random_by
from .settings import CriticRates, hashed_name

_REVISION = 2  # raise when the critic's behaviour changes
_PLEAS = ("Please try again, more carefully.", "Make it better.", "Try harder.")
_CENTER = 4


def model_name(rates: CriticRates) -> str:
    """Changes with everything that changes verdicts."""
    return hashed_name(f"sketch-critic-{_REVISION}", rates)


def judge(
    before: EncodedImage | None,
    after: EncodedImage,
    instruction: str,
    prompt: str,
    rates: CriticRates,
) -> Verdict:
    """Accept an image or rewrite its prompt; arguments as for `roles.Critic`. Deterministic."""
    rng = random_by("critic", before and before.sha256, after.sha256, instruction, prompt)
    comparison = compare(before, after, instruction)
    if bernoulli(rng, rates.error):
        comparison = _invert_verdict(comparison, rng)
    reasoning = _explain(comparison, instruction)
    if comparison.is_fulfilled:
        return Verdict(True, "", reasoning)
    return Verdict(False, _rewrite(comparison, instruction, prompt, rates, rng), reasoning)


def _rewrite(
    comparison: Comparison,
    instruction: str,
    prompt: str,
    rates: CriticRates,
    rng: np.random.Generator,
) -> str:
    """A repeat, a vague plea, or the exact edit with every place and colour named."""
    sample = float(rng.random())
    if sample < rates.repeat or not comparison.exact_edits:
        return prompt or instruction
    if sample < rates.repeat + rates.vague:
        return f"{pick(rng, _PLEAS)} {phrase_command(_make_vague(parse(instruction)))}"
    return phrase_command(_exact_command(comparison))


def _exact_command(comparison: Comparison) -> Command:
    """The goal in its clearest wording: every kind, colour and cell, and a keep clause."""
    edits: list[Edit] = []
    for edit in comparison.exact_edits:
        last = edits[-1] if edits else None
        if isinstance(edit, Add) and isinstance(last, Create):
            edits[-1] = Create(last.background, (*last.things, edit))
        else:
            edits.append(edit)
    return Command(tuple(edits), keep=not comparison.is_from_scratch)


def _explain(comparison: Comparison, instruction: str) -> str:
    """The goal, a sentence for every cell that is or should be occupied, the conclusion.

    Cell by cell, because a model that learns from it must compare and not guess.
    """
    sentences = [f"Asked for: {instruction.strip()}"]
    if not comparison.edit_count:
        sentences.append("I cannot tell what this asks for.")
    if comparison.impossible:
        sentences.append("A part of it is impossible here.")
    sentences += [_background_sentence(comparison), *_cell_sentences(comparison)]
    sentences.append("The step succeeded." if comparison.is_fulfilled else "The step failed.")
    return "\n".join(sentences)


def _background_sentence(comparison: Comparison) -> str:
    expected, actual = comparison.expected.background, comparison.actual.background
    return f"Background: want {expected}, see {actual}, {_right_or_wrong(expected == actual)}."


def _cell_sentences(comparison: Comparison) -> list[str]:
    perception = comparison.perception
    cells = {
        *comparison.expected.cells,
        *comparison.actual.cells,
        *perception.crooked,
        *perception.blemished,
    }
    return [_cell_sentence(comparison, cell) for cell in sorted(cells)]


def _cell_sentence(comparison: Comparison, cell: int) -> str:
    expected = comparison.expected.cells.get(cell)
    actual = comparison.actual.cells.get(cell)
    place = PLACES[cell].capitalize()
    return (
        f"{place}: want {_name(expected)}, see {_name(actual)}, {_cell_status(comparison, cell)}."
    )


def _cell_status(comparison: Comparison, cell: int) -> str:
    """`wrong` takes precedence; a right thing may still be drawn badly."""
    if comparison.expected.cells.get(cell) != comparison.actual.cells.get(cell):
        return _right_or_wrong(False)
    if cell in comparison.perception.crooked:
        return "crooked"
    return "scribbled" if cell in comparison.perception.blemished else _right_or_wrong(True)


def _right_or_wrong(is_right: bool) -> str:
    return "right" if is_right else "wrong"


def _name(thing: Thing | None) -> str:
    return phrase_noun(thing.kind, thing.colour) if thing else "nothing"


def _invert_verdict(comparison: Comparison, rng: np.random.Generator) -> Comparison:
    """A comparison with a misperception that leads to the opposite verdict."""
    if not comparison.is_fulfilled:
        return overlook_defects(comparison)
    scene = comparison.actual
    cells = [c for c in comparison.relevant_cells if c in scene.cells] or sorted(scene.cells)
    if not cells:
        return replace(comparison, perception=Perception(scene, blemished=frozenset({_CENTER})))
    cell = pick(rng, cells)
    misread = scene.with_cell(cell, _misread(scene.cells[cell], rng))
    return replace(comparison, perception=Perception(misread))


def _misread(thing: Thing, rng: np.random.Generator) -> Thing | None:
    """The thing in another colour; None if its kind has only one colour."""
    others = [colour for colour in KINDS[thing.kind].colours if colour != thing.colour]
    return Thing(thing.kind, pick(rng, others)) if others else None


def _make_vague(command: Command) -> Command:
    """The command without places and colours."""
    return Command(tuple(_make_edit_vague(edit) for edit in command.edits))


def _make_edit_vague(edit: Edit) -> Edit:
    match edit:
        case Create(background, things):
            return Create(background, tuple(Add(thing.kind) for thing in things))
        case Add(kind):
            return Add(kind)
        case Remove(target):
            return Remove(_vague_target(target))
        case Recolour(target, colour):
            return Recolour(_vague_target(target), colour)
        case Move(target, place):
            return Move(_vague_target(target), place if place.cell is None else ANYWHERE)
        case Replace(target, kind):
            return Replace(_vague_target(target), kind)
        case _:
            return edit


def _vague_target(target: Target) -> Target:
    return Target(target.kind, None if target.kind else target.colour)
