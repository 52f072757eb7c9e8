"""The backend `openai`: OpenAI, or any endpoint with its chat completions API."""

from pydantic import Field

from ..backend import RESPONDENTS, register
from ..providers.settings import EndpointSettings, ProviderSettings
from .adapter import OpenAIAdapter


@register
class OpenAISettings(ProviderSettings):
    """OpenAI, or any endpoint with its API: vLLM, SGLang and others."""

    backend = "openai"
    summary = "OpenAI, or an endpoint with its API, where `roles` names openai"
    plays = ("planner", "critic", "scorer", *RESPONDENTS)
    package = "openai"
    served_by = ("agents", "command")

    endpoints: list[EndpointSettings] = Field(
        default=[EndpointSettings(key="OPENAI_API_KEY")],
        min_length=1,
        description=ProviderSettings.model_fields["endpoints"].description,
    )

    def adapter(self) -> OpenAIAdapter:
        return OpenAIAdapter(self.timeout_seconds)
