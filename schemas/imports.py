"""Training rows of other people, as `interleave import` stores them."""

from typing import Literal

from pydantic import Field

from .base import Row, Table
from .curation import ChatMessageRow, Evaluation

ImportKind = Literal["planner_sft", "critic_sft", "critic_rl"]


class ImportedRow(Row):
    """A training row of an imported file, with its origin."""

    row_id: str = Field(description="Import and number in the file: NAME:NUMBER")
    name: str = Field(description="Name of the import: the partition of its rows")
    kind: ImportKind = Field(description="The training set that it is a row of")
    number: int = Field(description="Position in the file, 1-based")
    source: str = Field(description="File, or repository of the Hub with commit and file")
    file_sha256: str = Field(description="Hash of the file")
    licence: str = Field(description="Licence of the data, as the importer named it")
    messages: list[ChatMessageRow] = Field(
        description="User turn and assistant turn; empty for critic_rl, whose user turn follows "
        "from the agent prompt of the profile"
    )
    images: list[str] = Field(description="sha256 of the images, in order of their placeholders")
    origin_prompt: str | None = Field(description="critic_rl: the plan's prompt for the step")
    rewritten_prompt: str | None = Field(
        description="critic_rl: the prompt of the edited image; empty at iteration 0"
    )
    evaluation: Evaluation | None = Field(description="critic_rl: ground truth of the edited image")


IMPORTS = Table("imports", ImportedRow, key=("row_id",), sharded=True)
