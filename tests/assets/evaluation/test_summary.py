"""Bootstrap intervals, tables, the paper's order, and plots."""

import io

import numpy as np
import pytest
from PIL import Image

from assets.evaluation.paper import TABLE_5, describe_order, reversals, side_by_side
from assets.evaluation.plots import beside_paper_plot, final_images_sheet, interval_plot
from assets.evaluation.settings import EvaluationSettings
from assets.evaluation.summary import (
    Summary,
    differences_table,
    mean_interval,
    means_table,
    paired_difference,
)
from assets.evaluation.variants import VARIANTS
from schemas.prompts import PROMPTS, PromptRow
from schemas.training import EvaluationRow
from schemas.trajectories import ATTEMPTS

BENCHMARK = "sketchbook-heldout"


def rows(
    variant: str, successes: int, items: int = 100, metric: str = "final_success"
) -> list[EvaluationRow]:
    """Values of a variant: 1 for the first `successes` items, else 0."""
    return [
        EvaluationRow(
            benchmark=BENCHMARK,
            variant=variant,
            item_id=f"item-{number:03d}",
            metric=metric,
            value=float(number < successes),
            planner="p",
            critic="c",
        )
        for number in range(items)
    ]


def summary(metric: str = "final_success", **successes: int) -> Summary:
    each = (rows(variant, count, metric=metric) for variant, count in successes.items())
    return Summary.of([row for some in each for row in some], BENCHMARK, EvaluationSettings())


def test_an_interval_contains_the_mean_and_is_reproducible():
    values = [0.0, 1.0] * 30
    first = mean_interval(values, seed=3)
    assert first == mean_interval(values, seed=3) != mean_interval(values, seed=4)
    assert first.mean == 0.5
    # A normal approximation: 1.96 * sqrt(0.25 / 60) is 0.127.
    assert first.low == pytest.approx(0.373, abs=0.03)
    assert first.high == pytest.approx(0.627, abs=0.03)


def test_intervals_cover_the_true_mean_as_often_as_their_confidence_says():
    rng = np.random.default_rng(0)
    intervals = [
        mean_interval(rng.binomial(1, 0.7, size=120).tolist(), seed, resamples=400)
        for seed in range(300)
    ]
    covered = np.mean([i.low <= 0.7 <= i.high for i in intervals])
    assert 0.90 <= covered <= 0.98


def test_more_confidence_is_a_wider_interval():
    values = list(range(20))
    narrow, wide = mean_interval(values, confidence=0.8), mean_interval(values, confidence=0.99)
    assert wide.low < narrow.low < narrow.high < wide.high


def test_the_interval_of_equal_values_is_a_point():
    interval = mean_interval([1.0] * 5)
    assert (interval.low, interval.high, interval.count) == (1.0, 1.0, 5)


def test_pairing_removes_the_variance_between_items():
    hardness = {f"item {n}": n / 50 for n in range(50)}
    better = {item: value + 0.1 for item, value in hardness.items()}
    gap = paired_difference(better, hardness)
    assert gap.low == pytest.approx(0.1)
    assert mean_interval(list(better.values())).low < mean_interval(list(hardness.values())).high


def test_only_common_items_are_compared():
    gap = paired_difference({"a": 1.0, "b": 5.0}, {"a": 0.5, "c": 9.0})
    assert (gap.mean, gap.count) == (0.5, 1)


def test_no_values_are_an_error():
    with pytest.raises(ValueError, match="no values"):
        mean_interval([])
    with pytest.raises(ValueError, match="no values"):
        paired_difference({"a": 1.0}, {"b": 1.0})


def test_variants_come_in_the_order_of_the_table():
    found = summary(promoted=1, t_max_1=2, full_rl=3, generator_only=0)
    assert found.variants == ["generator_only", "full_rl", "t_max_1", "promoted"]


def test_rows_of_other_benchmarks_do_not_count():
    other = [row.model_copy(update={"benchmark": "other"}) for row in rows("full_rl", 0)]
    found = Summary.of([*other, *rows("full_rl", 80)], BENCHMARK, EvaluationSettings())
    assert found.mean("full_rl", "final_success").mean == pytest.approx(0.8)


def test_tables_show_means_and_differences_and_a_dash_for_missing_metrics():
    found = summary(planner_sft=40, full_sft=70)
    planner, full = means_table(found)
    assert planner["final_success"].startswith("0.400 [0.3")
    assert full["verdict_accuracy_true"] == "–"
    (difference,) = differences_table(found)
    assert difference["difference"] == "full_sft - planner_sft"
    assert difference["final_success"].startswith("+0.300 [+0.2")


def test_the_papers_own_values_have_no_reversals():
    as_published = {name: round(row.image) for name, row in TABLE_5.items()}
    assert set(TABLE_5) == set(VARIANTS)
    assert reversals(summary(**as_published)) == []


def test_reversals_are_named_with_their_significance():
    found = summary(planner_sft=90, full_sft=60, full_rl=59)
    by_pair = {(r.above, r.below): r for r in reversals(found)}
    assert set(by_pair) == {
        ("planner_sft", "full_sft"),
        ("planner_sft", "full_rl"),
        ("full_sft", "full_rl"),
    }
    assert by_pair["planner_sft", "full_sft"].significant
    assert not by_pair["full_sft", "full_rl"].significant
    text = describe_order(found)
    assert text.startswith("Of 3 pairs of variants that differ in the paper, 3 are in the opposite")
    assert "2 of them by more than chance" in text
    assert "within the noise; the paper has 70.4 and 74.0" in text


def test_without_final_success_no_order_is_claimed():
    ungraded = summary("generator_calls", planner_sft=90, full_sft=60)
    assert "cannot be compared" in describe_order(ungraded)
    assert {row["final pictures right, here"] for row in side_by_side(ungraded)} == {"–"}
    assert interval_plot(ungraded, "Held out") and beside_paper_plot(ungraded)


def test_the_papers_numbers_are_shown_with_ours():
    (row,) = side_by_side(summary(full_rl=88))
    assert row["final pictures right, here"].startswith("0.880 [")
    assert (row["UEval, pictures"], row["UEval, average"]) == (74.0, 66.3)


def pixels_of(png: bytes) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(png)).convert("RGB"), dtype=int)


@pytest.mark.parametrize("plot", [lambda s: interval_plot(s, "Held out"), beside_paper_plot])
def test_plots_show_that_variants_differ(plot):
    low, high = (pixels_of(plot(summary(planner_sft=40, full_sft=value))) for value in (50, 95))
    assert low.shape == high.shape
    assert (np.abs(low - high).max(axis=-1) > 60).sum() > 100


def test_the_sheet_of_final_images_has_a_row_per_request(sample_home):
    prompts = [PromptRow.model_validate(row) for row in sample_home.lake.read(PROMPTS).to_pylist()]
    last = {row["prompt_id"]: row["image"] for row in sample_home.lake.read(ATTEMPTS).to_pylist()}
    finals = {"generator_only": {}, "full_rl": last}

    def sheet(success: dict, count: int = 2) -> np.ndarray:
        images = sample_home.images
        return pixels_of(
            final_images_sheet(images, prompts, finals, {"generator_only": {}, **success}, count)
        )

    right, ungraded = {"full_rl": dict.fromkeys(last, 1.0)}, {"full_rl": {}}
    assert len(sheet(right, 4)) > 1.7 * len(sheet(right, 2))
    assert (sheet(right) != sheet(ungraded)).any()  # the captions
