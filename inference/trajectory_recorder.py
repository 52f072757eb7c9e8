"""The listener that turns a story's events into rows of `trajectories` and `attempts`."""

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
from .plans import Subject
from .roles import Roles, qualified_name
from .settings import LoopSettings


class TrajectoryRecorder:
    """One run of the loop, as far as it got.

    The trajectory's id covers the plan, every loop setting and the models that take part, so that
    other settings make another trajectory and the same ones the same; a `run` of its own makes
    each telling another one.
    """

    def __init__(
        self,
        prompt: Subject,
        plan_id: str | None,
        roles: Roles,
        settings: LoopSettings,
        run: str | None = None,
    ) -> None:
        self.prompt, self.plan_id, self.settings = prompt, plan_id, settings
        self.generator, self.critic = qualified_name(roles.generator), qualified_name(roles.critic)
        scorer = qualified_name(roles.scorer) if settings.on_exhausted == "best" else None
        players = [self.generator, self.critic, scorer]
        facts = [prompt.prompt_id, plan_id, settings.model_dump(), players]
        self.trajectory_id = stable_hash("trajectory", *facts, *([run] if run else []))
        self._attempts: dict[tuple[int, int], AttemptRow] = {}
        self._status: TrajectoryStatus = "quarantined"
        self._steps = 0

    def note(self, event: Event) -> None:
        """Take in the next event."""
        match event:
            case AttemptJudged():
                row = self._attempt(event, chosen=False)
                self._attempts[row.step_number, row.iteration] = row
            case StepAccepted(chosen=chosen) | StepExhausted(chosen=AttemptJudged() as chosen):
                row = self._attempt(chosen, chosen=True)
                self._attempts[row.step_number, row.iteration] = row
                self._steps += 1
            case TextEmitted():
                self._steps += 1
            case TrajectoryFinished(status=status):
                self._status = status

    def attempts(self) -> list[AttemptRow]:
        """Every judged attempt, those of a story that failed later included."""
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

    def _attempt(self, judged: AttemptJudged, chosen: bool) -> AttemptRow:
        drawn, verdict = judged.draw, judged.verdict
        return AttemptRow(
            trajectory_id=self.trajectory_id,
            prompt_id=self.prompt.prompt_id,
            shard=self.prompt.shard,
            step_number=drawn.step.step_number,
            iteration=drawn.iteration,
            prompt=drawn.prompt,
            source_image=drawn.source.sha256 if drawn.source else None,
            image=drawn.image.sha256,
            seed=drawn.seed,
            accepted=verdict.accepted,
            chosen=chosen,
            refined_prompt="" if verdict.accepted else verdict.refined_prompt,
            reasoning=verdict.reasoning,
            generator=self.generator,
            critic=self.critic,
            generator_seconds=drawn.call.seconds,
            critic_seconds=judged.call.seconds,
        )
