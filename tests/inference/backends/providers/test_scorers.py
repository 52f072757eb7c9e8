"""Scorers at a provider: what each of two calls sees, and how they are named."""

import asyncio
import json

import pytest

from inference.agent_prompts.templates import version_of
from inference.backends.providers.settings import AgentModel, ScorerModel
from inference.calls.scoring import TwoCallScorer, score_calls
from inference.roles import UnusableAnswerError
from tests.inference.backends.providers.api_formats import gemini_parts, openai_parts
from tests.inference.backends.providers.faulty_provider import provider
from tests.inference.backends.providers.provider_roles import AGENT, provider_roles
from warehouse import EncodedImage, Home

GOAL = "Draw a meadow with a red flower at the bottom center."
BEFORE, AFTER = EncodedImage.white((96, 64)), EncodedImage.white((64, 96))


def build_scorer(server, backend, **settings):
    agents = {"scorer": AGENT | settings}
    return provider_roles(server, backend, Home("memory://providers"), agents).scorer


def parts_of(body, backend):
    return openai_parts(body["messages"]) if backend == "openai" else gemini_parts(body["contents"])


def test_semantics_sees_both_pictures_and_quality_the_new_one_unless_one_call_sees_all(backend):
    with provider() as server:
        scorer = build_scorer(server, backend)
        assert isinstance(scorer, TwoCallScorer), "the default"
        score = asyncio.run(scorer.score(BEFORE, AFTER, GOAL))
        asked = [parts_of(body, backend) for body in server.bodies]
        schemas = [json.dumps(body) for body in server.bodies]
    (texts, both), (alone, one) = sorted(asked, key=lambda parts: -len(parts[1]))
    assert [image.image.size for image in both] == [(96, 64), (64, 96)]
    assert [image.image.size for image in one] == [(64, 96)]
    assert GOAL in "".join(texts) and GOAL not in "".join(alone)
    assert sum("over_edit" in schema and "artifacts" in schema for schema in schemas) == 0
    assert score.edit_success < 5 and score.quality == 8
    with provider() as server:
        scorer = build_scorer(server, backend, calls="one")
        asyncio.run(scorer.score(BEFORE, AFTER, GOAL))
        assert len(server.bodies) == 1 and score_calls(scorer) == "one"


def test_an_unreadable_half_is_asked_again_by_itself(backend):
    with provider() as server:
        server.scripts = ["garble"]
        asyncio.run(build_scorer(server, backend).score(BEFORE, AFTER, GOAL))
        assert server.outcomes == {"garble": 1, "ok": 2}


def test_a_grade_above_ten_is_unusable(backend):
    answer = json.dumps({"reasoning": "", "naturalness": 11, "artifacts": 1})
    with provider() as server:
        quality = build_scorer(server, backend).quality
        server.scripts = [answer, answer]
        with pytest.raises(UnusableAnswerError, match="less than or equal to 10"):
            asyncio.run(quality.score_quality(AFTER))


def test_names_follow_from_the_prompts_that_are_used(tmp_path):
    own = tmp_path / "quality.jinja"
    own.write_text("<image>Is it well made?")
    plain = ScorerModel(model="m")
    other = ScorerModel(model="m", agent_prompts={"scorer_quality": str(own)})
    one, agent = ScorerModel(model="m", calls="one"), AgentModel(model="m")
    assert one.identity == agent.identity, "journals of one call stay valid"
    assert len({plain.identity, other.identity, one.identity}) == 3
    assert plain.identity_of("quality") != other.identity_of("quality")
    assert plain.identity_of("semantics") != ScorerModel(model="n").identity_of("semantics")
    assert version_of(plain.prompt("scorer_semantics")) == "scorer-semantics@1"
