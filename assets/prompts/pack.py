"""A prompt pack: taxonomy, vocabulary banks and templates in YAML, from which prompts are made.

`docs/packs.md` describes its files.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Literal, Self, get_args

from pydantic import AfterValidator, BaseModel, BeforeValidator, Field, RootModel, model_validator

from inference.agent_prompts.templates import IMAGE
from schemas import Row, Table
from schemas.prompts import (
    CATEGORIES,
    TEMPLATES,
    VOCABULARY,
    CategoryRow,
    TemplateRow,
    VocabularyRow,
)
from schemas.yaml_config import ConfigModel

Form = Literal["a", "the", "plural", "gerund", "third", "past"]
SlotKey = tuple[str, int]
_SLOT = re.compile(
    r"\{(?:([a-z][a-z0-9_-]*)\.)?([a-z][a-z0-9_-]*)"  # bank and kind
    r"(?:#(\d+))?(?::(\w+))?\}"  # number and form
)


@dataclass(frozen=True)
class TemplateSlot:
    """A place in a text for a term: of a bank, or (bank None) of the sub-category's banks."""

    bank: str | None
    kind: str
    number: int = 1
    form: str | None = None  # one of Form

    @property
    def source(self) -> str:
        return f"{self.bank}.{self.kind}" if self.bank else self.kind

    @property
    def key(self) -> SlotKey:
        """Slots of equal key hold the same term."""
        return self.source, self.number

    def banks(self, others: list[str]) -> list[str]:
        """Where its terms are from. `others`: the banks of its sub-category or term."""
        return [self.bank] if self.bank else others


@cache
def parse(text: str) -> tuple[str | TemplateSlot, ...]:
    """A text as literal pieces and slots, in order; ValueError for a bad brace or form."""
    pieces: list[str | TemplateSlot] = []
    end = 0
    for match in _SLOT.finditer(text):
        bank, kind, number, form = match.groups()
        if form is not None and form not in get_args(Form):
            known = ", ".join(get_args(Form))
            raise ValueError(f"{match[0]} has no form {form!r}; forms are {known}")
        pieces += [text[end : match.start()], TemplateSlot(bank, kind, int(number or 1), form)]
        end = match.end()
    pieces.append(text[end:])
    for piece in pieces:
        if isinstance(piece, str) and ("{" in piece or "}" in piece):
            raise ValueError(f"{piece.strip()!r} has a brace that is no {{[bank.]kind[#n][:form]}}")
    return tuple(piece for piece in pieces if piece)


def slots(text: str) -> list[TemplateSlot]:
    return [piece for piece in parse(text) if isinstance(piece, TemplateSlot)]


def _check_slots(text: str) -> str:
    parse(text)
    return text


def _check_spaces(text: str) -> str:
    if text != " ".join(text.split()):
        raise ValueError("has spaces at an end, twice in a row, or a line break")
    return text


def _as_mapping(key: str, what: str) -> BeforeValidator:
    """Read a text as the mapping `{key: text}`."""

    def to_mapping(value: object) -> object:
        if isinstance(value, str):
            return {key: value}
        if isinstance(value, (dict, BaseModel)):
            return value
        raise ValueError(f"{what} is a text or a mapping, not {value!r} (put it in quotes?)")

    return BeforeValidator(to_mapping)


Name = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_-]*$")]
SingleLine = Annotated[str, AfterValidator(_check_spaces)]
Text = Annotated[SingleLine, Field(min_length=1), AfterValidator(_check_slots)]


class Term(ConfigModel):
    """A term of a bank, and its irregular forms."""

    term: Text = Field(description="Base form: a singular noun, or a verb phrase, verb first")
    fixed: bool = Field(False, description="No article and no plural: mass nouns and names")
    a: Text | None = Field(None, description="With an indefinite article")
    the: Text | None = Field(None, description="With the definite article")
    plural: Text | None = Field(None, description="Plural")
    gerund: Text | None = Field(None, description="-ing form")
    third: Text | None = Field(None, description="Third person singular")
    past: Text | None = Field(None, description="Past tense")
    without: tuple[str, ...] = Field(
        (), description="Terms that make no sense in its slots: they never fill them"
    )

    @cached_property
    def slots(self) -> list[TemplateSlot]:
        return slots(self.term)

    @model_validator(mode="after")
    def _forms_have_the_same_slots(self) -> Self:
        expected = {slot.key for slot in self.slots}
        for form in get_args(Form):
            text = getattr(self, form)
            if text is not None and {slot.key for slot in slots(text)} != expected:
                raise ValueError(f"form {form!r} has other slots than the term")
        return self


TermList = Annotated[list[Annotated[Term, _as_mapping("term", "a term")]], Field(min_length=1)]
Bank = Annotated[dict[Name, TermList], Field(min_length=1)]


class BankFile(RootModel[Annotated[dict[Name, Bank], Field(min_length=1)]]):
    """banks/*.yaml: bank -> kind -> terms."""


class Suffix(ConfigModel):
    """A text that may follow a prompt."""

    name: Name | None = Field(None, description="Stored with the prompt; null: no suffix")
    text: SingleLine = Field("", description="Text that is added")
    weight: float = Field(1, gt=0, description="How often, relative to the others")
    only: list[Name] | None = Field(
        None, alias="for", min_length=1, description="Templates it goes with; default: all"
    )


class SubCategory(ConfigModel):
    """A sub-category of the taxonomy."""

    title: str = Field(description="Name shown to people")
    description: str = Field(description="What its prompts are about")
    banks: list[Name] = Field(min_length=1, description="Where its slots are filled from")
    heldout: bool = Field(False, description="All its prompts are of split heldout_category")


class Category(ConfigModel):
    """A main category."""

    title: str = Field(description="Name shown to people")
    subcategories: dict[Name, SubCategory] = Field(min_length=1)


class Taxonomy(ConfigModel):
    """taxonomy.yaml"""

    title: str = Field(description="Name of the pack, shown to people")
    reader: Literal["sketch"] | None = Field(
        None,
        exclude=True,  # it does not change the pack's own prompts, so it is not part of the digest
        description="World that must understand the terms that an expansion adds; null: none",
    )
    suffixes: list[Suffix] = Field(default_factory=lambda: [Suffix()], min_length=1)
    categories: dict[Name, Category] = Field(min_length=1)


class Template(ConfigModel):
    """A prompt template."""

    text: Text = Field(description="Text with {slots}")
    only: list[Name] | None = Field(None, alias="for", min_length=1, description="Where it serves")
    but: list[Name] = Field(default_factory=list, alias="except", description="Where it does not")
    suffixes: bool = Field(True, description="Whether suffix variants may be added")
    heldout: bool = Field(False, description="All its prompts are of split heldout")
    composite: bool = Field(
        False, description="Asks for one picture with several panels: such prompts are a few"
    )
    without: tuple[str, ...] = Field(
        (), description="Terms that make no sense in its slots: they never fill them"
    )
    input_images: tuple[Text, ...] = Field(
        (), description="What the pictures show that come with it: one for each <image> of the text"
    )

    @cached_property
    def slots(self) -> list[TemplateSlot]:
        return [slot for text in (self.text, *self.input_images) for slot in slots(text)]

    @model_validator(mode="after")
    def _has_slots_and_images(self) -> Self:
        if not self.slots:
            raise ValueError("a template needs at least one {slot}")
        tags, images = self.text.count(IMAGE), len(self.input_images)
        if tags != images:
            raise ValueError(f"the text has {tags} {IMAGE}, `input_images` {images} texts")
        return self


class TemplateFile(ConfigModel):
    """templates.yaml"""

    templates: dict[Name, Annotated[Template, _as_mapping("text", "a template")]] = Field(
        min_length=1
    )


def shard_name(pack: str, number: int) -> str:
    return f"{pack}-{number:04d}"


def prompt_id(pack: str, text: str) -> str:
    """Id of a prompt: the pack and a hash of its text, with a line for each input image."""
    return f"{pack}-{sha256(text.encode()).hexdigest()[:12]}"


class FilePrompt(ConfigModel):
    """A prompt of a pack that is a file of prompts."""

    text: str = Field(min_length=1, description="The request as a user would type it")
    category: str | None = Field(None, description="What it is about; null: not stated")
    images: tuple[str, ...] = Field((), description="sha256 of the images given with it")


@dataclass(frozen=True)
class Pack:
    """A loaded pack, whose references are checked.

    `prompts`: of a pack that is a file of prompts, in `folder`; it has no banks.
    """

    name: str
    taxonomy: Taxonomy
    banks: dict[str, Bank]
    templates: dict[str, Template]
    prompts: tuple[FilePrompt, ...] = ()
    folder: Path | None = None

    @cached_property
    def digest(self) -> str:
        """Hash of the pack's content, whatever the comments and layout of its files."""
        models = RootModel[dict[str, Bank]](self.banks), TemplateFile(templates=self.templates)
        parts = (self.taxonomy, *models, *self.prompts)
        texts = [part.model_dump_json(exclude_defaults=True) for part in parts]  # order counts
        return sha256("\n".join([self.name, *texts]).encode()).hexdigest()

    @cached_property
    def subcategories(self) -> dict[str, SubCategory]:
        categories = self.taxonomy.categories.values()
        return {name: sub for c in categories for name, sub in c.subcategories.items()}

    @cached_property
    def category_of(self) -> dict[str, str]:
        categories = self.taxonomy.categories.items()
        return {sub: name for name, category in categories for sub in category.subcategories}

    @cached_property
    def serves(self) -> dict[str, list[str]]:
        """Sub-categories that each template serves, in the taxonomy's order."""
        return {
            template_id: [sub for sub in self.subcategories if self._serves(template, sub)]
            for template_id, template in self.templates.items()
        }

    def terms(
        self, slot: TemplateSlot, banks: list[str], without: Sequence[str] = ()
    ) -> list[Term]:
        """Terms that may fill a slot, but those named. `banks`: see `TemplateSlot.banks`."""
        return list(self._terms(slot, banks, without))

    def has_terms(self, slot: TemplateSlot, banks: list[str], without: Sequence[str] = ()) -> bool:
        """Whether there are `terms`."""
        return any(self._terms(slot, banks, without))

    def _terms(
        self, slot: TemplateSlot, banks: list[str], without: Sequence[str]
    ) -> Iterator[Term]:
        for bank in slot.banks(banks):
            for term in self.banks.get(bank, {}).get(slot.kind, []):
                if term.term not in without:
                    yield term

    def _serves(self, template: Template, sub: str) -> bool:
        names = {sub, self.category_of[sub]}
        wanted = template.only is None or names & set(template.only)
        return bool(wanted) and not names & set(template.but) and self.fits(template, sub)

    def fits(self, template: Template, sub: str) -> bool:
        """Whether the sub-category's banks have terms for every slot of the template."""
        banks = self.subcategories[sub].banks
        return all(self.has_terms(slot, banks, template.without) for slot in template.slots)


def pack_tables(pack: Pack) -> dict[Table, list[Row]]:
    """Rows of the taxonomy, the vocabulary and the templates."""
    categories = [
        CategoryRow(
            pack=pack.name, category=pack.category_of[name], subcategory=name, **sub.model_dump()
        )
        for name, sub in pack.subcategories.items()
    ]
    vocabulary = [
        VocabularyRow(pack=pack.name, bank=bank, kind=kind, term=term.term)
        for bank, kinds in pack.banks.items()
        for kind, terms in kinds.items()
        for term in terms
    ]
    templates = [
        TemplateRow(
            pack=pack.name,
            template_id=name,
            subcategories=pack.serves[name],
            **template.model_dump(include={"text", "heldout", "composite"}),
        )
        for name, template in pack.templates.items()
    ]
    return {CATEGORIES: [*categories], VOCABULARY: [*vocabulary], TEMPLATES: [*templates]}
