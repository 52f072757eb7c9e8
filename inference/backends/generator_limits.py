"""What a generator takes: told by the server that draws, or by the registry."""

from pydantic import BaseModel, Field

from .diffusers.registry import GeneratorModel

FORMATS = ("png", "jpeg", "webp")


class GeneratorLimits(BaseModel, frozen=True, extra="ignore"):
    """Field `limits` of a model in our images server's `/v1/models`."""

    references: int | None = Field(
        description="Most images of an edit that it looks at; 0: it draws from text alone; null: "
        "no limit is known"
    )
    mask: bool = Field(description="Whether it repaints inside a mask itself")
    negative_prompt: bool = Field(description="Whether it can be told what not to draw")
    max_pixels: int | None = Field(None, description="Most pixels of an image; null: not known")
    side_multiple: int = Field(1, description="Sides of an image are multiples of it")
    square: bool = Field(False, description="Whether it draws squares only")
    output_formats: tuple[str, ...] = Field(FORMATS, description="Of its answers")
    partial_images: int = Field(0, description="Most partial images of a stream")

    def problem_with_size(self, size: str) -> str | None:
        """Why an image of `WIDTHxHEIGHT` cannot be drawn."""
        width, height = map(int, size.split("x"))
        if self.max_pixels and width * height > self.max_pixels:
            return f"{size} has more than {self.max_pixels} pixels"
        if width % self.side_multiple or height % self.side_multiple:
            return f"the sides of {size} are no multiples of {self.side_multiple}"
        if self.square and width != height:
            return f"{size} is no square"
        return None


def limits_of(model: GeneratorModel) -> GeneratorLimits:
    """The limits of a generator of the registry."""
    edits = {"edit", "mask"} & set(model.can)
    return GeneratorLimits(
        references=model.max_reference_images if edits else 0,
        mask="mask" in model.can,
        negative_prompt="negative_prompt" in model.can,
        partial_images=3 if (model.defaults.steps or 0) > 1 else 0,
    )
