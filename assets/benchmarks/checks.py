"""Checks of benchmark runs."""

from schemas.benchmarks import BENCHMARK_ANSWERS, JUDGEMENTS

from ..core.checks import Violations, blocking_checks, damaged_images
from ..core.foundry import FoundryResource
from .assets import ANSWERS, JUDGEMENT_SET, RESULTS
from .runs import BenchmarkRuns


def _images_intact(foundry: FoundryResource, partition: str | None) -> Violations:
    partitions = [partition] if partition else None
    rows = foundry.home.lake.read(
        BENCHMARK_ANSWERS, partitions, ["images", "input_images"]
    ).to_pylist()
    names = {name for row in rows for name in (*row["images"], *row["input_images"]) if name}
    return damaged_images(foundry.home.images, names)


def _answers_judged(foundry: FoundryResource, partition: str | None) -> Violations:
    """Items of the shard with an answer, and no judgement at all."""
    if partition is None:
        return []
    _, shard = BenchmarkRuns.of(foundry).of_judgements(partition)
    lake = foundry.home.lake
    answered = lake.read(BENCHMARK_ANSWERS, [shard.name], ["item_id"])["item_id"].to_pylist()
    judged = lake.read(JUDGEMENTS, [partition], ["item_id"])["item_id"].to_pylist()
    return [{"item_id": item} for item in answered if item not in set(judged)]


benchmark_answers_checks = blocking_checks(
    ANSWERS, images_intact=("Every image is in the store, as it was generated", _images_intact)
)
benchmark_judgements_checks = blocking_checks(
    JUDGEMENT_SET, answers_judged=("Every answer was judged", _answers_judged)
)
benchmark_results_checks = blocking_checks(RESULTS)
