"""Profile settings of models behind an API: endpoints, prices, budget, parameters."""

import os
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from pydantic import Field, JsonValue, PositiveInt, field_validator, model_validator

from schemas.trajectories import ScoreCalls
from schemas.yaml_config import ConfigModel

from ...agent_prompts.templates import prompts_of, version_of
from ...calls.hashing import stable_hash
from ...roles import BackendError
from ..checkpoint.encoding import MANY_IMAGES

ScorePart = Literal["semantics", "quality"]

_MILLION = 1_000_000


class EndpointSettings(ConfigModel):
    """One URL and key that calls go to. Several keys of one provider are several endpoints."""

    url: str | None = Field(None, description="Base URL; null: the provider's own")
    server: str | None = Field(
        None, description="Instead of a URL: a name in `servers`, which is started on first use"
    )
    key: str | None = Field(
        None, description="Environment variable that holds the key; null: none is needed"
    )
    concurrency: int = Field(
        16, ge=1, description="Calls under way at once, at most; 429s lower it for a while"
    )
    gpus: int = Field(
        0, ge=0, description="GPUs of yours that work behind it, for `interleave run --estimate`"
    )

    @model_validator(mode="after")
    def _url_or_server(self) -> "EndpointSettings":
        if self.server and (self.url or self.key or self.gpus):
            raise ValueError(
                f"server {self.server} has an address, a key and GPUs of its own: leave url, key "
                "and gpus out"
            )
        return self

    def secret(self) -> str | None:
        """The key itself; None where none is needed.

        Raises `BackendError`: the environment variable is not set.
        """
        if self.key is None:
            return None
        secret = os.environ.get(self.key, "").strip()
        if not secret:
            raise BackendError(f"the environment variable {self.key} is not set: put the key in")
        return secret


class Price(ConfigModel):
    """A model's price in USD; profiles state it because no API does."""

    input: float = Field(0.0, ge=0, description="Of a million input tokens")
    output: float = Field(0.0, ge=0, description="Of a million output tokens, thoughts included")
    cached_input: float | None = Field(
        None, ge=0, description="Of a million input tokens that the provider cached; null: as input"
    )
    picture: float = Field(0.0, ge=0, description="Of a generated image, besides its tokens")
    batch: float = Field(
        0.5, gt=0, le=1, description="Share of all this that the provider's batch mode costs"
    )

    def cost(
        self, input_tokens: int = 0, output_tokens: int = 0, cached_tokens: int = 0, images: int = 0
    ) -> float:
        """USD of one answer; `cached_tokens` are part of `input_tokens`."""
        cached = self.input if self.cached_input is None else self.cached_input
        tokens = (input_tokens - cached_tokens) * self.input + cached_tokens * cached
        return (tokens + output_tokens * self.output) / _MILLION + images * self.picture


class RemoteModel(ConfigModel):
    """A model at a provider, and the parameters of its requests."""

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
        """Its name, and a hash of every setting that its answers depend on."""
        return f"{self.model}-{stable_hash(self._hashed_settings())[:8]}"

    def _hashed_settings(self) -> object:
        return self.model_dump(mode="json", exclude={"endpoints"}, exclude_defaults=True)


class RemoteGeneratorModel(RemoteModel):
    """A generator at a provider."""

    size: str | None = Field(
        None,
        pattern=r"^[1-9]\d*x[1-9]\d*$",
        description="Width x height in pixels, as in 1024x1024; images of another size are "
        "requested again. null: the model's own choice",
    )
    longest_side: int | None = Field(
        None,
        ge=32,
        description="Images that it gets are sent reduced to this many pixels; null: as they are",
    )


class ChatModel(RemoteModel):
    """A model that is asked with text and images."""

    batch: bool = Field(
        False,
        description="Use the provider's batch API, at about half the price: answers may take a "
        "day, and a run that is started again picks them up",
    )
    temperature: float | None = Field(None, ge=0, description="null: the model's own")
    longest_side: int | None = Field(
        None, ge=32, description="Larger images are sent reduced to this many pixels"
    )
    image_pixels: tuple[PositiveInt, PositiveInt] | None = Field(
        None,
        description="Least and most pixels of an image; others are sent resized, as our trained "
        "agents saw them in training",
    )
    many_images_pixels: PositiveInt | None = Field(
        None,
        description=f"Most pixels of an image of a request with {MANY_IMAGES} or more; null: as "
        "`image_pixels`",
    )

    def pixels_of(self, images: int) -> tuple[int, int] | None:
        """Least and most pixels of each image of a request with so many; None: any."""
        if self.many_images_pixels is None or images < MANY_IMAGES:
            return self.image_pixels
        least, most = self.image_pixels or (1, self.many_images_pixels)
        return min(least, self.many_images_pixels), min(most, self.many_images_pixels)


class AgentModel(ChatModel):
    """A planner or critic."""

    default_prompts: ClassVar[Mapping[str, str]] = {
        "planner_text": "planner-text",
        "planner_interleaved": "planner-interleaved",
        "critic": "critic",
        "scorer": "scorer",
    }

    form: Literal["schema", "tags"] = Field(
        "schema",
        description="How it answers. schema: JSON whose schema the provider enforces; tags: as our "
        "trained agents do, <think> and <answer>",
    )
    repeats_first_prompt: bool = Field(
        False,
        description="A critic gets a step's first prompt as the rewritten one, too, as the "
        "authors' demo asks theirs; false: none, as in training data",
    )
    agent_prompts: dict[str, str] = Field(
        default_factory=dict,
        description="Other agent prompts: planner_text, planner_interleaved, critic, scorer (one "
        "call), scorer_semantics or scorer_quality -> name, name@version, or the path of a .jinja "
        "file; or a folder with such files",
    )

    def prompt(self, name: str) -> str:
        """The agent prompt (name or name@version) used for a purpose."""
        return self.agent_prompts.get(name, self.default_prompts[name])

    @field_validator("agent_prompts", mode="before")
    @classmethod
    def _of_a_folder(cls, given: Any) -> Any:
        return prompts_of(given, cls.default_prompts)

    @model_validator(mode="after")
    def _known_prompts(self) -> "AgentModel":
        if unknown := set(self.agent_prompts) - set(self.default_prompts):
            raise ValueError(
                f"agent_prompts: no {', '.join(sorted(unknown))}; {', '.join(self.default_prompts)}"
            )
        return self

    def _hashed_settings(self) -> object:
        versions = {name: version_of(self.prompt(name)) for name in self.default_prompts}
        settings = self.model_dump(
            mode="json", exclude={"batch", "endpoints"}, exclude_defaults=True
        )
        return settings | {"agent_prompts": versions}


class ScorerModel(AgentModel):
    """A scorer."""

    default_prompts: ClassVar[Mapping[str, str]] = {
        **AgentModel.default_prompts,
        "scorer_semantics": "scorer-semantics",
        "scorer_quality": "scorer-quality",
    }

    calls: ScoreCalls = Field(
        "two",
        description="Calls for a score. two, as in the paper: semantics sees the pictures before "
        "and after, quality the one after alone; one: all four grades in one call, cheaper",
    )

    def identity_of(self, part: ScorePart) -> str:
        """Name of one of two calls; the other one's prompt does not change it."""
        return f"{self.model}-{part}-{stable_hash(self._hashed_for(f'scorer_{part}'))[:8]}"

    def _hashed_settings(self) -> object:
        if self.calls == "two":
            return self._hashed_for("scorer_semantics", "scorer_quality")
        return self._hashed_for(*AgentModel.default_prompts)  # as before there were two calls

    def _hashed_for(self, *prompts: str) -> object:
        versions = {name: version_of(self.prompt(name)) for name in prompts}
        excluded = {"batch", "endpoints", "calls"}
        settings = self.model_dump(mode="json", exclude=excluded, exclude_defaults=True)
        return settings | {"agent_prompts": versions}


class StructuredModel(AgentModel):
    """A model beside the loop, which answers in JSON."""

    form: Literal["schema"] = Field("schema", description="JSON whose schema is enforced")


class ExpanderModel(StructuredModel):
    """A model that proposes terms for vocabulary banks."""

    default_prompts: ClassVar[Mapping[str, str]] = {"expander": "expander"}


class RubricModel(StructuredModel):
    """A model that writes the rubrics of held-out requests."""

    default_prompts: ClassVar[Mapping[str, str]] = {"rubric": "rubric"}


class JudgeModel(StructuredModel):
    """A model that judges plans and outcomes by rubrics."""

    default_prompts: ClassVar[Mapping[str, str]] = {
        "judge_plan": "judge-plan",
        "judge_outcome": "judge-outcome",
    }


class BenchmarkJudgeModel(ChatModel):
    """A model that answers the questions of benchmarks, in words."""

    temperature: float | None = Field(
        0,
        ge=0,
        description="null: the model's own. 0: as a benchmark's protocol has it, which is 1 for "
        "CoMM and 0 for the others",
    )


class BudgetSettings(ConfigModel):
    """Upper limit for the cost of paid calls."""

    usd: float = Field(gt=0, description="What all paid calls of a home may cost together, in USD")
    alerts: list[float] = Field(
        [0.5, 0.8, 0.95],
        description="Shares of it at which section `notifications` and the log say so, once each; "
        "another `usd` begins anew",
    )

    @field_validator("alerts")
    @classmethod
    def _are_shares(cls, alerts: list[float]) -> list[float]:
        if not all(0 < share <= 1 for share in alerts):
            raise ValueError("shares are above 0 and at most 1, such as 0.8")
        return sorted(set(alerts))
