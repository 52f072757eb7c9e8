"""Pretraining of the vision tower alone: probes classify every cell of an image.

Captions alone teach shapes slowly, since each of their words says little about an image. Here
linear probes predict from every visual token its cell's kind, colour, flaw and background. They are
discarded afterwards: the tokens then encode all of it linearly for the language model.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from PIL import Image

from inference.sketch_world.critic import FLAWS
from inference.sketch_world.object_catalog import BACKGROUNDS, COLOURS, KINDS
from inference.sketch_world.renderer import Flaws
from inference.sketch_world.scene import Scene
from inference.sketch_world.seeded_random import bernoulli, pick, random_by

from .pretraining_samples import render_sample
from .scenes import random_thing

if TYPE_CHECKING:
    import torch

_OCCUPIED = 0.7  # share of cells
_FLAW = 0.15  # share of crooked, and of blemished cells
_NOTHING = 0  # index of an empty cell among kinds and colours


@dataclass(frozen=True)
class CellSample:
    """An image and the indices of its nine cells' kinds, colours, flaws and backgrounds."""

    image: Image.Image
    classes: tuple[list[int], ...]


def cell_sample(seed: int) -> CellSample:
    rng = random_by("sight", seed)
    cells = {cell: random_thing(rng) for cell in range(9) if bernoulli(rng, _OCCUPIED)}
    scene = Scene(pick(rng, BACKGROUNDS), cells)
    crooked = [cell for cell in cells if bernoulli(rng, _FLAW)]
    blemished = [c for c in range(9) if c not in crooked and bernoulli(rng, _FLAW)]
    kinds, colours = list(KINDS), list(COLOURS)
    classes = (
        [1 + kinds.index(cells[c].kind) if c in cells else _NOTHING for c in range(9)],
        [1 + colours.index(cells[c].colour) if c in cells else _NOTHING for c in range(9)],
        [1 if c in crooked else 2 if c in blemished else 0 for c in range(9)],
        [BACKGROUNDS.index(scene.background)] * 9,
    )
    return CellSample(render_sample(scene, Flaws(crooked, blemished, seed), seed), classes)


class Probes:
    """Linear probes on the visual tokens of the tower's last and of its deep features."""

    def __init__(self, width: int, seed: int) -> None:
        import torch

        self._sizes = (len(KINDS) + 1, len(COLOURS) + 1, len(FLAWS) + 1, len(BACKGROUNDS))
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.layers = torch.nn.ModuleList(
                torch.nn.Linear(width, sum(self._sizes)) for _ in range(2)
            )

    def loss(
        self, tokens: "Sequence[torch.Tensor]", samples: Sequence[CellSample]
    ) -> "torch.Tensor":
        """Mean cross entropy over cells, summed over classifications and both kinds of tokens.

        Each of the two `tokens` has the shape (9 x images, width).
        """
        import torch

        columns = zip(*(sample.classes for sample in samples), strict=True)
        classes = [torch.tensor(column).flatten() for column in columns]
        losses: list[torch.Tensor] = []
        for layer, features in zip(self.layers, tokens, strict=True):
            scores = layer(features).float().split(self._sizes, dim=1)
            losses += map(torch.nn.functional.cross_entropy, scores, classes)
        return torch.stack(losses).sum()
