"""The tool `image_generation` of a request: how its response has the images."""

import base64
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from warehouse import EncodedImage

from ...http.errors import RequestModel, bad_request
from ..accepted_values import Only, ToolType

_GENERATOR = "the profile's generator draws as it is set there; leave it out, or send auto"
TOOL_TYPE = "image_generation"
NO_MASK = "say in words what to change, and where"
_FORMATS = "there are png, jpeg and webp; leave it out"


class ImageChoice(RequestModel):
    """The choice of the tool that every response here is made with; others are an error."""

    type: ToolType

    @model_validator(mode="before")
    @classmethod
    def _only_type(cls, content: Any) -> Any:
        """Of another tool, the type is what is wrong, not its fields."""
        if isinstance(content, dict) and content.get("type") not in (None, TOOL_TYPE):
            return {"type": content["type"]}
        return content


class ImageSettings(RequestModel):
    """What the tool and the Images API both set, or refuse."""

    output_format: Literal["png", "jpeg", "webp"] | None = Field(
        None, description="Of the images; null: as they were generated"
    )
    output_compression: int | None = Field(
        None, ge=0, le=100, description="Quality of jpeg and webp; null: 100"
    )
    moderation: Literal["auto", "low"] | None = Field(None, description="Without effect")

    background: Annotated[str | None, Only(_GENERATOR, ("auto", "opaque"))] = None
    complexity: Annotated[str | None, Only(_GENERATOR)] = None
    frame_count: Annotated[int | None, Only(_FORMATS)] = None
    frame_duration_ms: Annotated[int | None, Only(_FORMATS)] = None
    input_fidelity: Annotated[str | None, Only(_GENERATOR, ("low",))] = None
    quality: Annotated[str | None, Only(_GENERATOR, ("auto",))] = None
    size: Annotated[str | None, Only(_GENERATOR, ("auto",))] = None
    svg: Annotated[dict[str, Any] | None, Only(_FORMATS)] = None


class ImageTool(ImageChoice, ImageSettings):
    """The tool, with what it sets."""

    action: Literal["auto", "generate", "edit"] | None = Field(
        None, description="`edit`: an error without an image; `generate`: one with images"
    )
    partial_images: int | None = Field(
        None,
        ge=0,
        le=3,
        description="Attempts of each step that a stream has as partial images, the first ones; "
        "null: all",
    )

    input_image_mask: Annotated[dict[str, Any] | None, Only(NO_MASK)] = None
    model: Annotated[str | None, Only("the profile's generator draws; leave it out")] = None

    @classmethod
    def of(cls, fields: Mapping[str, Any]) -> "ImageTool":
        """The tool in the stored fields of a request."""
        tools = fields.get("tools") or [{"type": TOOL_TYPE}]
        return cls.model_validate(tools[0])

    def check_images(self, images: int) -> None:
        """Raise APIError if the request's number of images does not fit the action."""
        param = "tools.0.action"
        if self.action == "edit" and not images:
            raise bad_request(f"{param}: edit, but the request has no image", param)
        if self.action == "generate" and images:
            message = "generate, but the request has images, which would be edited; send auto"
            raise bad_request(f"{param}: {message}", param)

    def shows_attempt(self, iteration: int) -> bool:
        """Whether a stream has that image of a step as a partial one."""
        return self.partial_images is None or iteration < self.partial_images

    def encode(self, image: EncodedImage) -> str:
        """An image in base64, in the requested format; BadImageError: it cannot be decoded."""
        if self.output_format:
            quality = 100 if self.output_compression is None else self.output_compression
            image = image.encoded(self.output_format, quality)
        return base64.b64encode(image.data).decode()
