"""The teacher critic: looks at the pixels, compares, explains itself and rewrites the prompt.

It is imperfect by a set rate, in both directions and always with a reasoning that fits its
verdict; its rewrites vary in quality: most are exact, some a vague plea, some a repeat.
"""

from dataclasses import replace

import numpy as np

from warehouse import EncodedImage

from ..roles import Verdict
from .comparison import Comparison, compare, overlooking
from .object_catalog import KINDS, PLACES
from .perception import Perceived
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
from .seeded_random import happens, pick, random_by
from .settings import SketchSettings, model_name

_REVISION = 2  # raise when the critic's behaviour changes
_PLEAS = ("Please try again, more carefully.", "Make it better.", "Try harder.")


class SketchCritic:
    """Plays the critic; the same pictures and texts always get the same verdict."""

    backend = "sketch"

    def __init__(self, settings: SketchSettings | None = None) -> None:
        self._rates = (settings or SketchSettings()).critic
        self.model = model_name(f"sketch-critic-{_REVISION}", self._rates)

    async def judge(
        self, before: EncodedImage | None, after: EncodedImage, instruction: str, prompt: str
    ) -> Verdict:
        """Accept a picture or rewrite its prompt."""
        return self.verdict(before, after, instruction, prompt)

    def verdict(
        self, before: EncodedImage | None, after: EncodedImage, instruction: str, prompt: str
    ) -> Verdict:
        """`judge` without waiting: a few milliseconds of computation."""
        rng = random_by("critic", before and before.sha256, after.sha256, instruction, prompt)
        comparison = compare(before, after, instruction)
        if happens(rng, self._rates.error):
            comparison = _mistaken(comparison, rng)
        accepted = comparison.fulfilled
        refined = "" if accepted else self._rewritten(comparison, instruction, prompt, rng)
        return Verdict(accepted, refined, explained(comparison, instruction))

    def _rewritten(
        self, comparison: Comparison, instruction: str, prompt: str, rng: np.random.Generator
    ) -> str:
        """A repeat, a vague plea, or the exact edit with every place and colour named."""
        luck = float(rng.random())
        if luck < self._rates.repeat or not comparison.done:
            return prompt or instruction
        if luck < self._rates.repeat + self._rates.vague:
            return f"{pick(rng, _PLEAS)} {phrase_command(_blurred(parse(instruction)))}"
        return phrase_command(exactly(comparison))


def exactly(comparison: Comparison) -> Command:
    """The goal in its clearest wording: every kind, colour and cell, and a keep clause."""
    edits: list[Edit] = []
    for edit in comparison.done:
        last = edits[-1] if edits else None
        if isinstance(edit, Add) and isinstance(last, Create):
            edits[-1] = Create(last.background, (*last.things, edit))
        else:
            edits.append(edit)
    return Command(tuple(edits), keep=not comparison.from_scratch)


def explained(comparison: Comparison, instruction: str) -> str:
    """The goal in its words, a sentence for every cell that is or should be taken, the conclusion.

    Cell by cell, because a model that learns from it must compare and not guess.
    """
    sentences = [f"Asked for: {instruction.strip()}"]
    if not comparison.asked:
        sentences.append("I cannot tell what this asks for.")
    if comparison.impossible:
        sentences.append("A part of it is impossible here.")
    sentences += [_background_sentence(comparison), *_cell_sentences(comparison)]
    sentences.append("The step succeeded." if comparison.fulfilled else "The step failed.")
    return "\n".join(sentences)


def _background_sentence(comparison: Comparison) -> str:
    wanted, seen = comparison.wanted.background, comparison.seen.scene.background
    return f"Background: want {wanted}, see {seen}, {_mark(wanted == seen)}."


def _cell_sentences(comparison: Comparison) -> list[str]:
    seen = comparison.seen
    taken = {*comparison.wanted.cells, *seen.scene.cells, *seen.crooked, *seen.blemished}
    return [_cell_sentence(comparison, cell) for cell in sorted(taken)]


def _cell_sentence(comparison: Comparison, cell: int) -> str:
    wanted = comparison.wanted.cells.get(cell)
    seen = comparison.seen.scene.cells.get(cell)
    place = PLACES[cell].capitalize()
    return f"{place}: want {_name(wanted)}, see {_name(seen)}, {_verdict(comparison, cell)}."


def _verdict(comparison: Comparison, cell: int) -> str:
    """`wrong` before all else; a right thing may still be drawn badly."""
    wanted = comparison.wanted.cells.get(cell)
    if wanted != comparison.seen.scene.cells.get(cell):
        return _mark(False)
    if cell in comparison.seen.crooked:
        return "crooked"
    return "scribbled" if cell in comparison.seen.blemished else _mark(True)


def _mark(right: bool) -> str:
    return "right" if right else "wrong"


def _name(thing: Thing | None) -> str:
    return phrase_noun(thing.kind, thing.colour) if thing else "nothing"


def _mistaken(comparison: Comparison, rng: np.random.Generator) -> Comparison:
    """What somebody sees who judges the other way round."""
    if not comparison.fulfilled:
        return overlooking(comparison)
    scene = comparison.seen.scene
    cells = [c for c in comparison.relevant if c in scene.cells] or sorted(scene.cells)
    if not cells:
        return replace(comparison, seen=Perceived(scene, blemished=frozenset({4})))
    cell = pick(rng, cells)
    misread = scene.with_cell(cell, _misread(scene.cells[cell], rng))
    return replace(comparison, seen=Perceived(misread))


def _misread(thing: Thing, rng: np.random.Generator) -> Thing | None:
    """The thing in another colour; one that has only one colour is not seen at all."""
    others = [colour for colour in KINDS[thing.kind].colours if colour != thing.colour]
    return Thing(thing.kind, pick(rng, others)) if others else None


def _blurred(command: Command) -> Command:
    """The command without its places and colours, as somebody would put it who is vague."""
    return Command(tuple(_blur(edit) for edit in command.edits))


def _blur(edit: Edit) -> Edit:
    match edit:
        case Create(background, things):
            return Create(background, tuple(Add(thing.kind) for thing in things))
        case Add(kind):
            return Add(kind)
        case Remove(target):
            return Remove(_vaguely(target))
        case Recolour(target, colour):
            return Recolour(_vaguely(target), colour)
        case Move(target, place):
            return Move(_vaguely(target), place if place.cell is None else ANYWHERE)
        case Replace(target, kind):
            return Replace(_vaguely(target), kind)
        case _:
            return edit


def _vaguely(target: Target) -> Target:
    return Target(target.kind, None if target.kind else target.colour)
