"""Settings of the prompt bank and its expansion."""

from pathlib import Path
from typing import Annotated

from pydantic import Field

from inference.backends.factory import ChatBackend
from inference.backends.providers.settings import BenchmarkJudgeModel, ExpanderModel
from schemas.yaml_config import ConfigModel

Share = Annotated[float, Field(ge=0, lt=1)]


class BankSettings(ConfigModel):
    """How a pack's prompts are generated. Equal settings give equal prompts."""

    seed: int = Field(0, ge=0, description="Another seed gives another selection and order")
    shard_size: int = Field(100, ge=1, description="Prompts in a shard (Dagster partition)")
    heldout_share: Share = Field(
        0.05,
        description="Share of a sub-category's prompts of split heldout, as far as its held-out "
        "templates suffice; held-out sub-categories come on top",
    )
    composite_turns: float = Field(
        0.2,
        ge=0,
        le=1,
        description="Share of its turns that a template for composite pictures (posters, comic "
        "strips) takes: other prompts need a picture for each step",
    )
    input_image_share: Share = Field(
        0.05,
        description="Share of prompts that come with pictures, in sub-categories that have "
        "templates for them",
    )


class ExpansionSettings(ConfigModel):
    """A model proposes terms for the vocabulary banks; those that pass the checks are added.

    A bank whose own call fails after all retries keeps its hand-written terms.
    """

    backend: ChatBackend = Field(description="Backend of the model, with endpoints and keys")
    model: ExpanderModel = Field(description="The model and its parameters")
    terms_per_bank: int = Field(
        20, ge=1, le=200, description="New terms asked for in a bank, over all of its kinds"
    )


class AuditJudgeSettings(ConfigModel):
    """The model that audits prompts, at the endpoints of a provider."""

    backend: ChatBackend = Field(description="Backend with endpoints and keys")
    model: BenchmarkJudgeModel = Field(description="The model")


class AuditSettings(ConfigModel):
    """A sample of every pack's prompts is judged: natural, feasible, in its category, in several
    pictures."""

    sample: int = Field(400, ge=1, description="Prompts of each pack; all of a smaller one")
    seed: int = Field(0, description="Another seed gives another sample")
    at_least: float = Field(
        0.95, gt=0, le=1, description="Share of each property below which a check warns"
    )
    judge: AuditJudgeSettings | None = Field(
        None, description="Judges the sample as well; null: rules alone"
    )


class FailureQuotaSettings(ConfigModel):
    """More prompts of categories and templates in which the agents fail more often."""

    at_least: float = Field(
        0.5, gt=0, le=1, description="A category has at least so many times its share"
    )
    at_most: float = Field(2.0, ge=1, description="And at most so many times")
    prior: float = Field(
        20.0,
        gt=0,
        description="Requests with the mean rate that are added to each cell, so that a few "
        "failures among few requests mean little",
    )


class PromptsSettings(ConfigModel):
    """Sources of prompts beside the packs."""

    expansion: ExpansionSettings | None = Field(
        None, description="null: the hand-written banks alone"
    )
    requests: bool = Field(
        False,
        description="Completed requests of users, from every channel, become prompts of split "
        "train in shards of their own; switched off again, those shards are deleted",
    )
    quotas_by_failure: FailureQuotaSettings | None = Field(
        None, description="Prompts of rounds follow the table `failures`; null: all in turn"
    )
    input_images: Path | None = Field(
        None,
        description="Folder of pictures for prompts that come with some: one whose file name is "
        "what the picture shows, or a part of it, is taken instead of drawing it",
    )
    audit: AuditSettings = Field(
        AuditSettings(), description="The asset `prompt_audit`, which checks the bank"
    )
