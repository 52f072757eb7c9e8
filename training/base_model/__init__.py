"""The model that planner and critic start from, which may come with the project."""

from pathlib import Path
from typing import Literal

from pydantic import Field

from schemas.yaml_config import ConfigModel

PACKAGED_MODEL = Path(__file__).parent / "packaged"
"""The model that comes with the project, in Hugging Face format; `tools/base_model` made it."""


class StartModel(ConfigModel):
    """A model that was not trained here, such as the authors' SFT critic."""

    model: str = Field(description="Its id at Hugging Face, or a folder")
    revision: str | None = Field(None, description="The commit that is meant; of an id")


class BaseModelSettings(ConfigModel):
    """Where the base of planner and critic comes from."""

    source: Literal["packaged", "huggingface"] = Field(
        "packaged",
        description="packaged: the tiny model shipped with the project; huggingface: a model by "
        "id or path",
    )
    model: str | None = Field(None, description="huggingface: id or path of the model")
    revision: str | None = Field(None, description="huggingface: commit of the model")
