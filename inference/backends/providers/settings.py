"""What may be set about models behind an API."""

from collections.abc import Mapping
from typing import ClassVar, Literal

from pydantic import Field, JsonValue, PositiveInt, model_validator

from schemas.yaml_config import ConfigModel

from ...agent_prompts.templates import version_of
from ...engine.hashing import stable_hash
from .endpoints import EndpointSettings

PROMPTS = {
    "planner_text": "planner-text",
    "planner_interleaved": "planner-interleaved",
    "critic": "critic",
    "scorer": "scorer",
}


class RemoteModel(ConfigModel):
    """A model, and how it is asked."""

    model: str = Field(description="Its name at the provider")
    endpoints: list[EndpointSettings] | None = Field(
        None, min_length=1, description="Where its calls go; null: where the provider's go"
    )
    max_tokens: int = Field(8192, ge=1, description="Of an answer, thoughts included")
    options: dict[str, JsonValue] = Field(
        default_factory=dict, description="More fields of the provider's request, as they are"
    )

    @property
    def identity(self) -> str:
        """Its name, and a hash of all that its answers depend on."""
        return f"{self.model}-{stable_hash(self._facts())[:8]}"

    def _facts(self) -> object:
        return self.model_dump(mode="json", exclude={"endpoints"})


class DrawingModel(RemoteModel):
    """A generator."""

    size: str | None = Field(
        None,
        pattern=r"^[1-9]\d*x[1-9]\d*$",
        description="Width x height in pixels, as in 1024x1024; pictures of another size are drawn "
        "again. null: whatever the model likes",
    )

    def request(self) -> dict[str, JsonValue]:
        """What goes beside prompt, pictures and seed."""
        return dict(self.options)


class AgentModel(RemoteModel):
    """A planner, critic or scorer."""

    asked_with: ClassVar[Mapping[str, str]] = PROMPTS

    form: Literal["schema", "json", "tags"] = Field(
        "schema",
        description="How it answers. schema: JSON whose schema the provider enforces; json: JSON, "
        "where a provider cannot do that; tags: as our trained agents do, <think> and <answer>",
    )
    batch: bool = Field(
        False,
        description="Ask in batches, at about half the price: answers may take a day, and a run "
        "that is started again picks them up",
    )
    temperature: float | None = Field(None, ge=0, description="null: the model's own")
    longest_side: int | None = Field(
        None, ge=32, description="Larger pictures are sent reduced to this many pixels"
    )
    image_pixels: tuple[PositiveInt, PositiveInt] | None = Field(
        None,
        description="Least and most pixels of a picture; others are sent resized, in the way in "
        "which our trained agents saw them in training",
    )
    agent_prompts: dict[str, str] = Field(
        default_factory=dict,
        description="Other agent prompts: planner_text, planner_interleaved, critic or scorer -> "
        "name or name@version",
    )

    def prompt(self, name: str) -> str:
        return self.agent_prompts.get(name, self.asked_with[name])

    @model_validator(mode="after")
    def _known_prompts(self) -> "AgentModel":
        if unknown := set(self.agent_prompts) - set(self.asked_with):
            raise ValueError(
                f"agent_prompts: no {', '.join(sorted(unknown))}; {', '.join(self.asked_with)}"
            )
        return self

    def _facts(self) -> object:
        versions = {name: version_of(self.prompt(name)) for name in self.asked_with}
        facts = self.model_dump(mode="json", exclude={"batch", "endpoints"})
        return facts | {"agent_prompts": versions}


class ExpanderModel(AgentModel):
    """A model that proposes terms for vocabulary banks."""

    asked_with: ClassVar[Mapping[str, str]] = {"expander": "expander"}

    form: Literal["schema", "json"] = Field(
        "schema",
        description="How it answers. schema: JSON whose schema the provider enforces; json: JSON, "
        "where a provider cannot do that",
    )


class EndpointList(ConfigModel):
    """Where calls go."""

    endpoints: list[EndpointSettings] = Field(
        min_length=1, description="Where calls go; each gets as many as it has room for"
    )

    def endpoints_of(self, model: RemoteModel | None) -> list[EndpointSettings]:
        """Where calls to a model go."""
        return (model and model.endpoints) or self.endpoints


class ProviderSettings(EndpointList):
    """A provider: where it is, and which of its models play which roles."""

    timeout_seconds: float = Field(180, gt=0, description="Of one request")
    gather_seconds: float = Field(
        5, gt=0, description="A batch is submitted when no question has come for so long"
    )
    poll_seconds: float = Field(60, gt=0, description="Between two looks at a batch")
    planner: AgentModel | None = Field(None, description="The planner")
    critic: AgentModel | None = Field(None, description="The critic")
    scorer: AgentModel | None = Field(None, description="The scorer")

    @model_validator(mode="after")
    def _verdicts_cannot_wait(self) -> "ProviderSettings":
        if self.critic and self.critic.batch:
            raise ValueError("critic.batch: the loop waits for every verdict; leave it false")
        return self

    @model_validator(mode="after")
    def _scores_are_json(self) -> "ProviderSettings":
        if self.scorer and self.scorer.form == "tags":
            raise ValueError("scorer.form: no trained agent scores in tags; use schema or json")
        return self


class OpenAISettings(ProviderSettings):
    """OpenAI, or any endpoint that speaks its API: vLLM, SGLang and others."""

    endpoints: list[EndpointSettings] = Field(
        default=[EndpointSettings(key="OPENAI_API_KEY")],
        min_length=1,
        description="Where calls go; each gets as many as it has room for",
    )


class GeminiSettings(ProviderSettings):
    """Google's Gemini API."""

    endpoints: list[EndpointSettings] = Field(
        default=[EndpointSettings(key="GEMINI_API_KEY")],
        min_length=1,
        description="Where calls go; each gets as many as it has room for",
    )
    generator: DrawingModel | None = Field(None, description="The generator")


class ImageModel(DrawingModel):
    """A generator behind an images endpoint."""

    steps: int | None = Field(None, ge=1, description="null: the model's own number of steps")
    guidance: float | None = Field(None, ge=0, description="Guidance scale; null: the model's own")
    negative_prompt: str | None = Field(None, description="null: none")

    def request(self) -> dict[str, JsonValue]:
        fields: dict[str, JsonValue] = {
            "size": self.size,
            "num_inference_steps": self.steps,
            "guidance_scale": self.guidance,
            "negative_prompt": self.negative_prompt,
        }
        return {name: value for name, value in fields.items() if value is not None} | self.options


class ImagesSettings(EndpointList):
    """Endpoints that speak OpenAI's images API, which share one generator's calls."""

    endpoints: list[EndpointSettings] = Field(
        default=[EndpointSettings(url="http://127.0.0.1:8010/v1", concurrency=4)],
        min_length=1,
        description="Where calls go; each gets as many as it has room for",
    )
    timeout_seconds: float = Field(300, gt=0, description="Of one request")
    generator: ImageModel | None = Field(None, description="The generator")


class BudgetSettings(ConfigModel):
    """Where paid calls end."""

    usd: float = Field(gt=0, description="What all paid calls of a home may cost together, in USD")
