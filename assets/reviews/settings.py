"""Settings of reviews: what people's answers are used for."""

from pydantic import Field

from schemas.yaml_config import ConfigModel


class ReviewSettings(ConfigModel):
    """How reviews of people enter the training sets."""

    use: bool = Field(
        False,
        description="Verdicts and prompts of people take the place of the critic's, and what they "
        "preferred becomes pairs for DPO",
    )
    share: float = Field(
        0.0,
        ge=0,
        le=1,
        description="A shard is held back from the training sets until this share of its attempts "
        "has a verdict of a person",
    )
