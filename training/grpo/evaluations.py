"""Evaluations on rows that are not trained on: the best checkpoint is kept, training may stop."""

import math
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from warehouse import Journal

from ..rewards.rollouts import DEV_REWARD
from .recipe import STOP
from .verl_files import CHECKPOINT_NAME, points_up_to

_REMOVED = ".removed"


@dataclass(frozen=True)
class DevEvaluations:
    """Those of a run, as the points of its curves have them.

    Args:
        patience: evaluations without a higher reward after which training stops; None: it does not.
    """

    curves: Journal
    checkpoints: Path
    patience: int | None

    def best(self, done: int) -> int | None:
        """Step of the checkpoint with the highest reward, the first of equals; None where no
        checkpoint of the `done` steps was evaluated."""
        rewards = {
            step: reward
            for step, reward in self._rewards(done).items()
            if (self.checkpoints / f"global_step_{step}").is_dir()
        }
        return max(rewards, key=rewards.__getitem__, default=None)

    def stop_training(self, done: int) -> bool:
        """Whether so many evaluations in a row, of the `done` steps, had no higher reward."""
        highest, waited = -math.inf, 0
        for reward in self._rewards(done).values():
            waited = 0 if reward > highest else waited + 1
            highest = max(highest, reward)
            if waited == self.patience:
                return True
        return False

    def conclude(self, step: int, log: Callable[[str], object]) -> None:
        """After an evaluation: remove worse checkpoints; ask verl to end where it is time to."""
        best = self.best(step)
        self._remove_before(step, best)
        if self.stop_training(step):
            log(f"step {step}: no better than step {best}, so training stops")
            (self.checkpoints / STOP).touch()

    def _rewards(self, done: int) -> dict[int, float]:
        points = points_up_to(done, self.curves)
        return {p.step: p.extra[DEV_REWARD] for p in points if DEV_REWARD in p.extra}

    def _remove_before(self, newest: int, best: int | None) -> None:
        """Renamed first: a removal that is cut short leaves no checkpoint in part."""
        for match in [CHECKPOINT_NAME.fullmatch(path.name) for path in self.checkpoints.iterdir()]:
            if match and int(match[1]) < newest and int(match[1]) != best:
                path = self.checkpoints / match[0]
                path.rename(path.with_name(f"{path.name}{_REMOVED}"))
        for removed in self.checkpoints.glob(f"*{_REMOVED}"):
            shutil.rmtree(removed, ignore_errors=True)
