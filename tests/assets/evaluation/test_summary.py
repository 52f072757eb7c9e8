"""Bootstrap intervals, tables, the paper's order, plots, and `interleave report --agents`."""

import io

import numpy as np
import pytest
from PIL import Image

from assets.core.statistics import Observation, clustered_interval, mean_interval, paired_difference
from assets.evaluation.metrics import (
    RELATIONS,
    TABLE_5,
    Summary,
    differences_table,
    markdown,
    means_table,
    relations,
    relations_table,
    table_5,
)
from assets.evaluation.metrics import test_summaries as summaries_of_test_items
from assets.evaluation.runner import beside_paper_plot, final_images_sheet
from assets.evaluation.settings import EvaluationSettings
from assets.evaluation.variants import ON_REQUEST, VARIANTS
from schemas.prompts import PROMPTS, PromptRow
from schemas.training import EVALUATIONS, EvaluationRow
from schemas.trajectories import ATTEMPTS
from tests.helpers.command import interleave

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


def test_more_confidence_is_a_wider_interval_and_that_of_equal_values_a_point():
    values = list(range(20))
    narrow, wide = mean_interval(values, confidence=0.8), mean_interval(values, confidence=0.99)
    assert wide.low < narrow.low < narrow.high < wide.high
    point = mean_interval([1.0] * 5)
    assert (point.low, point.high, point.count) == (1.0, 1.0, 5)
    with pytest.raises(ValueError, match="no values"):
        mean_interval([])


def test_values_of_a_request_are_resampled_together():
    """Also those of several training seeds. Against a plain bootstrap: lists of values are drawn,
    and their mean is taken."""
    rng = np.random.default_rng(1)
    lists = [rng.binomial(1, share, size=1 + n % 4) for n, share in enumerate(rng.random(60))]
    values = {
        Observation(f"r{n}", f"i{n}/{k // 2}", k % 2): float(value)
        for n, each in enumerate(lists)
        for k, value in enumerate(each)
    }
    found = clustered_interval(values, resamples=4000)
    draws = [np.concatenate([lists[i] for i in rng.integers(60, size=60)]) for _ in range(4000)]
    low, high = np.percentile([draw.mean() for draw in draws], [2.5, 97.5])
    assert (found.count, found.requests) == (sum(map(len, lists)), 60)
    assert found.mean == pytest.approx(np.concatenate(lists).mean())
    assert (found.low, found.high) == (pytest.approx(low, abs=0.01), pytest.approx(high, abs=0.01))


def test_clustered_intervals_cover_the_true_mean_where_plain_ones_do_not():
    """Items of a request that share its difficulty: 40 requests of 10 items each."""
    rng, requests = np.random.default_rng(0), [n // 10 for n in range(400)]
    clustered = plain = 0
    for seed in range(200):
        values = rng.binomial(1, np.repeat(rng.beta(1.4, 0.6, size=40), 10)).tolist()
        one = mean_interval(values, seed, resamples=300, requests=requests)
        other = mean_interval(values, seed, resamples=300)
        clustered += one.low <= 0.7 <= one.high
        plain += other.low <= 0.7 <= other.high
    assert clustered >= 0.88 * 200 > 0.75 * 200 > plain


def test_pairing_removes_the_variance_between_items():
    hardness = {Observation(f"request {n}", f"item {n}"): n / 50 for n in range(50)}
    better = {item: value + 0.1 for item, value in hardness.items()}
    gap = paired_difference(better, hardness)
    assert gap.low == pytest.approx(0.1)
    assert mean_interval(list(better.values())).low < mean_interval(list(hardness.values())).high


def test_only_common_items_are_compared():
    a, b, c = (Observation(name, name, 1) for name in "abc")
    gap = paired_difference({a: 1.0, b: 5.0}, {a: 0.5, c: 9.0})
    assert (gap.mean, gap.count) == (0.5, 1)
    assert paired_difference({a: 1.0}, {a._replace(training_seed=2): 1.0}) is None


def test_the_spread_is_that_of_the_means_of_training_seeds():
    shares = {0: 50, 1: 60, 2: 70}
    found = Summary.of(
        [
            row.model_copy(update={"training_seed": seed})
            for seed, count in shares.items()
            for row in rows("full_rl", count)
        ],
        BENCHMARK,
        EvaluationSettings(),
    )
    mean = found.mean("full_rl", "final_success")
    assert mean.spread == pytest.approx(0.1) and mean.requests == 100  # of 0.5, 0.6, 0.7
    (row,) = means_table(found)
    assert row["final_success"].startswith("0.600 [")
    assert row["final_success, SD of seeds"] == "0.100"
    assert summary(full_rl=50).mean("full_rl", "final_success").spread is None


def test_variants_come_in_the_order_of_the_table_and_rows_of_other_benchmarks_do_not_count():
    found = summary(promoted=1, t_max_1=2, full_rl=3, generator_only=0)
    assert found.variants == ["generator_only", "full_rl", "t_max_1", "promoted"]
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


OF_OURS = {"sft_on_rl_labels", "planner_rl", "both_rl", *ON_REQUEST}


def test_the_papers_own_values_reproduce_its_relations():
    """With enough requests; what the paper itself has within a point may be noise."""
    as_published = {name: round(row["image"]) for name, row in TABLE_5.items()}
    assert set(TABLE_5) == set(VARIANTS) - OF_OURS
    assert all(TABLE_5[better]["image"] > TABLE_5[worse]["image"] for worse, better in RELATIONS)
    assert {each.outcome for each in relations(summary(**as_published))} <= {
        "reproduced",
        "within noise",
    }
    gap = next(each for each in relations(summary(**as_published)) if each.worse == "t_max_1")
    assert gap.outcome == "reproduced" and gap.gap.mean == pytest.approx(0.10)


def test_relations_are_judged_by_intervals_and_a_missing_one_never_passes():
    found = summary(planner_sft=90, full_sft=60, rl_no_step=60, full_rl=61, rl_no_accuracy=40)
    outcomes = {(each.worse, each.better): each.outcome for each in relations(found)}
    assert outcomes["planner_sft", "full_sft"] == "reversed"
    assert outcomes["full_sft", "rl_no_step"] == "within noise"
    assert outcomes["rl_no_accuracy", "full_rl"] == "reproduced"
    assert outcomes["generator_only", "planner_sft"] == "not measured"
    assert outcomes["t_max_3", "t_max_5"] == "not measured"
    table = {row["relation"]: row for row in relations_table(found)}
    assert table["planner_sft < full_sft"]["difference here"].startswith("-0.300 [-0.")
    assert table["planner_sft < full_sft"]["requests"] == 100


def test_without_final_success_nothing_is_claimed():
    ungraded = summary("generator_calls", planner_sft=90, full_sft=60)
    assert {each.outcome for each in relations(ungraded)} == {"not measured"}
    table = table_5(ungraded, ["final_success"])
    assert {row["final_success, here"] for row in table} == {"–"}
    assert beside_paper_plot(ungraded)


def test_the_papers_numbers_are_shown_with_ours():
    table = table_5(summary(full_rl=88, sft_on_rl_labels=80), ["final_success"])
    own, paper = (row for row in table if row["final_success, here"] != "–")
    assert own["row of the paper"] == "–" and own["final_success, here"].startswith("80.0 [")
    assert paper["final_success, here"].startswith("88.0 [")
    assert (paper["image, paper"], paper["average, paper"]) == (74.0, 66.3)


def test_the_report_has_test_items_of_the_ablation_where_there_are_some():
    def of(name, count, **update):
        changes = {"benchmark": f"sketchbook-{name}", **update}
        return [row.model_copy(update=changes) for row in rows("full_rl", count)]

    settings = EvaluationSettings()
    evaluated = [*of("heldout-dev", 10), *of("heldout-test", 60)]
    assert "| 0.600 [" in markdown(summaries_of_test_items(evaluated, settings))
    seeds = [row for s in (0, 1) for row in of("heldout-test", 70 + 10 * s, training_seed=s)]
    text = markdown(summaries_of_test_items([*evaluated, *seeds], settings))
    assert "100 test requests, 2 training seeds" in text and "heldout-test\n" in text
    assert "| + critic, reinforced |  |  |  |  | 0.750 [" in text and "± 0.071 |" in text
    assert "| one_agent < full_sft |" in text and "| not measured |" in text


def test_requests_of_new_categories_are_reported_by_themselves():
    known = [r.model_copy(update={"benchmark": "x-heldout-test"}) for r in rows("full_rl", 60)]
    new = [
        r.model_copy(update={"benchmark": "x-heldout-category-test"}) for r in rows("full_rl", 0)
    ]
    found = summaries_of_test_items([*new, *known], EvaluationSettings())
    assert list(found) == ["x-heldout-test", "x-heldout-category-test"]
    means = [each.mean("full_rl", "final_success").mean for each in found.values()]
    assert means == [pytest.approx(0.6), 0.0]


def pixels_of(png: bytes) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(png)).convert("RGB"), dtype=int)


def test_the_plot_shows_that_variants_differ():
    summaries = (summary(planner_sft=40, full_sft=value) for value in (50, 95))
    low, high = (pixels_of(beside_paper_plot(each)) for each in summaries)
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


def test_the_command_prints_the_agents_and_relations_of_a_home(home, capsys):
    def report():
        return interleave(capsys, "report", "--agents", INTERLEAVE_HOME=home.root)

    nothing = report()
    assert nothing.returncode == 1 and "no values of test items: materialize" in nothing.stderr
    test = {"benchmark": "sketchbook-heldout-test"}
    for variant, count in (("planner_sft", 40), ("full_sft", 70)):
        values = [row.model_copy(update=test) for row in rows(variant, count)]
        home.lake.write(EVALUATIONS, values, variant)
    printed = report().stdout
    assert "100 test requests" in printed and "| + critic, supervised |" in printed
    assert "| planner_sft < full_sft | +8.6 | +0.300 [+0." in printed
    assert printed.count("| not measured |") == 11
