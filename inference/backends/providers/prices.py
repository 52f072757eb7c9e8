"""What calls cost: a price table in the profile, because no API says it."""

from pydantic import Field

from schemas.yaml_config import ConfigModel

_MILLION = 1_000_000


class Price(ConfigModel):
    """A model's price in USD."""

    input: float = Field(0.0, ge=0, description="Of a million input tokens")
    output: float = Field(0.0, ge=0, description="Of a million output tokens, thoughts included")
    cached_input: float | None = Field(
        None,
        ge=0,
        description="Of a million input tokens that the provider cached; null: as input",
    )
    picture: float = Field(0.0, ge=0, description="Of a picture drawn, beside its tokens")
    batch: float = Field(
        0.5, gt=0, le=1, description="Share of all this that the provider's batch mode costs"
    )

    def cost(
        self,
        input_tokens: int = 0,
        output_tokens: int = 0,
        cached_tokens: int = 0,
        pictures: int = 0,
    ) -> float:
        """USD of one answer; `cached_tokens` are part of `input_tokens`."""
        cached = self.input if self.cached_input is None else self.cached_input
        tokens = (input_tokens - cached_tokens) * self.input + cached_tokens * cached
        return (tokens + output_tokens * self.output) / _MILLION + pictures * self.picture
