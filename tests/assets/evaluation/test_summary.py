"""Means, differences and what of the paper's order holds: from rows to tables, plots and sheets."""

import io

import numpy as np
import pytest
from PIL import Image

from assets.evaluation.final_images import finals_sheet
from assets.evaluation.paper import TABLE_5, order_in_words, reversals, side_by_side
from assets.evaluation.plots import beside_paper_plot, interval_plot
from assets.evaluation.settings import EvaluationSettings
from assets.evaluation.summary import Summary, differences_table, means_table
from assets.evaluation.variants import VARIANTS
from schemas.prompts import PROMPTS, PromptRow
from schemas.training import EvaluationRow
from schemas.trajectories import ATTEMPTS
from tests.assets.evaluation.sample_lake import tell

BENCHMARK = "sketchbook-heldout"


def rows(variant: str, successes: int, items: int = 100) -> list[EvaluationRow]:
    """As many right final pictures of so many, the first ones."""
    return [
        EvaluationRow(
            benchmark=BENCHMARK,
            variant=variant,
            item_id=f"item-{number:03d}",
            metric="final_success",
            value=float(number < successes),
            planner="p",
            critic="c",
        )
        for number in range(items)
    ]


def summary(**successes: int) -> Summary:
    given = [row for variant, right in successes.items() for row in rows(variant, right)]
    return Summary.of(given, BENCHMARK, EvaluationSettings())


def test_variants_come_in_the_order_of_the_table():
    found = summary(promoted=1, t_max_1=2, full_rl=3, generator_only=0)
    assert found.variants == ["generator_only", "full_rl", "t_max_1", "promoted"]


def test_rows_of_other_benchmarks_do_not_count():
    other = [row.model_copy(update={"benchmark": "other"}) for row in rows("full_rl", 0)]
    found = Summary.of([*other, *rows("full_rl", 80)], BENCHMARK, EvaluationSettings())
    assert found.mean("full_rl", "final_success").mean == pytest.approx(0.8)


def test_tables_have_means_and_differences_and_leave_out_what_is_not_there():
    found = summary(planner_sft=40, full_sft=70)
    planner, full = means_table(found)
    assert planner["final_success"].startswith("0.400 [0.3")
    assert full["verdict_accuracy_true"] == "–"
    (difference,) = differences_table(found)
    assert difference["difference"] == "full_sft - planner_sft"
    assert difference["final_success"].startswith("+0.300 [+0.2")


def test_the_papers_order_has_no_reversals():
    as_published = {name: round(row.image) for name, row in TABLE_5.items()}
    assert set(TABLE_5) == set(VARIANTS)
    assert reversals(summary(**as_published)) == []


def test_reversals_are_named_and_chance_is_told_from_certainty():
    found = summary(planner_sft=90, full_sft=60, full_rl=59)
    by_pair = {(r.above, r.below): r for r in reversals(found)}
    assert set(by_pair) == {
        ("planner_sft", "full_sft"),
        ("planner_sft", "full_rl"),
        ("full_sft", "full_rl"),
    }
    assert by_pair["planner_sft", "full_sft"].sure
    assert not by_pair["full_sft", "full_rl"].sure
    words = order_in_words(found)
    assert words.startswith("Of 3 pairs of variants that differ in the paper, 3 stand the other")
    assert "2 of them by more than chance" in words
    assert "within the noise; the paper has 70.4 and 74.0" in words


def test_the_papers_numbers_stand_beside_ours():
    (row,) = side_by_side(summary(full_rl=88))
    assert row["final pictures right, here"].startswith("0.880 [")
    assert (row["UEval, pictures"], row["UEval, average"]) == (74.0, 66.3)


def pixels_of(png: bytes) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(png)).convert("RGB"), dtype=int)


@pytest.mark.parametrize("plot", [lambda s: interval_plot(s, "Held out"), beside_paper_plot])
def test_plots_show_that_variants_differ(plot):
    low, high = (plot(summary(planner_sft=40, full_sft=value)) for value in (50, 95))
    pixels = [
        np.asarray(Image.open(io.BytesIO(png)).convert("RGB"), dtype=int) for png in (low, high)
    ]
    assert pixels[0].shape == pixels[1].shape
    assert (np.abs(pixels[0] - pixels[1]).max(axis=-1) > 60).sum() > 100


def test_a_sheet_has_a_row_a_request_and_a_column_a_variant(home):
    tell(home, 6)
    prompts = [PromptRow.model_validate(row) for row in home.lake.read(PROMPTS).to_pylist()]
    last = {row["prompt_id"]: row["image"] for row in home.lake.read(ATTEMPTS).to_pylist()}
    finals = {"generator_only": {}, "full_rl": last}
    right = {"generator_only": {}, "full_rl": dict.fromkeys(last, 1.0)}
    few, more = (finals_sheet(home.images, prompts, finals, right, count) for count in (2, 4))
    heights = [Image.open(io.BytesIO(png)).height for png in (few, more)]
    assert heights[1] > 1.7 * heights[0]
