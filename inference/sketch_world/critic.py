"""The teacher critic: compares pixels with the goal, explains itself and rewrites the prompt.

Its verdict is wrong at a set rate, in both directions and always with a reasoning that fits the
verdict; its rewrites vary in quality: most are exact, some a vague plea, some a repeat.
"""

from dataclasses import replace

import numpy as np

from warehouse import EncodedImage

from ..roles import Verdict
from .object_catalog import KINDS, PLACES
from .perception import Perception
from .prompt_parser import parse
from .prompt_writer import make_vague, name_thing, phrase
from .renderer import Flaws
from .scene import Add, Command, Create, Edit, Scene, Thing
from .scorer import Comparison, compare
from .seeded_random import bernoulli, pick, random_by
from .settings import CriticRates, hashed_name

_REVISION = 2  # raise when the critic's behaviour changes
_PLEAS = ("Please try again, more carefully.", "Make it better.", "Try harder.")
_CENTER = 4
FLAWS = ("crooked", "scribbled")
# Labels of two contents, and their marks when they are equal and when they differ.
Labels = tuple[str, str, str, str]
EXPECTED_LABELS = ("want", "see", "right", "wrong")
EARLIER_LABELS = ("was", "see", "same", "changed")


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
    sample = float(rng.random())
    if sample < rates.repeat or not comparison.exact_edits:
        rewrite = prompt or instruction
    elif sample < rates.repeat + rates.vague:
        vague = tuple(map(make_vague, parse(instruction).edits))
        rewrite = f"{pick(rng, _PLEAS)} {phrase(Command(vague))}"
    else:
        rewrite = phrase(_exact_command(comparison))
    return Verdict(False, rewrite, reasoning)


def _exact_command(comparison: Comparison) -> Command:
    """Every kind, colour and cell, and a keep clause."""
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
    sentences += compare_cells(comparison.expected, comparison.actual, comparison.perception)
    sentences.append("The step succeeded." if comparison.is_fulfilled else "The step failed.")
    return "\n".join(sentences)


def compare_cells(
    one: Scene, other: Scene, flaws: Flaws | Perception, labels: Labels = EXPECTED_LABELS
) -> list[str]:
    """Sentences that compare two scenes: the background, and every occupied or flawed cell."""
    sentences = [compare_names("Background", one.background, other.background, labels)]
    for cell in sorted({*one.cells, *other.cells, *flaws.crooked, *flaws.blemished}):
        names = name_thing(one.cells.get(cell)), name_thing(other.cells.get(cell))
        sentences.append(compare_names(label_cell(cell), *names, labels, name_flaw(cell, flaws)))
    return sentences


def compare_names(label: str, one: str, other: str, labels: Labels, flaw: str = "") -> str:
    """Two names and their mark; a flaw replaces the mark of equal names."""
    first, second, equal, different = labels
    mark = (flaw or equal) if one == other else different
    return f"{label}: {first} {one}, {second} {other}, {mark}."


def label_cell(cell: int) -> str:
    return PLACES[cell].capitalize()


def name_flaw(cell: int, flaws: Flaws | Perception) -> str:
    """Empty: the cell has none."""
    if cell in flaws.crooked:
        return FLAWS[0]
    return FLAWS[1] if cell in flaws.blemished else ""


def _invert_verdict(comparison: Comparison, rng: np.random.Generator) -> Comparison:
    """A comparison with a misperception that leads to the opposite verdict."""
    if not comparison.is_fulfilled:  # as if the image showed exactly what is expected
        perception, edit_count = Perception(comparison.expected), max(1, comparison.edit_count)
        return replace(comparison, perception=perception, edit_count=edit_count, impossible=0)
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
