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
    title: str = Field(description="Display name")
    description: str = Field(description="Topic of its prompts")
    banks: list[str] = Field(description="Vocabulary banks its templates draw from")
    heldout: bool = Field(description="True when all its prompts go to split heldout_category")


class VocabularyRow(Row):
    """A term of a vocabulary bank, written by hand or accepted among `vocabulary_proposals`."""

    pack: str = Field(description="Pack the bank belongs to")
    bank: str = Field(description="Bank, unique within its pack")
    kind: str = Field(description="Kind of term: entity, action, or a slot of the bank")
    term: str = Field(description="The term as the bank spells it")


class ProposalRow(Row):
    """A term that a model proposed for a vocabulary bank, accepted or rejected."""

    pack: str = Field(description="Pack the bank belongs to")
    bank: str = Field(description="Bank, unique within its pack")
    number: int = Field(description="Position among the proposals for the bank, 1-based")
    kind: str = Field(description="Kind of term that was requested")
    proposed: str = Field(description="The term as the model wrote it")
    term: str = Field(description="The term in the spelling of the bank")
    fixed: bool = Field(description="Whether the term is used without article and plural")
    status: Literal["accepted", "rejected"] = Field(
        description="accepted: part of the bank, like terms written by hand"
    )
    reason: str | None = Field(description="Why it was rejected")
    expander: str = Field(description="Backend and model that proposed it")


class TemplateRow(Row):
    """A prompt template; slots in braces are filled from vocabulary banks."""

    pack: str = Field(description="Pack the template belongs to")
    template_id: str = Field(description="Id, unique within its pack")
    text: str = Field(description="Template text with {slots}")
    subcategories: list[str] = Field(description="Sub-categories it is used for; empty: all")
    heldout: bool = Field(description="True when all its prompts go to split heldout")
    composite: bool | None = Field(
        None, description="Whether it asks for one picture with several panels; null: not stated"
    )


class PromptRow(Row):
    """A request for a story or a process in images and text."""

    prompt_id: str = Field(description="Stable id: pack and a hash of the text and input images")
    pack: str = Field(description="Pack it was made from")
    category: str = Field(description="Main category")
    subcategory: str = Field(description="Sub-category")
    template_id: str = Field(description="Template it was made from")
    text: str = Field(description="The request as a user would type it")
    terms: list[str] = Field(description="Vocabulary terms that filled the template")
    suffix: str | None = Field(description="Suffix variant appended to the text, if any")
    input_images: list[str] = Field(description="sha256 of the images given with the request")
    shard: str = Field(description="Shard (Dagster partition) of about 100 prompts")
    split: Split = Field(
        description="train; heldout (unseen templates and term combinations); "
        "heldout_category (unseen sub-categories)"
    )
    input_image_texts: list[str] | None = Field(
        None,
        description="What the input images show that a template asks for; drawn once the shard has "
        "trajectories or is evaluated. null: images that were given, or none",
    )


class PromptAuditRow(Row):
    """What an auditor says of a prompt; null: it gave no answer that could be read."""

    prompt_id: str = Field(description="The prompt")
    auditor: str = Field(description="rules, or backend and model of the judge")
    natural: bool | None = Field(description="Whether it reads as a person would write it")
    feasible: bool | None = Field(
        description="Whether it makes sense, and pictures can show it from its text alone"
    )
    in_category: bool | None = Field(description="Whether it belongs to its sub-category")
    several_images: bool | None = Field(description="Whether it needs more than one picture")
    reason: str | None = Field(description="Why something is false or null, in one line")


_TO_CATEGORY = ForeignKey(("pack", "subcategory"), "categories", ("pack", "subcategory"))
_TO_TEMPLATE = ForeignKey(("pack", "template_id"), "templates", ("pack", "template_id"))
TO_PROMPT = ForeignKey(("prompt_id",), "prompts", ("prompt_id",))

CATEGORIES = Table("categories", CategoryRow, key=("pack", "subcategory"))
VOCABULARY = Table("vocabulary", VocabularyRow, key=("pack", "bank", "kind", "term"))
VOCABULARY_PROPOSALS = Table("vocabulary_proposals", ProposalRow, key=("pack", "bank", "number"))
TEMPLATES = Table("templates", TemplateRow, key=("pack", "template_id"), version=2)
PROMPTS = Table(
    "prompts",
    PromptRow,
    key=("prompt_id",),
    version=2,
    sharded=True,
    references=(_TO_CATEGORY, _TO_TEMPLATE),
)
PROMPT_AUDITS = Table(
    "prompt_audits", PromptAuditRow, key=("prompt_id", "auditor"), references=(TO_PROMPT,)
)
