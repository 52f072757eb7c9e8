"""Ends a training early, after the step under way, once a file `stop` is beside its checkpoints.

verl's `trainer.checkpoint_callback_class`. verl itself then closes trackers and workers, as it does
after the last step.
"""

from pathlib import Path
from typing import Any

from verl.trainer.ppo.checkpoint_callback import CheckpointCallback

_STOP = "stop"


class StopOnRequest(CheckpointCallback):
    """From the first checkpoint on, looks for the file at the end of each step."""

    _watches = False

    def on_save(self, trainer: Any, global_step: int, checkpoint_dir: str, **_unused: Any) -> None:
        """Called by verl before the end of a step that is saved."""
        if self._watches:
            return
        self._watches = True
        end_step, request = trainer.on_step_end, Path(checkpoint_dir).parent / _STOP

        def on_step_end() -> None:
            end_step()
            if request.exists():
                trainer.total_training_steps = trainer.global_steps

        trainer.on_step_end = on_step_end
