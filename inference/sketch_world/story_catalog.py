"""Stories the planner can tell: data of `stories/*.yaml`, and how their slots are filled.

A story is a list of steps in the sketch world's own English with {slots}:

    flower:
      title: growing a {colour} flower
      asks: [grow flower, flower bloom]      # word beginnings; all words of one ask must occur
      free: false                            # true: places do not matter and may be left open
      slots:
        colour: {of: flower, choices: [red, yellow]}
      steps:
        - name: Plant the seed
          draw: Draw a meadow with a seed at the bottom center.
          say: Put the seed into the soil.   # the step's instruction
          tell: It all begins with a seed.   # its caption

Slots are filled from the request, else by a hash of it. `combinations` restricts slots to given
tuples of values (red and yellow make orange).
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import product
from pathlib import Path

from pydantic import Field, RootModel

from schemas.yaml_config import ConfigModel, load_document

from .object_catalog import BACKGROUNDS, COLOURS, KINDS
from .request_parser import Reading
from .seeded_random import KeyedRandom

_FOLDER = Path(__file__).parent / "stories"
_STRANGER = 4  # letters that a named thing which is not in a story counts against it
_USUAL = 0.4  # how often a slot that nothing is said about takes its usual value

Values = Mapping[str, str]


class CatalogSlot(ConfigModel):
    """What may stand in a slot: names of one sort (colours, things or backgrounds)."""

    choices: tuple[str, ...] = Field(min_length=1, description="Values, the usual one first")
    of: str | None = Field(None, description="Kind, or slot, that a colour belongs to")

    @property
    def sort(self) -> str:
        first = self.choices[0]
        return "colour" if first in COLOURS else "background" if first in BACKGROUNDS else "thing"


class CatalogStep(ConfigModel):
    """A step: what to draw, and what to say about it."""

    name: str = Field(description="A few words: the step's name")
    draw: str = Field(description="The edit, in the sketch world's English")
    say: str = Field(description="Instruction to whoever carries the step out")
    tell: str = Field(description="Caption for the reader")


class CatalogStory(ConfigModel):
    """A story of several steps."""

    title: str = Field(description="What it shows, as in `growing a red flower`")
    asks: tuple[str, ...] = Field(min_length=1, description="Words that ask for it")
    free: bool = Field(False, description="Places do not matter: prompts may leave them open")
    slots: dict[str, CatalogSlot] = Field(default_factory=dict, description="What varies")
    combinations: tuple[dict[str, str], ...] = Field((), description="Allowed values together")
    steps: tuple[CatalogStep, ...] = Field(min_length=3, description="In order")

    def asked(self, reading: Reading) -> int:
        """How well a request asks for this story: letters of its longest ask, less some for
        every thing it names that does not occur in the story; 0 or less: not at all."""
        letters = max((n for n, ask in self._asks if _all_occur(ask, reading.words)), default=0)
        if not letters:
            return 0
        strangers = set(reading.named("thing")) - self.kinds
        return letters - _STRANGER * len(strangers)

    @cached_property
    def _asks(self) -> tuple[tuple[int, tuple[str, ...]], ...]:
        """Number of letters and beginnings of words (a space before each) of every ask."""
        split = (ask.replace("-", " ").split() for ask in self.asks)
        return tuple((sum(map(len, ask)), tuple(f" {b}" for b in ask)) for ask in split)

    @cached_property
    def kinds(self) -> frozenset[str]:
        """Every kind that may occur in it."""
        texts = [step.draw for step in self.steps]
        chosen = [choice for slot in self.slots.values() for choice in slot.choices]
        return frozenset(Reading(" . ".join([*texts, *chosen])).named("thing"))

    def fill(self, reading: Reading, chance: KeyedRandom) -> Values:
        """Values for the slots: what the request names, else by chance."""
        values: dict[str, str] = {}
        for name, slot in self.slots.items():
            values[name] = self._value(name, slot, reading, values, chance)
        return self._combined(values, reading)

    def consistent(self, reading: Reading) -> list[Values]:
        """Every filling that agrees with what the request names: `fill` gives one of them.

        What it says nothing about may be anything, also what is named for something else.
        """
        partial: list[dict[str, str]] = [{}]
        for name, slot in self.slots.items():
            partial = [
                {**values, name: value}
                for values in partial
                for value in self._meant(slot, reading, values) or slot.choices
            ]
        told = [values for values in partial if not self._clash(values)] or partial
        combined = (self._combined(values, reading) for values in told)
        return list({tuple(values.values()): values for values in combined}.values())

    def fillings(self) -> Iterator[Values]:
        """All values the slots can take together."""
        if self.combinations:
            yield from self.combinations
            return
        for chosen in product(*(slot.choices for slot in self.slots.values())):
            values = dict(zip(self.slots, chosen, strict=True))
            if not self._clash(values):
                yield values

    def told(self, values: Values) -> tuple[CatalogStep, ...]:
        """The steps with their slots filled."""
        return tuple(_filled(step, values) for step in self.steps)

    def _value(
        self, name: str, slot: CatalogSlot, reading: Reading, values: Values, chance: KeyedRandom
    ) -> str:
        """The value that the request names, else the usual one or any."""
        choices = self._agreeing(slot, reading, values)
        usual = chance.happens(_USUAL, f"usual {name}")
        return choices[0] if usual else chance.pick(choices, name)

    def _agreeing(self, slot: CatalogSlot, reading: Reading, values: Values) -> Sequence[str]:
        """The value that is meant; else all that no other slot has."""
        return self._meant(slot, reading, values) or self._left(slot, values)

    def _meant(self, slot: CatalogSlot, reading: Reading, values: Values) -> list[str]:
        """The thing's own colour, else the first fitting name that is not taken, if any."""
        if own := self._own_colour(slot, reading, values):
            return [own]
        left = self._left(slot, values)
        return [name for name in self._names(slot, reading, values) if name in left][:1]

    def _left(self, slot: CatalogSlot, values: Values) -> list[str]:
        taken = [value for name, value in values.items() if self.slots[name].sort == slot.sort]
        return [choice for choice in slot.choices if choice not in taken]

    def _names(self, slot: CatalogSlot, reading: Reading, values: Values) -> list[str]:
        """What the request names of the slot's sort; not the colours of other things."""
        if slot.of and slot.sort == "colour":
            return reading.named_for(values.get(slot.of, slot.of))
        return reading.named(slot.sort)

    def _own_colour(self, slot: CatalogSlot, reading: Reading, values: Values) -> str | None:
        """The colour that the request gives the slot's owner, a usual one before any other."""
        if not slot.of:
            return None
        owner = values.get(slot.of, slot.of)
        legal = [c for c in reading.colours_of(owner) if c in KINDS[owner].colours]
        usual = [c for c in legal if c in slot.choices]
        return next(iter(usual or legal), None)

    def _clash(self, values: Values) -> bool:
        """Whether two slots that must differ are alike."""
        bare = [(s.sort, values[n]) for n, s in self.slots.items() if not s.of]
        every = [(s.sort, values[n]) for n, s in self.slots.items()]
        return any(every.count(value) > 1 for value in bare)

    def _combined(self, values: Values, reading: Reading) -> Values:
        if not self.combinations:
            return values
        named = {mention.name for mention in reading.mentions}

        def fit(combination: Values) -> tuple[int, int]:
            meant = sum(combination[n] in named for n in self.slots)
            return meant, sum(combination[n] == value for n, value in values.items())

        return max(self.combinations, key=fit)


class _CatalogFile(RootModel[dict[str, CatalogStory]]):
    """stories/*.yaml: name to story."""


@dataclass(frozen=True)
class StoryCatalog:
    """All stories by name."""

    stories: Mapping[str, CatalogStory]

    def choose(self, reading: Reading) -> CatalogStory | None:
        """The story that a request asks for most plainly, if any."""
        story = max(self.stories.values(), key=lambda story: story.asked(reading))
        return story if story.asked(reading) > 0 else None


@cache
def load_catalog() -> StoryCatalog:
    """The stories that come with the sketch world.

    Raises:
        DocumentError: a story file does not validate.
    """
    stories: dict[str, CatalogStory] = {}
    for path in sorted(_FOLDER.glob("*.yaml")):
        stories |= load_document(path, _CatalogFile).root
    return StoryCatalog(stories)


def fill_text(text: str, values: Values) -> str:
    """The text with its {slots} filled and its articles right."""
    return re.sub(r"\b([Aa]) (?=[aeiou])", r"\1n ", text.format_map(dict(values)))


def _filled(step: CatalogStep, values: Values) -> CatalogStep:
    filled = {
        part: fill_text(getattr(step, part), values) for part in ("name", "draw", "say", "tell")
    }
    texts = {part: text[:1].upper() + text[1:] for part, text in filled.items()}
    return step.model_copy(update=texts)


def _all_occur(beginnings: tuple[str, ...], words: str) -> bool:
    return all(beginning in words for beginning in beginnings)
