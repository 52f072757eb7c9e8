"""Turns the events of a trajectory into rows of `trajectories` and `attempts`."""

from schemas.trajectories import AttemptRow, TrajectoryRow, TrajectoryStatus

from .engine.hashing import stable_hash
from .events import (
    AttemptJudged,
    Event,
    StepAccepted,
    StepExhausted,
    TextEmitted,
    TrajectoryFinished,
)
from .plans import PromptRef
from .roles import Roles, qualified_name
from .settings import LoopSettings


class TrajectoryRecorder:
    """The rows of one trajectory, as far as it got.

    Its id is a hash of the plan, all loop settings and the models that take part: the same inputs
    make the same trajectory. With a `run` the id is different for every run.
    """

    def __init__(
        self,
        prompt: PromptRef,
        plan_id: str | None,
        roles: Roles,
        settings: LoopSettings,
        run: str | None = None,
    ) -> None:
        self.prompt, self.plan_id, self.settings = prompt, plan_id, settings
        self.generator, self.critic = qualified_name(roles.generator), qualified_name(roles.critic)
        scorer = qualified_name(roles.scorer) if settings.on_exhausted == "best" else None
        models = [self.generator, self.critic, scorer]
        inputs = [prompt.prompt_id, plan_id, settings.model_dump(), models]
        self.trajectory_id = stable_hash("trajectory", *inputs, *([run] if run else []))
        self._attempts: dict[tuple[int, int], AttemptRow] = {}
        self._status: TrajectoryStatus = "quarantined"
        self._steps = 0

    def note(self, event: Event) -> None:
        """Add the next event."""
        match event:
            case AttemptJudged():
                row = self._row(event, chosen=False)
                self._attempts[row.step_number, row.iteration] = row
            case StepAccepted(chosen=chosen) | StepExhausted(chosen=AttemptJudged() as chosen):
                row = self._row(chosen, chosen=True)
                self._attempts[row.step_number, row.iteration] = row
                self._steps += 1
            case TextEmitted():
                self._steps += 1
            case TrajectoryFinished(status=status):
                self._status = status

    def attempts(self) -> list[AttemptRow]:
        """Every judged attempt, those of a trajectory that failed later included."""
        return list(self._attempts.values())

    def trajectory(self, error: str | None) -> TrajectoryRow:
        return TrajectoryRow(
            trajectory_id=self.trajectory_id,
            prompt_id=self.prompt.prompt_id,
            plan_id=self.plan_id,
            shard=self.prompt.shard,
            status=self._status,
            on_exhausted=self.settings.on_exhausted,
            t_max=self.settings.t_max,
            steps=self._steps,
            attempts=len(self._attempts),
            error=error,
        )

    def _row(self, attempt: AttemptJudged, chosen: bool) -> AttemptRow:
        draw, verdict = attempt.draw, attempt.verdict
        return AttemptRow(
            trajectory_id=self.trajectory_id,
            prompt_id=self.prompt.prompt_id,
            shard=self.prompt.shard,
            step_number=draw.step.step_number,
            iteration=draw.iteration,
            prompt=draw.prompt,
            source_image=draw.source.sha256 if draw.source else None,
            image=draw.image.sha256,
            seed=draw.seed,
            accepted=verdict.accepted,
            chosen=chosen,
            refined_prompt="" if verdict.accepted else verdict.refined_prompt,
            reasoning=verdict.reasoning,
            generator=self.generator,
            critic=self.critic,
            generator_seconds=draw.call.seconds,
            critic_seconds=attempt.call.seconds,
        )
