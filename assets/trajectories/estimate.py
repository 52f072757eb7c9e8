"""Estimates the calls, tokens, money, hours and disk space of a number of shards, before they run.

Calls are taken to be like the average call of the same model in this home; where there was none,
assumptions are used, and marked as such. A judge's calls are those of the variants of the settings,
without the systems that promotion compares beside them once one is in use. Those of GRPO's rewards
are upper bounds (`checkpoints/estimates.py`). What servers and trainings take of machines is
computed from sizes of models (`stage_needs.py`).
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil
from typing import NamedTuple

from inference.backends.checkpoint.backend import CheckpointBackend
from inference.backends.diffusers.backend import DiffusersSettings
from inference.backends.images.dialects import ImagesGeneratorModel
from inference.backends.providers.api import ApiSettings
from inference.backends.providers.budget import SpendingFile
from inference.backends.providers.settings import EndpointSettings, RemoteModel
from inference.backends.sketch.backend import SketchBackend
from inference.calls.scoring import Ensemble, callees
from inference.environments import gpus as gpus_here
from inference.generators import GeneratorPair, generator_shares
from inference.roles import Backend, Generator, Roles, qualified_name
from schemas.curation import CRITIC_RL, PLANNER_RL
from schemas.prompts import VOCABULARY_PROPOSALS
from schemas.training import EVALUATIONS, RUBRICS
from schemas.trajectories import LOOP_ROLES, TRAJECTORIES, Role
from training.stage_needs import StageNeeds, disk_needed, drawing_seconds, stage_needs
from warehouse import Home

from ..benchmarks.settings import BenchmarkJudgeSettings
from ..checkpoints.estimates import GrpoLoad, SftEstimate, grpo_loads, query, sft_estimates
from ..core.foundry import FoundryResource
from ..evaluation.settings import JudgeSettings
from ..evaluation.variants import VARIANTS
from ..prompts.assets import load_packs
from ..prompts.expansion import bank_questions
from ..prompts.user_requests import is_request_shard, requests_without_trajectories
from .forecast import LedgerForecast, ledger_forecast

_ATTEMPTS_PER_TRAJECTORY = 9.0  # six steps with an image, half of which take a second attempt
_IMAGE_MB = 1.6  # a PNG of 1024 x 1024 pixels
_SECONDS_AN_HOUR = 3600


@dataclass(frozen=True)
class _Call:
    """An average call."""

    input_tokens: float
    output_tokens: float
    seconds: float
    measured: int = 0  # calls averaged; 0: the values are assumptions


_Calls = Mapping[tuple[str, str], _Call]  # (role, backend/model) -> its average call
_ASSUMED: dict[Role, _Call] = {
    "planner": _Call(800, 2500, 30),
    "generator": _Call(1500, 1200, 20),  # a hosted one; of those on GPUs see `drawing_seconds`
    "critic": _Call(3500, 900, 15),
    "scorer": _Call(3500, 700, 15),
    "expander": _Call(900, 2000, 25),
    "rubric_writer": _Call(600, 400, 10),
    "benchmark_judge": _Call(3000, 300, 10),
    "judge": _Call(6000, 400, 15),  # a plan's text, or the outcome with its images
}


_SKETCH_SECONDS = 0.05  # of any call of the embedded world
_ASSUMED_PARTS = (_Call(3300, 500, 12), _Call(1900, 400, 10))
"""Of a scorer's two calls: semantics with two images, quality with one."""


@dataclass(frozen=True)
class RoleEstimate:
    """The share of one role."""

    role: Role
    model: str
    calls: int
    input_tokens: int
    output_tokens: int
    hours: float  # wall time if this role alone used all of its slots
    gpu_hours: float  # `hours` times the GPUs that serve the model
    usd: float | None  # None: the profile has no price for the model
    measured: int  # calls of this model in this home that were averaged; 0: assumptions
    purpose: str = ""  # "rewards": of GRPO


@dataclass(frozen=True)
class Estimate:
    """What it takes to bring a size of a profile up to date."""

    trajectories: int
    roles: tuple[RoleEstimate, ...]
    disk_gb: float  # of the images
    grpo: tuple[GrpoLoad, ...]  # to come; their rewards are among the roles
    measured: LedgerForecast  # of the trajectories, with their plans and scores
    sft: tuple[SftEstimate, ...]  # trainings to come
    needs: tuple[StageNeeds, ...]  # of machines, by stage
    peak_disk: float  # bytes that these take at most at a time
    budget: float | None  # USD of the profile's budget that are not spent; None: it has none

    @property
    def usd(self) -> float:
        return sum(role.usd or 0.0 for role in self.roles)

    @property
    def gpu_hours(self) -> float:
        return sum(role.gpu_hours for role in self.roles)

    @property
    def missing_usd(self) -> float:
        """By how much the profile's budget does not cover the calls."""
        return 0.0 if self.budget is None else max(0.0, self.usd - self.budget)


def estimate(foundry: FoundryResource, shards: int) -> Estimate:
    """Estimate the first `shards` shards, less those that have trajectories; needs no key."""
    foundry = foundry.without_keys()
    finished = foundry.home.lake.partitions(TRAJECTORIES)
    missing = max(0, shards - sum(not is_request_shard(shard) for shard in finished))
    trajectories = missing * foundry.settings.bank.shard_size
    trajectories += requests_without_trajectories(foundry)
    attempts = trajectories * _attempts_per_trajectory(foundry.home)
    measured = _measured_calls(foundry.home)
    models = (
        *_models(foundry, trajectories, round(attempts)),
        *_judge_models(foundry, trajectories),
    )
    roles = [_role_estimate(foundry, model, measured) for model in models]
    loads = []
    for load in grpo_loads(foundry, trajectories, _attempts_per_trajectory(foundry.home)):
        rewards = [_role_estimate(foundry, m, measured) for m in _reward_models(foundry, load)]
        loads.append(load.waiting_for_rewards(_slowest_reward(rewards)))
        roles += rewards
    needs = stage_needs(foundry.settings.servers, foundry.settings.training)
    return Estimate(
        trajectories=trajectories,
        roles=tuple(roles),
        disk_gb=attempts * _image_mb(foundry) / 1000,
        grpo=tuple(loads),
        measured=ledger_forecast(foundry.home, loop_model_names(foundry), trajectories),
        sft=tuple(sft_estimates(foundry, trajectories)),
        needs=tuple(needs),
        peak_disk=disk_needed(foundry.settings.training, needs),
        budget=_unspent(foundry),
    )


def _unspent(foundry: FoundryResource) -> float | None:
    if (budget := foundry.settings.budget) is None:
        return None
    spending = SpendingFile.of(foundry.home).read()
    return budget.usd - (spending.spent if spending else 0.0)


def loop_model_names(foundry: FoundryResource) -> set[str]:
    """Backend and model of all models that make trajectories and scores."""
    roles = foundry.roles
    return {model.name for role in LOOP_ROLES for model in _role_models(foundry, role, roles)}


def estimate_benchmark(
    foundry: FoundryResource,
    requests: int,
    roles: Sequence[Role],
    judge: BenchmarkJudgeSettings | None,
    questions: int,
) -> list[RoleEstimate]:
    """Answers to requests by the models of some roles, and questions to a judge; needs no key."""
    foundry = foundry.without_keys()
    attempts = round(requests * _attempts_per_trajectory(foundry.home))
    loop = _loop_models(foundry, requests, attempts, replace(foundry.roles, mix=()))
    models = [each for each in loop if each.role in roles]
    if judge is not None:
        models.append(_Model("benchmark_judge", judge.name, judge.model, calls=questions))
    measured = _measured_calls(foundry.home)
    return [_role_estimate(foundry, model, measured) for model in models if model.calls]


class _Model(NamedTuple):
    role: Role
    name: str  # in the lake
    settings: object
    a_trajectory: float = 0  # calls in the loop
    an_attempt: float = 0
    calls: int = 0
    slots: int | None = None  # None: the profile's
    purpose: str = ""
    assumed: _Call | None = None  # None: by role


def _models(foundry: FoundryResource, trajectories: int, attempts: int) -> Iterator[_Model]:
    """Every model that is called, members of an ensemble of scorers included."""
    expansion = foundry.settings.prompts.expansion
    if expansion and not foundry.home.lake.partitions(VOCABULARY_PROPOSALS):
        banks = sum(len(bank_questions(pack, 1)) for pack in load_packs(foundry))
        name = f"{expansion.backend}/{expansion.model.identity}"
        yield _Model("expander", name, expansion.model, calls=banks)
    yield from _loop_models(foundry, trajectories, attempts, foundry.roles)


def _loop_models(
    foundry: FoundryResource, trajectories: int, attempts: int, roles: Roles
) -> Iterator[_Model]:
    for role in LOOP_ROLES:
        for model in _role_models(foundry, role, roles):
            calls = model.a_trajectory * trajectories + model.an_attempt * attempts
            yield model._replace(calls=round(calls))


def _role_models(foundry: FoundryResource, role: Role, roles: Roles) -> Iterator[_Model]:
    """The models of a role, without a number of calls: each scorer of an ensemble, each of a
    scorer's two calls, each generator of a mix, of a pair."""
    if role == "generator":
        for generator, share in generator_shares(roles):
            yield from _generator_models(foundry, generator, share)
        return
    backend = getattr(roles, role)
    members = backend.members if isinstance(backend, Ensemble) else ()
    for one in [member.scorer for member in members] or [backend]:
        settings, called = _settings_of(foundry, role, one), callees(one)
        rate = (1.0, 0.0) if role == "planner" else (0.0, 1.0)
        assumed = _ASSUMED_PARTS if len(called) > 1 else (None,)
        for callee, call in zip(called, assumed, strict=True):
            yield _Model(role, qualified_name(callee), settings, *rate, assumed=call)


def _generator_models(
    foundry: FoundryResource, generator: Generator, share: float
) -> Iterator[_Model]:
    """The first of a pair draws one image of every trajectory."""
    settings = _settings_of(foundry, "generator", generator)
    if not isinstance(generator, GeneratorPair):
        yield _Model("generator", qualified_name(generator), settings, 0, share)
        return
    edit = getattr(settings, "edit", None)
    yield _Model("generator", qualified_name(generator.first), settings, share, 0)
    yield _Model("generator", qualified_name(generator.edit), edit, -share, share)


def _settings_of(foundry: FoundryResource, role: Role, backend: Backend) -> object:
    return getattr(foundry.settings.section_of(backend.backend), role, None)


def _reward_models(foundry: FoundryResource, load: GrpoLoad) -> Iterator[_Model]:
    """A drawing for every answer whose prompt is drawn, and a score by every scorer; of plans and
    trajectories, and of what is drawn of them, a judgement.

    Of a pair of generators the second draws: most rows judge an edit.
    """
    reward = getattr(foundry.training, load.name).reward
    slots: dict[Role, int] = {"generator": reward.concurrency, "scorer": reward.scorings}
    if reward.of != "step":
        slots = {"generator": reward.concurrency} if load.draws else {}
        if load.draws and reward.asks_critic:
            slots["critic"] = reward.scorings
        if judge := foundry.settings.evaluation.judge:
            model = _judge_model(judge, load.answers)
            yield model._replace(slots=reward.scorings, purpose="rewards")
    for role, most in slots.items():
        for model in _role_models(foundry, role, foundry.roles):
            if share := model.an_attempt:
                calls = round(share * load.draws)
                yield model._replace(calls=calls, slots=most, purpose="rewards")


def _slowest_reward(roles: Sequence[RoleEstimate]) -> float:
    """Hours of the slowest kind of calls; those of all scorers share the slots."""
    hours: dict[Role, float] = defaultdict(float)
    for role in roles:
        hours[role.role] += role.hours
    return max(hours.values(), default=0.0)


def _judge_models(foundry: FoundryResource, trajectories: int) -> Iterator[_Model]:
    """The models of `evaluation.judge`: a rubric a held-out request, once; then for every variant
    the outcome of each request, and the plan where it has a planner.

    Variants are evaluated again when there are new trajectories, of which some may be held out.
    """
    lake, evaluation = foundry.home.lake, foundry.settings.evaluation
    judge = evaluation.judge
    if judge is None:
        return
    requests = evaluation.heldout.stories + evaluation.heldout_category.stories
    training, with_rubric = foundry.settings.training, requests
    if training and training.planner_rl:
        with_rubric += lake.rows(PLANNER_RL) or foundry.settings.curation.planner.rl_prompts
    if training and training.critic_rl.reward.of != "step":
        with_rubric += len({row.prompt_id for row in foundry.rows(CRITIC_RL)})
    written = {row.prompt_id for row in foundry.rows(RUBRICS)}
    missing = max(0, with_rubric - len(written))
    name = f"{judge.backend}/{judge.rubrics.identity}"
    yield _Model("rubric_writer", name, judge.rubrics, calls=missing)
    if training is None:  # no checkpoints to evaluate
        return
    evaluated = set() if trajectories else set(lake.partitions(EVALUATIONS))
    variants = [VARIANTS[each] for each in evaluation.variants if each not in evaluated]
    grades = sum(1 + (variant.planner is not None) for variant in variants)
    yield _judge_model(judge, requests * grades)


def _judge_model(judge: JudgeSettings, calls: int) -> _Model:
    return _Model("judge", f"{judge.backend}/{judge.model.identity}", judge.model, calls=calls)


def _role_estimate(foundry: FoundryResource, model: _Model, measured: _Calls) -> RoleEstimate:
    count, slots = model.calls, _slots(foundry, model)
    call = measured.get((model.role, model.name)) or _assumed_call(foundry, model, slots)
    hours = count * call.seconds / slots / _SECONDS_AN_HOUR
    return RoleEstimate(
        role=model.role,
        model=model.name,
        calls=count,
        input_tokens=round(count * call.input_tokens),
        output_tokens=round(count * call.output_tokens),
        hours=hours,
        gpu_hours=hours * _gpus(foundry, model),
        usd=_usd(foundry, model, call),
        measured=call.measured,
        purpose=model.purpose,
    )


def _slots(foundry: FoundryResource, model: _Model) -> int:
    """Calls at a time: as many as the profile starts, and its endpoints admit."""
    limits = foundry.settings.limits
    slots = model.slots or (limits.generator if model.role == "generator" else limits.agents)
    admitted = sum(endpoint.concurrency for endpoint in _endpoints(foundry, model))
    return min(slots, admitted) if admitted else slots


def _assumed_call(foundry: FoundryResource, model: _Model, slots: int) -> _Call:
    """Of a generator on GPUs of ours, with the time that an image waits for one of them."""
    call = model.assumed or _ASSUMED[model.role]
    if model.name.startswith("sketch/"):
        return replace(call, seconds=_SKETCH_SECONDS)
    gpus, pipeline = _gpus(foundry, model), _pipeline(foundry, model)
    if model.role != "generator" or not gpus or pipeline is None:
        return call
    seconds = drawing_seconds(pipeline, references=min(1, ceil(model.an_attempt)))
    return replace(call, seconds=seconds * max(1.0, slots / gpus)) if seconds else call


def _pipeline(foundry: FoundryResource, model: _Model) -> DiffusersSettings | None:
    """What a generator draws with, where that is known."""
    settings = model.settings
    if not isinstance(settings, ImagesGeneratorModel):
        diffusers = foundry.settings.section(DiffusersSettings)
        return diffusers if model.name.startswith("diffusers/") else None
    changes = settings.model_dump(include={"size", "steps", "guidance"}, exclude_none=True)
    return DiffusersSettings(model=settings.model, **changes)


def _endpoints(foundry: FoundryResource, model: _Model) -> list[EndpointSettings]:
    """Where calls of a model go; none: it runs in this process, or is a trained agent's."""
    backend = foundry.settings.section_of(model.name.partition("/")[0])
    settings = model.settings
    if isinstance(settings, RemoteModel) and isinstance(backend, ApiSettings):
        return backend.endpoints_of(settings)
    return []


def _gpus(foundry: FoundryResource, model: _Model) -> int:
    """GPUs of our own machines that serve a model."""
    if endpoints := _endpoints(foundry, model):
        servers = foundry.settings.servers
        return sum(len(servers[e.server].gpus) if e.server else e.gpus for e in endpoints)
    backend = foundry.settings.section_of(model.name.partition("/")[0])
    served = foundry.settings.trained_server(model.role)
    if served and isinstance(backend, CheckpointBackend):
        return len(foundry.settings.servers[served].gpus)
    device = getattr(backend, "device", "cpu")
    return int(device != "cpu" and (device != "auto" or gpus_here() > 0))


def _usd(foundry: FoundryResource, model: _Model, call: _Call) -> float | None:
    """USD of all calls; None: the provider's model has no price. Local models cost nothing."""
    if not isinstance(model.settings, RemoteModel):
        return 0.0
    price = foundry.settings.prices.get(model.settings.model)
    if price is None:
        return None
    images = int(model.role == "generator")
    cost = price.cost(round(call.input_tokens), round(call.output_tokens), images=images)
    return model.calls * cost


def _measured_calls(home: Home) -> _Calls:
    """The average of the calls that each model has answered in this home, by role and name."""
    sql = """
        select role, backend || '/' || model as name, avg(seconds) as seconds, count(*) as measured,
            avg(coalesce(input_tokens, 0)) as input_tokens,
            avg(coalesce(output_tokens, 0)) as output_tokens
        from model_calls where not cached and error is null group by all
    """
    rows = query(home, sql)
    return {(row.pop("role"), row.pop("name")): _Call(**row) for row in rows}


def _attempts_per_trajectory(home: Home) -> float:
    sql = "select count(*) / nullif(count(distinct prompt_id), 0) as ratio from attempts"
    return query(home, sql)[0]["ratio"] or _ATTEMPTS_PER_TRAJECTORY


def _image_mb(foundry: FoundryResource) -> float:
    """Megabytes of an image; all but the sketch world's are taken to be 1024 x 1024 pixels."""
    if foundry.settings.roles.generators != ("sketch",):
        return _IMAGE_MB
    return foundry.settings.section(SketchBackend).picture_size ** 2 * 0.25e-6
