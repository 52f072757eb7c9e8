"""Tables of the prompt bank: taxonomy, vocabulary, templates, prompts."""

from typing import Literal

from pydantic import Field

from .base import ForeignKey, Row, Table

Split = Literal["train", "heldout", "heldout_category"]


class CategoryRow(Row):
    """A sub-category of a pack's taxonomy."""

    pack: str = Field(description="Pack the sub-category belongs to")
    category: str = Field(description="Main category, one of the pack's eight")
    subcategory: str = Field(description="Sub-category, unique within its pack")
    title: str = Field(description="Name shown to people")
    description: str = Field(description="What its prompts are about")
    banks: list[str] = Field(description="Vocabulary banks its templates draw from")
    heldout: bool = Field(description="True when all its prompts go to split heldout_category")


class VocabularyRow(Row):
    """A term of a vocabulary bank, written by hand or accepted among `vocabulary_proposals`."""

    pack: str = Field(description="Pack the bank belongs to")
    bank: str = Field(description="Bank, unique within its pack")
    kind: str = Field(description="What sort of term it is: entity, action, or a bank's own slot")
    term: str = Field(description="The term as the bank spells it")


class ProposalRow(Row):
    """A term that a model proposed for a vocabulary bank, and what became of it."""

    pack: str = Field(description="Pack the bank belongs to")
    bank: str = Field(description="Bank, unique within its pack")
    number: int = Field(description="Place among the proposals for the bank, from 1")
    kind: str = Field(description="What sort of term it is to be")
    proposed: str = Field(description="The term as the model wrote it")
    term: str = Field(description="The term as the bank spells it, or would")
    fixed: bool = Field(description="It takes no article and no plural")
    status: Literal["accepted", "rejected"] = Field(
        description="accepted: a term of the bank like those written by hand"
    )
    reason: str | None = Field(description="Why it was rejected")
    expander: str = Field(description="Backend and model that proposed it")


class TemplateRow(Row):
    """A prompt template; slots in braces are filled from vocabulary banks."""

    pack: str = Field(description="Pack the template belongs to")
    template_id: str = Field(description="Id, unique within its pack")
    text: str = Field(description="Template text with {slots}")
    subcategories: list[str] = Field(description="Sub-categories it serves; empty means all")
    heldout: bool = Field(description="True when all its prompts go to split heldout")


class PromptRow(Row):
    """A request to tell a story or show a process in pictures and text."""

    prompt_id: str = Field(description="Stable id: pack and a hash of the text and input images")
    pack: str = Field(description="Pack that made it")
    category: str = Field(description="Main category")
    subcategory: str = Field(description="Sub-category")
    template_id: str = Field(description="Template that made it")
    text: str = Field(description="The request as a user would type it")
    terms: list[str] = Field(description="Vocabulary terms that filled the template")
    suffix: str | None = Field(description="Suffix variant appended to the text, if any")
    input_images: list[str] = Field(description="sha256 of pictures given with the request")
    shard: str = Field(description="Shard (Dagster partition) of about 100 prompts")
    split: Split = Field(
        description="train; heldout (unseen templates and term combinations); "
        "heldout_category (unseen sub-categories)"
    )


TO_PROMPT = ForeignKey(("prompt_id",), "prompts", ("prompt_id",))

CATEGORIES = Table("categories", CategoryRow, key=("pack", "subcategory"))
VOCABULARY = Table("vocabulary", VocabularyRow, key=("pack", "bank", "kind", "term"))
VOCABULARY_PROPOSALS = Table("vocabulary_proposals", ProposalRow, key=("pack", "bank", "number"))
TEMPLATES = Table("templates", TemplateRow, key=("pack", "template_id"))
PROMPTS = Table(
    "prompts",
    PromptRow,
    key=("prompt_id",),
    sharded=True,
    references=(
        ForeignKey(("pack", "subcategory"), "categories", ("pack", "subcategory")),
        ForeignKey(("pack", "template_id"), "templates", ("pack", "template_id")),
    ),
)
