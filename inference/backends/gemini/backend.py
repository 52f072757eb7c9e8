"""The backend `gemini`: Google's Gemini API."""

from pydantic import Field

from ..backend import RESPONDENTS, register
from ..providers.settings import Api, EndpointSettings, ProviderSettings, RemoteGeneratorModel
from .adapter import GeminiAdapter


@register
class GeminiSettings(ProviderSettings):
    """Google's Gemini API."""

    backend = "gemini"
    summary = "Google, where `roles` names gemini"
    plays = ("planner", "generator", "critic", "scorer", *RESPONDENTS)
    package = "google-genai"
    api = Api("https://generativelanguage.googleapis.com", "/v1beta/models", "x-goog-api-key", "")

    endpoints: list[EndpointSettings] = Field(
        default=[EndpointSettings(key="GEMINI_API_KEY")],
        min_length=1,
        description=ProviderSettings.model_fields["endpoints"].description,
    )
    generator: RemoteGeneratorModel | None = Field(None, description="The generator")

    def adapter(self) -> GeminiAdapter:
        return GeminiAdapter(self.timeout_seconds)
