"""Which checkpoint is kept by its reward on dev rows, and when training stops."""

import pytest

from training.grpo.verl_files import DevEvaluations, final_metrics, points_up_to
from warehouse import Journal


@pytest.fixture
def run(tmp_path):
    """Makes the evaluations of a run: step -> reward, None where there was no evaluation."""

    def make(rewards: dict[int, float | None], patience: int | None = None) -> DevEvaluations:
        curves = Journal(tmp_path / "progress.jsonl")
        for step, reward in rewards.items():
            extra = {"entropy": 1.0} | ({} if reward is None else {"dev_reward": reward})
            curves.append({"step": step, "total": 9, "reward": 0.5, "extra": extra})
            (tmp_path / "checkpoints" / f"global_step_{step}").mkdir(parents=True, exist_ok=True)
        return DevEvaluations(curves, tmp_path / "checkpoints", patience)

    return make


def names(evaluations: DevEvaluations) -> list[str]:
    return sorted(path.name for path in evaluations.checkpoints.iterdir())


def test_the_best_checkpoint_is_the_first_with_the_highest_reward(run):
    evaluations = run({1: 0.2, 2: 0.6, 3: None, 4: 0.6, 5: 0.4})
    assert (evaluations.best(5), evaluations.best(1), evaluations.best(0)) == (2, 1, None)
    (evaluations.checkpoints / "global_step_2").rename(evaluations.checkpoints / "broken")
    assert evaluations.best(2) == 1


def test_only_the_best_and_the_newest_checkpoint_are_kept(run):
    evaluations = run({1: 0.2, 2: 0.6, 3: 0.5, 4: 0.4})
    (evaluations.checkpoints / "global_step_5").mkdir()  # being written
    (evaluations.checkpoints / "global_step_0.removed").mkdir()  # by a run that was killed
    evaluations.conclude(4, print)
    assert names(evaluations) == ["global_step_2", "global_step_4", "global_step_5"]


def test_training_stops_after_evaluations_without_improvement(run):
    lines = []
    evaluations = run({1: 0.2, 2: 0.6, 3: 0.6, 4: 0.5, 5: 0.9}, patience=2)
    assert [evaluations.stop_training(step) for step in (2, 3, 4, 5)] == [False, False, True, True]
    evaluations.conclude(3, lines.append)
    assert "stop" not in names(evaluations) and not lines
    evaluations.conclude(4, lines.append)
    assert "stop" in names(evaluations)
    assert lines == ["step 4: no better than step 2, so training stops"]
    assert not run({}, patience=None).stop_training(5)


def test_final_figures_are_those_of_the_best_evaluation_and_the_last_steps(run):
    evaluations = run({1: 0.6, 2: 0.2})
    points = points_up_to(2, evaluations.curves)
    expected = {"dev_reward": 0.6, "best_step": 1, "steps": 2, "reward": 0.5, "entropy": 1.0}
    assert final_metrics(points, evaluations.best(2)) == expected
    assert "dev_reward" not in final_metrics(points, None)
