"""Plays a recorded trajectory on from one of its attempts: with another prompt, seed or critic, or
as if the critic had accepted it there.

Calls that the trajectory, or any branch of its shard, made already come from their journals; only
others are made, journaled and in the ledger (asset `branches`). So a branch without a change is the
recorded trajectory, without a call, and one that differs from the first attempt on is what a run
with that change would have been.
"""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import asdict, dataclass, field, replace
from typing import Any, cast

import pyarrow as pa
import pyarrow.compute as pc

from inference.backends.checkpoint.manifest import PROMOTED, promoted
from inference.calls.ask import ModelCalls
from inference.calls.hashing import attempt_seed, stable_hash
from inference.calls.retry import CallFailedError, summarize_error
from inference.events import (
    AttemptJudged,
    ImageGenerated,
    TrajectoryFailed,
    TrajectoryRecorder,
    plan_from_rows,
)
from inference.generation.trajectory_view import TrajectoryView
from inference.generators import roles_of_prompt
from inference.loop import Loop
from inference.roles import Critic, PlanStep, UnusableAnswerError
from schemas import FoundryError, Table
from schemas.prompts import PROMPTS, PromptRow
from schemas.trajectories import (
    ATTEMPTS,
    BRANCH_ATTEMPTS,
    BRANCHES,
    MODEL_CALLS,
    PLANS,
    TRAJECTORIES,
    AttemptRow,
    BranchRow,
    TrajectoryRow,
)
from warehouse import EncodedImage, Home

from ..core.foundry import FoundryResource
from ..prompts.rounds import roles_of_shard

ASSET = "branches"


@dataclass(frozen=True)
class Change:
    """What is different from an attempt on.

    Args:
        prompt: draws that attempt, in place of the recorded one.
        seed: of the loop, from there on.
        critic: judges from there on: `promoted`, name@version, a folder, or an id at Hugging Face.
        accept: the attempt is accepted, whatever the critic says.
    """

    step_number: int
    iteration: int
    prompt: str | None = None
    seed: int | None = None
    critic: str | None = None
    accept: bool = False

    @property
    def attempt(self) -> tuple[int, int]:
        return self.step_number, self.iteration


@dataclass(frozen=True)
class BranchLoop(Loop):
    """The loop with changes, in the order of branching; the last one about an attempt counts."""

    changes: tuple[Change, ...] = ()
    critics: Mapping[str, Critic] = field(default_factory=dict)

    def _here(self, step: PlanStep, iteration: int) -> Iterator[Change]:
        """The changes at an attempt, newest first."""
        return (c for c in reversed(self.changes) if c.attempt == (step.step_number, iteration))

    def _since(self, step: PlanStep, iteration: int) -> Iterator[Change]:
        """The changes at an attempt or before it, newest first."""
        return (c for c in reversed(self.changes) if c.attempt <= (step.step_number, iteration))

    async def _draw(
        self, step: PlanStep, iteration: int, prompt: str, images: Sequence[EncodedImage]
    ) -> ImageGenerated:
        prompt = next((c.prompt for c in self._here(step, iteration) if c.prompt), prompt)
        return await super()._draw(step, iteration, prompt, images)

    def _seed(self, step: PlanStep, iteration: int) -> int:
        seeds = (c.seed for c in self._since(step, iteration) if c.seed is not None)
        seed = next(seeds, self.settings.seed)
        return attempt_seed(seed, self.prompt_id, step.step_number, iteration)

    async def _judge(self, draw: ImageGenerated, goal: str, attempt: int) -> AttemptJudged:
        here = draw.step, draw.iteration
        judge = self
        if name := next((c.critic for c in self._since(*here) if c.critic), None):
            roles = replace(self.calls.roles, critic=self.critics[name])
            judge = replace(self, calls=self.calls.with_roles(roles))
        rewritten = attempt or int(draw.prompt != goal)  # 0: the plan's own prompt drew it
        judged = await super(BranchLoop, judge)._judge(draw, goal, rewritten)
        if not any(change.accept for change in self._here(*here)):
            return judged
        return replace(judged, verdict=replace(judged.verdict, accepted=True, refined_prompt=""))


@dataclass(frozen=True)
class RecordedTrajectory:
    """A trajectory of the bank, and the changes that lead to the branch that is left.

    Args:
        parent_id: of the trajectory, or of that branch: what the next branch leaves.
    """

    foundry: FoundryResource
    parent_id: str
    trajectory: TrajectoryRow
    changes: tuple[Change, ...] = ()

    @classmethod
    def find(cls, foundry: FoundryResource, parent_id: str) -> "RecordedTrajectory":
        """By the id of a trajectory or a branch, or the beginning of one.

        Raises:
            FoundryError: there is none, or several begin so.
        """
        found = [
            row
            for table in (TRAJECTORIES, BRANCHES)
            for row in _rows(
                foundry, table, None, pc.starts_with(pc.field(table.key[0]), parent_id)
            )
        ]
        if len(found) != 1:
            raise FoundryError(
                f"{len(found) or 'no'} trajectories of shards in {foundry.home.root} begin with "
                f"{parent_id!r}: `interleave sql` lists them (docs/replay.md)"
            )
        if isinstance(row := found[0], TrajectoryRow):
            return cls(foundry, row.trajectory_id, row)
        left = cls.find(foundry, row.parent_id)
        change = Change(**row.model_dump(include=set(Change.__dataclass_fields__)))
        return replace(left, parent_id=row.branch_id, changes=(*left.changes, change))

    @property
    def shard(self) -> str:
        return self.trajectory.shard

    def attempts(self) -> list[AttemptRow]:
        table = BRANCH_ATTEMPTS if self.changes else ATTEMPTS
        return _rows(self.foundry, table, self.shard, pc.field("trajectory_id") == self.parent_id)

    def prompt(self) -> PromptRow:
        condition = pc.field("prompt_id") == self.trajectory.prompt_id
        [row] = _rows(self.foundry, PROMPTS, self.shard, condition)
        return cast(PromptRow, row)

    def recorder(self, prompt: PromptRow) -> TrajectoryRecorder:
        """Of the trajectory, with the profile's present settings and models.

        Raises:
            FoundryError: these are others than made it.
        """
        foundry, own = self.foundry, self.trajectory
        plan = _rows(foundry, PLANS, self.shard, pc.field("plan_id") == own.plan_id)
        roles = roles_of_prompt(roles_of_shard(foundry, self.shard), own.prompt_id)
        recorder = TrajectoryRecorder(prompt, plan, roles, foundry.settings.loop)
        if recorder.trajectory_id != own.trajectory_id:
            raise FoundryError(
                f"trajectory {own.trajectory_id} was made with other settings or models than "
                f"profile {foundry.profile} has now: name the profile that made it"
            )
        return recorder


@dataclass(frozen=True)
class Branch:
    """A branch as it is stored, and what is shown of it."""

    row: BranchRow
    attempts: list[AttemptRow]
    view: TrajectoryView


def play_branch(foundry: FoundryResource, parent_id: str, change: Change) -> Branch:
    """Play a trajectory, or a branch, on from one of its attempts.

    Raises:
        FoundryError: see `RecordedTrajectory`; the attempt is not there; a model is unavailable,
            or gave no answer.
    """
    recorded = RecordedTrajectory.find(foundry, parent_id)
    known = sorted((row.step_number, row.iteration) for row in recorded.attempts())
    if change.attempt not in known:
        listed = ", ".join(f"{step} {iteration}" for step, iteration in known) or "none"
        raise FoundryError(
            f"{recorded.parent_id} has no attempt {change.step_number} {change.iteration}: its "
            f"attempts (step and iteration) are {listed}"
        )
    if change.critic == PROMOTED:  # by the name that stays
        critic = promoted(foundry.home).get("critic", PROMOTED)
        change = replace(change, critic=critic)
    return asyncio.run(_play(recorded, change))


def branches_of(foundry: FoundryResource, trajectory_id: str) -> list[BranchRow]:
    """All branches of a recorded trajectory, and of its branches."""
    return _rows(foundry, BRANCHES, None, pc.field("trajectory_id") == trajectory_id)


async def _play(recorded: RecordedTrajectory, change: Change) -> Branch:
    home, settings = recorded.foundry.home, recorded.foundry.settings
    prompt, changes = recorded.prompt(), (*recorded.changes, change)
    root = recorded.recorder(prompt)
    own = replace(root, run=stable_hash("branch", [asdict(each) for each in changes]))
    names = {each.critic for each in changes if each.critic}
    critics = {name: settings.agent("critic", name, home) for name in names}
    plan, images = plan_from_rows(root.plan), tuple(map(home.images.get, prompt.input_images))
    with ModelCalls(home, ASSET, recorded.shard, root.roles, settings.limits) as calls:
        calls.reuse("trajectories", recorded.shard, {prompt.prompt_id})
        earlier = len(calls.ledger())
        loop = BranchLoop(
            *(calls, root.settings, prompt.prompt_id, plan, images),
            changes=changes,
            critics=critics,
        )
        view = TrajectoryView(prompt.text, images, plan, trajectory_id=own.trajectory_id)
        try:
            error = await _run(loop, own, view)
        finally:
            home.lake.write(MODEL_CALLS, calls.ledger(), f"{ASSET}-{recorded.shard}")
        made = sum(not call.cached for call in calls.ledger()[earlier:])
        branch = Branch(_row(recorded, change, own.trajectory(error), made), own.attempts(), view)
        _store(home, branch)
    return branch


async def _run(loop: Loop, recorder: TrajectoryRecorder, view: TrajectoryView) -> str | None:
    """Run a loop to its end; why it has no outcome."""
    try:
        async with aclosing(loop.events()) as events:
            async for event in events:
                recorder.note(event)
                view.note(event)
    except UnusableAnswerError as error:
        view.note(TrajectoryFailed(summarize_error(error), refused=True))
        return summarize_error(error)
    except CallFailedError as error:
        raise FoundryError(f"{error}; finished calls are stored, run it again") from error
    return None


def _row(
    recorded: RecordedTrajectory, change: Change, ended: TrajectoryRow, calls: int
) -> BranchRow:
    return BranchRow(
        branch_id=ended.trajectory_id,
        parent_id=recorded.parent_id,
        trajectory_id=recorded.trajectory.trajectory_id,
        **ended.model_dump(include=BranchRow.model_fields.keys() - {"trajectory_id"}),
        **asdict(change),
        calls=calls,
    )


def _store(home: Home, branch: Branch) -> None:
    """Add its rows to those of the other branches of its shard; they replace earlier ones."""
    for table, key, rows in (
        (BRANCH_ATTEMPTS, "trajectory_id", branch.attempts),
        (BRANCHES, "branch_id", [branch.row]),
    ):
        others = pc.field(key) != branch.row.branch_id
        stored = home.lake.read(table, [branch.row.shard], where=others)
        added = pa.concat_tables([stored, table.to_arrow(rows)])
        home.lake.write(table, added, branch.row.shard)


def _rows(
    foundry: FoundryResource, table: Table, shard: str | None, where: pc.Expression
) -> list[Any]:
    """Rows of a shard, or of all shards."""
    found = foundry.home.lake.read(table, None if shard is None else [shard], where=where)
    return [table.row.model_validate(row) for row in found.to_pylist()]
