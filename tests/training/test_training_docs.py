"""The profiles in docs/training.md are valid."""

import re
from pathlib import Path

import yaml

from training.settings import TrainingSettings

PAGE = Path(__file__).parents[2] / "docs" / "training.md"


def test_examples_of_the_page_are_valid():
    blocks = re.findall(r"```yaml\n(.*?)```", PAGE.read_text(), re.DOTALL)
    read = [TrainingSettings.model_validate(yaml.safe_load(block)["training"]) for block in blocks]
    assert [settings.critic_rl.recipe for settings in read] == [
        *("paper", "paper", "sketch", "sketch", "lora")
    ]
