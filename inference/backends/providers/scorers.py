"""Scorers at a provider: VIEScore in two calls, as in the paper, or in one (docs/scorers.md)."""

from typing import ClassVar

from schemas.trajectories import ScoreCalls
from warehouse import EncodedImage

from ...agent_prompts.templates import escape_tags, render
from ...calls.scoring import TwoCallScorer
from ...roles import QualityGrades, Score, Scorer, SemanticsGrades
from .agents import RemoteAgent, before_and_after
from .chat import CompletionClient
from .settings import ScorerModel
from .structured import QualityAnswer, ScoreAnswer, SemanticsAnswer


class RemoteScorer(RemoteAgent):
    """All four grades in one call."""

    score_calls: ClassVar[ScoreCalls] = "one"

    async def score(
        self, before: EncodedImage | None, after: EncodedImage, instruction: str
    ) -> Score:
        text = render(self._settings.prompt("scorer"), instruction=escape_tags(instruction)).text
        return await self._ask(text, before_and_after(before, after), ScoreAnswer)


class RemoteSemanticsScorer(RemoteAgent):
    async def score_semantics(
        self, before: EncodedImage | None, after: EncodedImage, instruction: str
    ) -> SemanticsGrades:
        name = self._settings.prompt("scorer_semantics")
        text = render(name, instruction=escape_tags(instruction)).text
        return await self._ask(text, before_and_after(before, after), SemanticsAnswer)


class RemoteQualityScorer(RemoteAgent):
    async def score_quality(self, after: EncodedImage) -> QualityGrades:
        text = render(self._settings.prompt("scorer_quality")).text
        return await self._ask(text, (after,), QualityAnswer)


def remote_scorer(backend: str, client: CompletionClient, settings: ScorerModel) -> Scorer:
    """The scorer of a provider, in the form that `settings.calls` names."""
    if settings.calls == "one":
        return RemoteScorer(backend, client, settings)
    semantics = RemoteSemanticsScorer(backend, client, settings, settings.identity_of("semantics"))
    quality = RemoteQualityScorer(backend, client, settings, settings.identity_of("quality"))
    return TwoCallScorer(backend, settings.identity, semantics, quality)
