"""The WebDataset export, read by `webdataset` and by `datasets`."""

import hashlib
import json

import pytest

from schemas.curation import CRITIC_SFT, SEQUENCES
from tests.assets.curation.test_exports import counts_of, curated_folder, export, home, move

__all__ = ["curated_folder", "home"]  # fixtures


@pytest.fixture
def folder(home, tmp_path):
    return move(export(home, "webdataset", rows_per_file=3), tmp_path)


def test_webdataset_streams_every_sample(home, tmp_path):
    import webdataset

    rows = {row["row_id"]: row for row in home.lake.read(SEQUENCES).to_pylist()}
    path = export(home, "webdataset", rows_per_file=3)
    files = sorted(map(str, (path / "sequences").glob("*.tar")))
    assert len(files) > len({name.split("-images-")[0] for name in files})
    samples = list(webdataset.WebDataset(files, shardshuffle=False).decode("pil"))
    assert len(samples) == len(rows) == 16
    for sample in samples:
        row = rows.pop(sample["json"]["row_id"])
        assert sample["json"]["messages"] == row["messages"]
        images = [sample[f"{number}.png"] for number in range(len(row["images"]))]
        assert all(image.size == (16, 16) for image in images)
    raw = next(iter(webdataset.WebDataset(files[0], shardshuffle=False)))
    row = json.loads(raw["json"])
    stored = home.lake.read(SEQUENCES).to_pylist()
    (images,) = [each["images"] for each in stored if each["row_id"] == row["row_id"]]
    assert hashlib.sha256(raw["0.png"]).hexdigest() == images[0]


def test_the_card_declares_every_configuration(folder, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    import datasets

    counts = counts_of(folder)
    assert {name.rsplit("_", 2)[0] for name in counts} == {
        "critic_sft", "critic_rl", "planner_sft", "sequences"
    }  # fmt: skip
    assert counts["critic_sft_2_images"] == 8 and counts["planner_sft_0_images"]
    for name, count in counts.items():
        data = datasets.load_dataset(
            str(folder), name, split="train", cache_dir=str(tmp_path / "cache")
        )
        assert len(data) == count
        images = [feature for feature in data.features.values() if feature == datasets.Image()]
        assert len(images) == int(name.split("_")[-2])
        assert "decided_by" in data.features["json"] or not name.startswith(CRITIC_SFT.name)
