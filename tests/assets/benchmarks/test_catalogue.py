"""Benchmarks by name, and the items that a limit leaves."""

from collections import Counter

import pytest
from huggingface_hub import constants

from assets.benchmarks.benchmark import Item, ItemMetrics
from assets.benchmarks.results import bootstrap
from assets.benchmarks.runs import NAMES, open_benchmark, sample
from assets.benchmarks.settings import BenchmarkRunSettings, BenchmarksSettings
from schemas import FoundryError
from tests.assets.benchmarks.official_files import error_of_one_line, ueval_row, write_ueval
from tests.helpers.command import interleave
from warehouse import Home

ITEMS = [Item(f"{group}{n}", group, "text") for group in "abc" for n in range(10)]


def test_a_sample_is_even_and_stays_the_same():
    chosen = sample(ITEMS, 7)
    assert Counter(item.group for item in chosen) == {"a": 3, "b": 2, "c": 2}
    assert chosen == sample(ITEMS, 7) and [i for i in ITEMS if i in chosen] == chosen
    assert set(chosen) < set(sample(ITEMS, 9)), "a larger sample has the smaller one's items"
    assert sample(ITEMS, None) == sample(ITEMS, 99) == ITEMS


def test_every_benchmark_opens_or_says_what_it_needs(tmp_path):
    home = Home(str(tmp_path))
    for name in NAMES:
        if name.startswith("sketch-"):
            benchmark = open_benchmark(name, BenchmarkRunSettings(limit=5), home)
            assert benchmark.name == name and len(benchmark.items) == 5
            assert benchmark.headline in benchmark.aggregate([])
            continue
        with pytest.raises(FoundryError, match="--source"):
            open_benchmark(name, BenchmarkRunSettings(), home)
        nothing = BenchmarkRunSettings(source=str(tmp_path / "nothing"))
        with error_of_one_line("nothing: does not exist; name a copy"):
            open_benchmark(name, nothing, home)


def test_intervals_are_over_items_within_their_groups(tmp_path):
    benchmark = open_benchmark("sketch-edits", BenchmarkRunSettings(limit=40), Home(str(tmp_path)))
    items = [
        ItemMetrics(item.item_id, item.group, {"success": float(number % 2), "met": 0.5})
        for number, item in enumerate(benchmark.items)
    ]
    settings = BenchmarksSettings(resamples=400)
    low, high = bootstrap(benchmark, items, settings)["success"]
    # 40 items at 0.5 have a standard error of 0.08.
    assert low == pytest.approx(0.35, abs=0.05) and high == pytest.approx(0.65, abs=0.05)
    assert bootstrap(benchmark, items, settings) == bootstrap(benchmark, items, settings)
    assert bootstrap(benchmark, items, settings)["met"] == (0.5, 0.5)
    unscored = [ItemMetrics(i.item_id, i.group, {"success": None, "met": None}) for i in items]
    assert bootstrap(benchmark, unscored, settings)["success"] == (None, None)


def test_official_files_from_the_hub(capsys, monkeypatch, tmp_path):
    """A snapshot that was downloaded before; nothing else can be had here."""
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    command = ("evaluate", "ueval", "--source", "zlab-princeton/UEval", "--judge", "openai/m")
    home = ("--home", tmp_path / "home", "--estimate")
    missing = interleave(capsys, *command, *home)
    assert missing.returncode == 1
    assert "zlab-princeton/UEval: no such file or folder, nor to be had" in missing.stderr
    cache = tmp_path / "datasets--zlab-princeton--UEval"
    (cache / "refs").mkdir(parents=True)
    (cache / "refs" / "main").write_text("0" * 40)
    (cache / "snapshots" / ("0" * 40)).mkdir(parents=True)
    write_ueval(cache / "snapshots" / ("0" * 40), [ueval_row()])
    found = interleave(capsys, *command, *home)
    assert found.returncode == 0, found.stderr
    assert "1 items; at least 3 questions" in found.stdout
