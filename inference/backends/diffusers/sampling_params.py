"""How a picture is drawn, in words that mean the same for every pipeline."""

from pydantic import Field

from schemas.yaml_config import ConfigModel

SIZE = r"^[1-9]\d*x[1-9]\d*$"


class SamplingParams(ConfigModel):
    """Steps, guidance, negative prompt, size; null is whatever somebody else says of it."""

    steps: int | None = Field(None, ge=1, description="Denoising steps; null: the model's own")
    guidance: float | None = Field(
        None, ge=0, description="How closely the prompt is followed; null: the model's own"
    )
    negative_prompt: str | None = Field(
        None, description="What not to draw; null: the model's own, or none"
    )
    size: str | None = Field(
        None,
        pattern=SIZE,
        description="Width x height in pixels, as in 1024x1024; null: the model's own",
    )

    @property
    def pixels(self) -> tuple[int, int] | None:
        """Width and height."""
        if self.size is None:
            return None
        width, height = self.size.split("x")
        return int(width), int(height)

    def over(self, defaults: "SamplingParams") -> "SamplingParams":
        """This manner, and the defaults where it says nothing."""
        said = {name: getattr(self, name) for name in SamplingParams.model_fields}
        filled = {name: value for name, value in said.items() if value is not None}
        return SamplingParams(**(dict(defaults) | filled))
