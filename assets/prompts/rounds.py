"""What was decided about rounds, in a journal of the home: the lineage follows from it.

A round's shards are made by the agents that were promoted when it began, whatever is promoted
later; its prompts are a stretch of the bank, drawn by the quotas of that moment; its sets are
trained on once they are checked. A bank is a function of pack, seed and these stretches: what is
recorded never changes, so neither do a round's prompts, nor those before and after it.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Literal

from pydantic import Field, ValidationError

from inference.backends.checkpoint.manifest import IDENTITY, AgentRole
from inference.roles import Roles
from inference.settings import Limits
from schemas import FoundryError
from schemas.errors import first_problem
from schemas.yaml_config import ConfigModel
from warehouse import Home

from ..core.foundry import FoundryResource
from .pack import Pack

_JOURNAL = ("rounds", "rounds")  # asset and partition
State = Literal["open", "checked", "closed"]


class Quotas(ConfigModel):
    """Weights of cells of a bank's prompts; one that is missing has weight 1."""

    categories: dict[str, float] = Field({}, description="Category -> times its share")
    templates: dict[str, float] = Field({}, description="Template -> how often its turn comes")


@dataclass(frozen=True)
class TrainStretch:
    """Prompts number `start` to `end` (exclusive) of a bank, drawn by quotas."""

    start: int
    end: int
    quotas: Quotas = field(default_factory=Quotas)

    def weight(self, template: str) -> float:
        return self.quotas.templates.get(template, 1.0)

    def subcategories(self, pack: Pack, order: Sequence[str]) -> Iterator[str]:
        """The sub-category of each prompt: training ones, evenly spread by their weights.

        Smooth weighted round-robin: after any number of prompts, each has its share within 1.
        """
        weights = {
            sub: self.quotas.categories.get(pack.category_of[sub], 1.0)
            for sub in order
            if not pack.subcategories[sub].heldout
        }
        credit, total = dict.fromkeys(weights, 0.0), sum(weights.values())
        for _ in range(self.start, self.end):
            for sub, weight in weights.items():
                credit[sub] += weight
            chosen = max(credit, key=credit.__getitem__)
            credit[chosen] -= total
            yield chosen


class RoundPlan(ConfigModel):
    """A round as it was begun."""

    number: int = Field(ge=1, description="1-based")
    pack: str = Field(description="Pack of its prompts")
    first_shard: int = Field(ge=0, description="Number of its first shard in the bank")
    shards: tuple[str, ...] = Field(description="Names of its shards")
    planner: str = Field(
        pattern=IDENTITY.pattern, description="Checkpoint that plans them; start of training"
    )
    critic: str = Field(
        pattern=IDENTITY.pattern, description="Checkpoint that judges them; start of training"
    )
    quotas: Quotas = Field(Quotas(), description="What its prompts are drawn by")
    began_at: datetime = Field(description="UTC")

    @property
    def agents(self) -> dict[AgentRole, str]:
        """Role -> name@version of the checkpoint."""
        return {"planner": self.planner, "critic": self.critic}

    def stretch(self, shard_size: int) -> TrainStretch:
        """What it drew of its pack's bank."""
        start = self.first_shard * shard_size
        return TrainStretch(start, start + len(self.shards) * shard_size, self.quotas)


def recorded_rounds(home: Home) -> list[RoundPlan]:
    """All rounds, those that are not finished included, in their order.

    Raises FoundryError: one was recorded by an earlier version, in another form.
    """
    try:
        plans = [
            RoundPlan.model_validate(each["plan"]) for each in _records(home) if "plan" in each
        ]
    except ValidationError as error:
        raise FoundryError(
            f"{home.root}: a round has not the form of this version: {first_problem(error)}; start "
            "rounds in a new home"
        ) from error
    return [*{plan.number: plan for plan in plans}.values()]  # a journal may repeat a line


def rounds_of_shards(home: Home, shards: Iterable[str]) -> dict[str, RoundPlan]:
    """Those of the shards that a round made -> that round."""
    made = {shard: plan for plan in recorded_rounds(home) for shard in plan.shards}
    return {shard: made[shard] for shard in shards if shard in made} if made else {}


def stretch_at(stretches: Sequence[TrainStretch], number: int) -> TrainStretch | None:
    """The stretch that a prompt's number is in."""
    return next((each for each in stretches if each.start <= number < each.end), None)


def roles_of_shard(foundry: FoundryResource, shard: str) -> Roles:
    """Who makes a shard: the profile's roles, or those of a round, whose planner and critic are the
    checkpoints that it began with.

    Raises FoundryError: there is no such checkpoint any more.
    """
    plan = rounds_of_shards(foundry.home, [shard]).get(shard)
    if plan is None:
        return foundry.roles
    planner, critic = (
        foundry.settings.agent(role, reference, foundry.home)
        for role, reference in plan.agents.items()
    )
    return replace(foundry.roles, planner=planner, critic=critic)


def limits_of_shard(foundry: FoundryResource, shard: str) -> Limits:
    """The profile's limits; those of a round's shard also by section `rounds`."""
    settings, limits = foundry.settings.rounds, foundry.settings.limits
    if settings is None or not rounds_of_shards(foundry.home, [shard]):
        return limits
    return limits.model_copy(
        update={
            "agents": settings.in_flight,
            "trajectories_in_flight": settings.in_flight,
            "failure_share": max(limits.failure_share, settings.quarantine_share),
        }
    )


def states(home: Home) -> dict[int, State]:
    """Number of a round -> how far it is."""
    return {record["round"]: record["state"] for record in _records(home)}


def trained_round(home: Home) -> RoundPlan | None:
    """The last round whose data passed the safeguards: what agents are trained on now."""
    checked = {record["round"] for record in _records(home) if record["state"] == "checked"}
    return next((p for p in reversed(recorded_rounds(home)) if p.number in checked), None)


def record_plan(home: Home, plan: RoundPlan) -> None:
    """Begin a round."""
    record_state(home, plan.number, "open", plan=plan.model_dump(mode="json"))


def record_state(home: Home, number: int, state: State, **more: object) -> None:
    """Say how far a round is."""
    content = {"round": number, "state": state, **more, "at": datetime.now(UTC).isoformat()}
    with home.journal(*_JOURNAL) as journal:
        journal.append(content)


def _records(home: Home) -> list[dict[str, Any]]:
    return list(home.journal(*_JOURNAL).records())
