"""The sketch generator: reads a prompt, draws it on the last picture, and makes mistakes.

How likely each mistake is depends on the wording (`settings.MistakeRates`, measured in
`docs/sketch.md`), so that a better prompt really helps.
"""

from collections.abc import Iterable, Sequence

import numpy as np

from warehouse import EncodedImage

from .error_model import collateral, colour_rate, place_rate, wrong_colour, wrong_kind, wrong_place
from .perception import perceive_cached
from .prompt_parser import parse
from .renderer import Flaws, render
from .scene import Add, Command, Create, Edit, Move, Recolour, Remove, Replace, Scene
from .scene_edits import applied, readings, simple_edits
from .seeded_random import happens, pick, random_by
from .settings import SketchSettings, model_name

_REVISION = 1  # raise when the generator's behaviour changes


class SketchGenerator:
    """Plays the generator; the same prompt, pictures and seed always give the same picture."""

    backend = "sketch"

    def __init__(self, settings: SketchSettings | None = None) -> None:
        self._settings = settings or SketchSettings()
        self._rates = self._settings.mistakes
        name = f"sketch-generator-{_REVISION}"
        self.model = model_name(name, self._settings.picture_size, self._rates)

    async def generate(
        self, prompt: str, images: Sequence[EncodedImage], seed: int
    ) -> EncodedImage:
        """Draw the prompt on the last picture, or from scratch."""
        return self.draw(prompt, images, seed)

    def draw(self, prompt: str, images: Sequence[EncodedImage], seed: int) -> EncodedImage:
        """`generate` without waiting: a few milliseconds of computation."""
        rng = random_by("generator", prompt, tuple(image.sha256 for image in images), seed)
        before = perceive_cached(images[-1]).scene if images else None
        command = parse(prompt)
        scene = self.attempt(command, before, rng)
        flaws = self._flaws(scene, rng) if command.edits else None
        return EncodedImage.of(render(scene, self._settings.picture_size, flaws))

    def attempt(self, command: Command, before: Scene | None, rng: np.random.Generator) -> Scene:
        """The scene that gets drawn: the command carried out, perhaps with mistakes."""
        edits = list(simple_edits(command))
        scene = before or Scene()
        for edit in edits:
            scene = self._edited(edit, scene, len(edits), rng)
        rates = self._rates.collateral
        rate = rates.kept if command.keep else rates.unasked
        if before and edits and not isinstance(edits[0], Create) and happens(rng, rate):
            scene = collateral(before, scene, rng)
        return scene

    def _edited(self, edit: Edit, scene: Scene, crowd: int, rng: np.random.Generator) -> Scene:
        """The scene after one edit, which may be forgotten or go wrong."""
        options = readings(edit, scene)
        crowding = 1 + self._rates.crowding * (crowd - 1)
        forgotten = happens(rng, self._rates.nothing * crowding)
        if not options or (forgotten and not isinstance(edit, Create)):
            return scene
        exact = pick(rng, options)
        if happens(rng, self._rates.kind * crowding):
            exact = wrong_kind(exact, rng) or exact
        if happens(rng, colour_rate(edit, self._rates)):
            exact = wrong_colour(exact, rng) or exact
        if happens(rng, place_rate(edit, self._rates)):
            exact = wrong_place(exact, _places(options), scene, rng) or exact
        return applied(exact, scene)

    def _flaws(self, scene: Scene, rng: np.random.Generator) -> Flaws:
        """Crooked things and scribbles."""
        cells = sorted(scene.cells)
        crooked = happens(rng, self._rates.crooked) and cells
        blemished = happens(rng, self._rates.blemish)
        return Flaws(
            crooked=[pick(rng, cells)] if crooked else [],
            blemished=[int(rng.integers(9))] if blemished else [],
            seed=int(rng.integers(2**31)),
        )


def _places(options: Iterable[Edit]) -> set[int]:
    """The cells where the edit would be right."""
    cells = set()
    for option in options:
        match option:
            case Add(place=place) | Move(place=place):
                cells.add(place.cell)
            case Remove(target) | Recolour(target) | Replace(target):
                cells.add(target.cell)
    return {cell for cell in cells if cell is not None}
