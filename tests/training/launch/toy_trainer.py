"""A driver for tests: runs the Python code of its payload as the trainer."""

import json
import sys

from training.launch.driver import open_driver
from training.launch.jobs import TrainingProgress


def main() -> None:
    with open_driver(sys.argv) as driver:
        folder, payload = driver.job.folder, driver.job.payload
        log, steps = folder / "trainer.log", folder / "steps.jsonl"
        reported = 0

        def follow() -> None:
            nonlocal reported
            lines = steps.read_text().splitlines() if steps.exists() else []
            for line in lines[reported:]:
                driver.progress(TrainingProgress.model_validate(json.loads(line)))
            reported = len(lines)

        driver.run_trainer([sys.executable, "-c", payload["code"]], {}, log, follow)
        if payload.get("silent"):
            return
        if not payload.get("no_model"):
            (folder / "model").mkdir(exist_ok=True)
        driver.finish(folder / "model", {"loss": 0.25})


if __name__ == "__main__":
    main()
