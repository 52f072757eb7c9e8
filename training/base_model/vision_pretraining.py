"""The first lessons: what is in each cell of a picture, told to the vision tower alone.

Captions alone teach shapes slowly, since a word of them says little about a picture. Here every
visual token is asked at once for its cell's kind, colour, flaw and background, through linear
probes that are thrown away afterwards, so the language model finds it all said plainly.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from PIL import Image

from inference.sketch_world.object_catalog import BACKGROUNDS, COLOURS, KINDS
from inference.sketch_world.renderer import Flaws
from inference.sketch_world.scene import Scene
from inference.sketch_world.seeded_random import happens, pick, random_by

from .pretraining_samples import FLAWS, picture
from .scenes import anything

if TYPE_CHECKING:
    import torch

_TAKEN = 0.7
_FLAW = 0.15
_NOTHING = 0  # index of "nothing here" among kinds and colours


@dataclass(frozen=True)
class CellSample:
    """A picture and, for each of its nine cells, an index per question."""

    picture: Image.Image
    kinds: tuple[int, ...]
    colours: tuple[int, ...]
    flaws: tuple[int, ...]
    background: int


def sight(seed: int) -> CellSample:
    """A crowded picture by seed."""
    rng = random_by("sight", seed)
    cells = {cell: anything(rng) for cell in range(9) if happens(rng, _TAKEN)}
    scene = Scene(pick(rng, BACKGROUNDS), cells)
    crooked = [cell for cell in cells if happens(rng, _FLAW)]
    blemished = [c for c in range(9) if c not in crooked and happens(rng, _FLAW)]
    flaws = Flaws(crooked, blemished, seed)
    kinds, colours = list(KINDS), list(COLOURS)
    return CellSample(
        picture(scene, flaws, seed),
        tuple(1 + kinds.index(cells[c].kind) if c in cells else _NOTHING for c in range(9)),
        tuple(1 + colours.index(cells[c].colour) if c in cells else _NOTHING for c in range(9)),
        tuple(1 if c in crooked else 2 if c in blemished else 0 for c in range(9)),
        BACKGROUNDS.index(scene.background),
    )


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
        self, tokens: "Sequence[torch.Tensor]", sights: Sequence[CellSample]
    ) -> "torch.Tensor":
        """Mean cross entropy over cells and questions, summed over both kinds of tokens.

        Args:
            tokens: two tensors of shape (9 x pictures, width).
        """
        import torch

        answers = _answers(sights)
        losses = [
            torch.nn.functional.cross_entropy(scores.float(), answer)
            for layer, features in zip(self.layers, tokens, strict=True)
            for scores, answer in zip(
                layer(features).split(self._sizes, dim=1), answers, strict=True
            )
        ]
        return torch.stack(losses).sum()


def _answers(sights: Sequence[CellSample]) -> "list[torch.Tensor]":
    """Indices of kinds, colours, flaws and backgrounds, each of shape (9 x pictures,)."""
    import torch

    columns = (
        [index for sight in sights for index in sight.kinds],
        [index for sight in sights for index in sight.colours],
        [index for sight in sights for index in sight.flaws],
        [sight.background for sight in sights for _ in range(9)],
    )
    return [torch.tensor(column) for column in columns]
