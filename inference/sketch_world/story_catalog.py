"""Stories the planner knows: data of `stories/*.yaml`, and how their slots are filled.

A story is a list of steps in the sketch world's own English with {slots}:

    flower:
      title: growing a {colour} flower
      asks: [grow flower, flower bloom]      # word prefixes; all of one entry must occur
      free: false                            # true: cells do not matter; prompts may omit them
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
from collections.abc import Iterator, Mapping
from functools import cache, cached_property
from itertools import product
from pathlib import Path

from pydantic import Field, RootModel

from schemas.yaml_config import ConfigModel, load_document

from .object_catalog import BACKGROUNDS, COLOURS, KINDS
from .request_parser import RequestText
from .seeded_random import KeyedRandom

_FOLDER = Path(__file__).parent / "stories"
_OTHER_THING_PENALTY = 4  # letters, for every named thing that is not in the story
_DEFAULT_RATE = 0.4  # how often a slot that the request leaves open takes its default value

Values = Mapping[str, str]


class CatalogSlot(ConfigModel):
    """The values of a slot: names of one sort (colours, things or backgrounds)."""

    choices: tuple[str, ...] = Field(min_length=1, description="Values, the default first")
    of: str | None = Field(None, description="Kind, or slot, that a colour belongs to")

    @property
    def sort(self) -> str:
        first = self.choices[0]
        return "colour" if first in COLOURS else "background" if first in BACKGROUNDS else "thing"


class CatalogStep(ConfigModel):
    """A step: what to draw, and what to say about it."""

    name: str = Field(description="A few words: the step's name")
    draw: str = Field(description="The edit, in the sketch world's English")
    say: str = Field(description="Instruction of the step")
    tell: str = Field(description="Caption of the image")

    def fill(self, values: Values) -> "CatalogStep":
        """With its slots filled and a capital first."""
        filled = {part: fill_text(text, values) for part, text in self}
        return CatalogStep(**{part: text[:1].upper() + text[1:] for part, text in filled.items()})


class CatalogStory(ConfigModel):
    """A story of several steps."""

    title: str = Field(description="What it shows, such as `growing a red flower`")
    asks: tuple[str, ...] = Field(
        min_length=1, description="Word prefixes that requests for it contain"
    )
    free: bool = Field(False, description="Cells do not matter: prompts may omit them")
    slots: dict[str, CatalogSlot] = Field(default_factory=dict, description="What varies")
    combinations: tuple[dict[str, str], ...] = Field((), description="Allowed values together")
    steps: tuple[CatalogStep, ...] = Field(min_length=3, description="In order")

    def match_score(self, text: RequestText) -> int:
        """How well a request matches this story: letters of its longest matching entry of
        `asks`, less some for every named thing that is not in the story; 0 or less: no match."""
        matches = (ask for ask in self._asks if all(f" {part}" in text.words for part in ask))
        letters = max((len("".join(ask)) for ask in matches), default=0)
        others = set(text.names_of("thing")) - self.kinds
        return letters - _OTHER_THING_PENALTY * len(others) if letters else 0

    @cached_property
    def _asks(self) -> list[list[str]]:
        return [ask.replace("-", " ").split() for ask in self.asks]

    @cached_property
    def kinds(self) -> frozenset[str]:
        """All kinds of things that can occur in it."""
        texts = [step.draw for step in self.steps]
        choices = [choice for slot in self.slots.values() for choice in slot.choices]
        return frozenset(RequestText(" . ".join([*texts, *choices])).names_of("thing"))

    @cached_property
    def words(self) -> frozenset[str]:
        """The words that tell it, in lower case."""
        texts = [*self.asks, self.title]
        texts += [text for step in self.steps for _, text in step]
        return frozenset(re.findall(r"[a-z]+", " ".join(texts).lower())) - {"a", "an", "the"}

    def choose_values(self, text: RequestText, keyed_random: KeyedRandom) -> Values:
        """Values for the slots: what the request names, else at random."""
        values: dict[str, str] = {}
        for name, slot in self.slots.items():
            choices = self._requested(slot, text, values) or self._unused_choices(slot, values)
            takes_default = keyed_random.bernoulli(_DEFAULT_RATE, f"usual {name}")
            values[name] = choices[0] if takes_default else keyed_random.pick(choices, name)
        return self._allowed_combination(values, text)

    def consistent_values(self, text: RequestText) -> list[Values]:
        """All values that agree with what the request names, also those of `choose_values`.

        A slot that the request leaves open may take any value, also one of another slot.
        """
        partial: list[dict[str, str]] = [{}]
        for name, slot in self.slots.items():
            partial = [
                {**values, name: value}
                for values in partial
                for value in self._requested(slot, text, values) or slot.choices
            ]
        distinct = [values for values in partial if not self._has_clash(values)] or partial
        combined = (self._allowed_combination(values, text) for values in distinct)
        return list({tuple(values.values()): values for values in combined}.values())

    def all_values(self) -> Iterator[Values]:
        """All values that the slots can take together."""
        if self.combinations:
            yield from self.combinations
            return
        for choices in product(*(slot.choices for slot in self.slots.values())):
            values = dict(zip(self.slots, choices, strict=True))
            if not self._has_clash(values):
                yield values

    def fill_steps(self, values: Values) -> tuple[CatalogStep, ...]:
        return tuple(step.fill(values) for step in self.steps)

    def _requested(self, slot: CatalogSlot, text: RequestText, values: Values) -> list[str]:
        """The colour given to the slot's owner, else the first matching unused name, if any."""
        names = text.names_of(slot.sort)
        if slot.of:
            owner = values.get(slot.of, slot.of)
            legal = [c for c in text.colours_of(owner) if c in KINDS[owner].colours]
            if legal:
                return [next((c for c in legal if c in slot.choices), legal[0])]
            names = text.possible_colours(owner)
        unused = self._unused_choices(slot, values)
        return [name for name in names if name in unused][:1]

    def _unused_choices(self, slot: CatalogSlot, values: Values) -> list[str]:
        used = [value for name, value in values.items() if self.slots[name].sort == slot.sort]
        return [choice for choice in slot.choices if choice not in used]

    def _has_clash(self, values: Values) -> bool:
        """Whether two slots that must differ have the same value."""
        independent = [(s.sort, values[n]) for n, s in self.slots.items() if not s.of]
        every = [(s.sort, values[n]) for n, s in self.slots.items()]
        return any(every.count(value) > 1 for value in independent)

    def _allowed_combination(self, values: Values, text: RequestText) -> Values:
        """With `combinations`, the one that agrees most with request and values."""
        if not self.combinations:
            return values
        named = {mention.name for mention in text.mentions}

        def agreement(combination: Values) -> tuple[int, int]:
            requested = sum(combination[n] in named for n in self.slots)
            return requested, sum(combination[n] == value for n, value in values.items())

        return max(self.combinations, key=agreement)


@cache
def load_stories() -> Mapping[str, CatalogStory]:
    """The stories that come with the sketch world, by name; raises DocumentError."""
    stories: dict[str, CatalogStory] = {}
    for path in sorted(_FOLDER.glob("*.yaml")):
        stories |= load_document(path, RootModel[dict[str, CatalogStory]]).root
    return stories


def choose_story(text: RequestText) -> CatalogStory | None:
    """The story that matches a request best, if any."""
    story = max(load_stories().values(), key=lambda story: story.match_score(text))
    return story if story.match_score(text) > 0 else None


def fill_text(text: str, values: Values) -> str:
    """The text with its {slots} filled and its articles right."""
    return re.sub(r"\b([Aa]) (?=[aeiou])", r"\1n ", text.format_map(dict(values)))
