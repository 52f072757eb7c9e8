"""A lake of attempts with scores, and people who review them."""

import pytest

from inference.review_log import add_review
from schemas.trajectories import ReviewRow


@pytest.fixture
def say(world):
    """Stores what somebody says of an attempt: `say("a", 1, 0, accepted=False)`."""
    numbers = iter(range(1000))

    def say(name, step, iteration, reviewer="ann", image=None, **opinion) -> ReviewRow:
        found = {
            (row.trajectory_id, row.step_number, row.iteration): row
            for row in world.rows["attempts"]
        }
        attempt = found[f"{name}-run", step, iteration]
        kind = "prompt" if "prompt" in opinion else "verdict"
        if "accepted" in opinion:
            opinion["agrees"] = opinion["accepted"] == attempt.accepted
        if "better" in opinion:
            beside = opinion.pop("beside", iteration + 1)
            kind, other = "preference", found[f"{name}-run", step, beside]
            opinion = {
                "better_iteration": opinion["better"],
                "other_iteration": other.iteration,
                "other_image": other.image,
            }
        fields = attempt.model_dump(
            include={"shard", "prompt_id", "trajectory_id", "step_number", "iteration", "critic"}
        )
        row = ReviewRow(
            **fields | opinion,
            review_id=f"r{next(numbers)}",
            image=image or attempt.image,
            critic_accepted=attempt.accepted,
            reviewer=reviewer,
            reviewed_at="2026-01-01T00:00:00Z",
            kind=kind,
        )
        return add_review(world.home, row)

    return say
