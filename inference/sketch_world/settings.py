"""Settings of the sketch world: rates of mistakes, by wording."""

import hashlib

from pydantic import Field

from schemas.yaml_config import ConfigModel

Rate = float


def _rate(default: Rate, description: str) -> Rate:
    return Field(default, ge=0, le=1, description=description)


class PlaceRates(ConfigModel):
    """How often a thing lands in a wrong cell, or a wrong thing is changed."""

    exact: Rate = _rate(0.01, "the prompt names the cell (at the bottom left)")
    relative: Rate = _rate(0.08, "it names a relation or a colour (next to the house, the red cat)")
    open: Rate = _rate(0.22, "it says nothing about where or which")


class ColourRates(ConfigModel):
    """How often a thing gets a wrong colour."""

    named: Rate = _rate(0.01, "the prompt names the colour")
    implied: Rate = _rate(0.18, "it leaves the colour to the kind of thing")


class CollateralRates(ConfigModel):
    """How often something else in the image changes as well."""

    kept: Rate = _rate(0.015, "the prompt asks to keep everything else unchanged")
    unasked: Rate = _rate(0.15, "it does not")


class MistakeRates(ConfigModel):
    """The generator's mistakes; place, colour, kind and nothing count for every edit."""

    place: PlaceRates = Field(PlaceRates(), description="wrong place, by wording")
    colour: ColourRates = Field(ColourRates(), description="wrong colour, by wording")
    collateral: CollateralRates = Field(CollateralRates(), description="damage, by wording")
    kind: Rate = _rate(0.015, "a wrong kind of thing is drawn")
    nothing: Rate = _rate(0.02, "an edit is not done at all")
    crowding: float = Field(
        0.1, ge=0, description="kind and nothing grow by this share with every further edit"
    )
    blemish: Rate = _rate(0.02, "a scribble is left somewhere")
    crooked: Rate = _rate(0.01, "something is drawn crooked")


class CriticRates(ConfigModel):
    """How reliable the teacher critic is, and how good its rewritten prompts are."""

    error: Rate = _rate(0.05, "the verdict is wrong, in either direction")
    vague: Rate = _rate(0.15, "a rewrite is a vague plea")
    repeat: Rate = _rate(0.15, "a rewrite repeats the last prompt; all others are exact")


class SketchSettings(ConfigModel):
    """Everything that can be set in the sketch world."""

    picture_size: int = Field(
        192, ge=96, multiple_of=96, description="side of a picture in pixels, a multiple of 96"
    )
    mistakes: MistakeRates = Field(MistakeRates(), description="of the generator")
    critic: CriticRates = Field(CriticRates(), description="of the teacher critic")
    scorer_noise: float = Field(
        0.0, ge=0, description="standard deviation added to every grade of the scorer (0-10)"
    )


def hashed_name(name: str, *parameters: object) -> str:
    """The name with a hash of the parameters, such as `sketch-critic-1-5f2e90ab`."""
    digest = hashlib.sha256(repr(parameters).encode()).hexdigest()
    return f"{name}-{digest[:8]}"
