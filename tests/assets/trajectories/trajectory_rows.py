"""Builds the rows of trajectories, with images drawn by the sketch world's renderer."""

from inference.sketch_world.renderer import render
from inference.sketch_world.scene import Scene, make_cells
from schemas.prompts import PROMPTS, PromptRow
from schemas.trajectories import (
    ATTEMPTS,
    GRADES,
    PLANS,
    SCORES,
    TRAJECTORIES,
    AttemptRow,
    PlanRow,
    ScoreRow,
    TrajectoryRow,
)
from warehouse import EncodedImage, Home

SHARD = "sketchbook-0000"


class TrajectoryBuilder:
    """Collects trajectories and writes them as one shard."""

    def __init__(self, home: Home) -> None:
        self.home = home
        self.prompts: list[PromptRow] = []
        self.plans: list[PlanRow] = []
        self.trajectories: list[TrajectoryRow] = []
        self.attempts: list[AttemptRow] = []
        self.scores: list[ScoreRow] = []

    def add(
        self,
        name: str,
        request: str,
        scenes: list[Scene],
        *,
        category: str = "plants",
        rejected: dict[int, int] | None = None,
        status: str = "complete",
        caption: str | None = None,
        text_step: str | None = None,
        overall: float = 9.0,
        reasoning: str = "The seed is missing from the pot.",
    ) -> str:
        """Add a trajectory and return its id.

        Step n shows `scenes[n - 1]` after `rejected[n]` rejected attempts.
        """
        self.prompts.append(_prompt(name, request, category))
        before: str | None = None
        for number, scene in enumerate(scenes, start=1):
            prompt = f"Draw scene {number}."
            self.plans.append(_plan(name, number, prompt, caption or f"Scene {number} happens."))
            rejections = (rejected or {}).get(number, 0)
            for iteration in range(rejections + 1):
                accepted = iteration == rejections
                drawn_scene = scene if accepted else Scene("night sky", {})
                image = self.home.images.put(EncodedImage.of(render(drawn_scene, 96)))
                self._attempt(name, number, iteration, accepted, image, before, reasoning)
                self._score(name, number, iteration, overall if accepted else 2.0)
            before = image
        if text_step:
            self.plans.append(_plan(name, len(scenes) + 1, None, text_step))
        attempts = sum(a.trajectory_id == f"t-{name}" for a in self.attempts)
        self.trajectories.append(
            TrajectoryRow(
                trajectory_id=f"t-{name}",
                prompt_id=f"p-{name}",
                plan_id=f"plan-{name}",
                shard=SHARD,
                status=status,
                on_exhausted="last",
                t_max=5,
                steps=len(scenes) + bool(text_step),
                attempts=attempts,
                error=None,
            )
        )
        return f"t-{name}"

    def write(self) -> Home:
        for table, rows in (
            (PROMPTS, self.prompts),
            (PLANS, self.plans),
            (TRAJECTORIES, self.trajectories),
            (ATTEMPTS, self.attempts),
            (SCORES, self.scores),
        ):
            self.home.lake.write(table, rows, SHARD)
        return self.home

    def _attempt(self, name, number, iteration, accepted, image, before, reasoning) -> None:
        self.attempts.append(
            AttemptRow(
                trajectory_id=f"t-{name}",
                prompt_id=f"p-{name}",
                shard=SHARD,
                step_number=number,
                iteration=iteration,
                prompt=f"Draw scene {number}, take {iteration}.",
                source_image=before,
                image=image,
                seed=iteration,
                accepted=accepted,
                chosen=accepted,
                refined_prompt="" if accepted else f"Draw scene {number} exactly as planned.",
                reasoning="All is as requested." if accepted else reasoning,
                generator="sketch/test",
                critic="sketch/test",
                generator_seconds=0.0,
                critic_seconds=0.0,
            )
        )

    def _score(self, name, number, iteration, overall) -> None:
        self.scores.append(
            ScoreRow(
                trajectory_id=f"t-{name}",
                prompt_id=f"p-{name}",
                shard=SHARD,
                step_number=number,
                iteration=iteration,
                scorer="sketch/test",
                **dict.fromkeys(GRADES, overall),
            )
        )


def growing_flower() -> list[Scene]:
    """Four scenes below a sun: a seed, a sprout, a bud, a flower."""
    stages = [("seed", "brown"), ("sprout", "green"), ("bud", "pink"), ("flower", "pink")]
    return [
        Scene("meadow", make_cells([(2, "sun", "yellow"), (7, kind, colour)]))
        for kind, colour in stages
    ]


def _prompt(name: str, request: str, category: str) -> PromptRow:
    return PromptRow(
        prompt_id=f"p-{name}",
        pack="sketchbook",
        category=category,
        subcategory=f"{category}_tales",
        template_id="t1",
        text=request,
        terms=[],
        suffix=None,
        input_images=[],
        shard=SHARD,
        split="train",
    )


def _plan(name: str, number: int, prompt: str | None, caption: str) -> PlanRow:
    return PlanRow(
        prompt_id=f"p-{name}",
        plan_id=f"plan-{name}",
        shard=SHARD,
        planner="sketch/test",
        reasoning="It takes a few images.",
        step_number=number,
        step_name=f"Step {number}",
        instruction=None,
        prompt=prompt,
        auxiliary_text=caption,
    )
