"""What a request may ask for here: the page offers it and checks it before sending."""

import asyncio
from typing import Literal

from fastapi import APIRouter
from pydantic import BaseModel, Field

from schemas import FoundryError
from warehouse.images import UPLOAD_FORMATS

from ...generation.requests import GenerationOptions
from ...http.errors import unavailable
from ...roles import max_reference_images
from ...settings import LoopSettings
from ..request_manager import RequestManager
from ..request_parsing import DEFAULT_MODEL, MODELS, available_models


class StudioModel(BaseModel):
    """A choice of agents."""

    id: str = Field(description="Value of a request's `model`")
    title: str
    description: str
    compared: bool = Field(description="It is a column of a comparison of agents")


class StudioLimits(BaseModel):
    """Limits of a request; a service rejects what exceeds them."""

    text: int = Field(description="Characters")
    images: int
    image_bytes: int = Field(description="Of an image")
    pixels: int = Field(description="Of an image")
    bytes: int = Field(description="Of the body")
    t_max: int
    candidates: int
    max_steps: int


class StudioSettings(BaseModel):
    """What a request may ask for."""

    models: list[StudioModel] = Field(description="Those that are available")
    conditioning: list[Literal["last", "all"]] = Field(description="What the generator can use")
    defaults: GenerationOptions = Field(description="Options that a request leaves out")
    limits: StudioLimits
    image_types: list[str] = Field(description="Media types of input images")


def settings_router(manager: RequestManager, defaults: LoopSettings) -> APIRouter:
    """The route, which needs no key: it says no more than the OpenAPI document and `/ready`."""
    router = APIRouter(prefix="/studio", tags=["studio"])
    options = GenerationOptions.model_validate(defaults.model_dump())

    @router.get("/settings")
    async def settings() -> StudioSettings:
        """Limits, defaults, and the agents and options that are available."""
        try:
            names = available_models(await manager.resolver.critics())
            roles = await manager.resolver.resolve()
        except FoundryError as error:
            raise unavailable(str(error), "not_ready") from error
        takes = await asyncio.to_thread(max_reference_images, roles.generator)
        return StudioSettings(
            models=[_studio_model(name) for name in names],
            conditioning=["last"] if takes == 1 else ["last", "all"],
            defaults=options,
            limits=_limits(manager),
            image_types=[f"image/{name.lower()}" for name in UPLOAD_FORMATS],
        )

    return router


def _studio_model(name: str) -> StudioModel:
    _, title, description = MODELS[name]
    compared = name != DEFAULT_MODEL
    return StudioModel(id=name, title=title, description=description, compared=compared)


def _limits(manager: RequestManager) -> StudioLimits:
    limits = manager.settings.limits
    return StudioLimits(
        images=limits.pictures,
        image_bytes=limits.picture_bytes,
        max_steps=limits.steps,
        **limits.model_dump(include={"text", "pixels", "bytes", "t_max", "candidates"}),
    )
