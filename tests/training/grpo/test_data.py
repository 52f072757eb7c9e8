"""Rows for verl: those that fit, in the order of training, with pictures as paths."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from schemas import FoundryError
from training.base_model import PACKAGED_MODEL
from training.grpo.recipe import CANDIDATES, DEV_ROWS, ROWS, CriticGrpoSettings
from training.grpo.rows import choice_figures, prepare_rows
from training.row_lengths import LEFT_OUT
from warehouse import EncodedImage, Home

PICTURE = EncodedImage.of(Image.new("RGB", (96, 96), "green"))
SMALL = {"batch": 4, "mini_batch": 2}


@pytest.fixture
def home(tmp_path):
    return Home(tmp_path / "home")


def row(number: int, image: dict, words: int, row_id: str = "row{}") -> dict:
    return {
        "prompt": [{"role": "user", "content": "<image><image>\n" + "tree " * words}],
        "extra_info": {
            "index": number,
            "split": "train",
            "row_id": row_id.format(number),
            "origin_image": PICTURE.sha256,
            "edited_image": PICTURE.sha256,
        },
        "images": [image, image],
    }


def export(folder: Path, rows: int, image: dict | None = None, long: tuple[int, ...] = ()) -> Path:
    table = [
        row(n, image or {"bytes": PICTURE.data}, words=900 if n in long else 3) for n in range(rows)
    ]
    folder.mkdir(exist_ok=True)
    path = folder / "critic_rl.parquet"
    pq.write_table(pa.Table.from_pylist(table), path)
    return path


def planner_export(folder: Path, pictures: tuple[int, ...]) -> Path:
    """A request for each number of its pictures."""
    table = [
        {
            "data_source": "interleave_planner",
            "prompt": [{"role": "user", "content": "<image>" * count + f"Draw {n} trees."}],
            "images": [{"bytes": PICTURE.data}] * count,
            "reward_model": {"style": "rule", "ground_truth": {"request": f"Draw {n} trees."}},
            "extra_info": {
                "index": n,
                "split": "train",
                "row_id": f"p{n}",
                "images": [PICTURE.sha256] * count,
            },
        }
        for n, count in enumerate(pictures)
    ]
    path = folder / "planner_rl.parquet"
    pq.write_table(pa.Table.from_pylist(table), path)
    return path


def prepare(
    data: Path, home: Home, name: str, shares: dict[str, float] | None = None, **settings: object
) -> list[dict]:
    """The rows of a job of that name; they fill its steps."""
    folder = data.parent / name
    folder.mkdir()
    chosen = CriticGrpoSettings(**SMALL | settings)
    steps = prepare_rows(
        data, folder, chosen, PACKAGED_MODEL, home.images, print, lambda: shares or {}
    )
    rows = pq.read_table(folder / ROWS).to_pylist()
    assert len(rows) == steps * chosen.batch
    return rows


def numbers(rows: list[dict]) -> list[int]:
    return [row["extra_info"]["index"] for row in rows]


def test_rows_fill_complete_batches_once_in_the_order_of_the_seed(tmp_path, home):
    data = export(tmp_path, 10)
    order = numbers(prepare(data, home, "six steps", max_steps=6))
    # As in earlier versions, where all fit.
    assert order == numbers(prepare(data, home, "job")) == [6, 9, 0, 2, 4, 3, 5, 1]
    assert len(prepare(data, home, "epoch", max_steps=None)) == 8
    assert numbers(prepare(data, home, "other", seed=1)) != order


def test_pictures_are_not_copied(tmp_path, home):
    home.images.put(PICTURE)
    rows = prepare(export(tmp_path, 4), home, "job", image_max_pixels=2048)
    path = str(tmp_path / "job" / "images" / home.images.relative_path(PICTURE.sha256))
    assert Path(path).samefile(home.images.url(PICTURE.sha256))
    assert all(each["images"] == [{"image": path, "max_pixels": 2048}] * 2 for each in rows)


def test_pictures_that_are_not_in_the_store_come_from_the_export(tmp_path, home):
    picture = tmp_path / "a.png"
    picture.write_bytes(PICTURE.data)
    for name, image in (("inside", {"bytes": PICTURE.data}), ("beside", {"image": "a.png"})):
        data = export(tmp_path, 4, image)
        rows = prepare(data, home, name, image_max_pixels=2048)
        path = tmp_path / name / "images" / home.images.relative_path(PICTURE.sha256)
        assert rows[0]["images"] == [{"image": str(path), "max_pixels": 2048}] * 2
        assert path.read_bytes() == PICTURE.data
    picture.unlink()
    with pytest.raises(FoundryError, match=r"a\.png cannot be read: materialize `exports`"):
        prepare(data, home, "job")


def test_several_files_are_the_rows_of_one(tmp_path, home):
    data = export(tmp_path, 30, long=(2, 7))
    prepare(data, home, "one", dev_share=0.3)
    table = pq.read_table(data)
    data.unlink()
    for number in range(4):
        part = table.slice(8 * number, 8)
        pq.write_table(part, tmp_path / f"critic_rl-{number:05d}-of-00004.parquet")
    prepare(data, home, "parts", dev_share=0.3)
    for name in (ROWS, DEV_ROWS):
        one, parts = (pq.read_table(tmp_path / job / name).to_pylist() for job in ("one", "parts"))
        assert [row["extra_info"] for row in one] == [row["extra_info"] for row in parts]
    assert (tmp_path / "one" / LEFT_OUT).read_bytes() == (
        tmp_path / "parts" / LEFT_OUT
    ).read_bytes()
    (tmp_path / "critic_rl-00003-of-00004.parquet").unlink()
    with pytest.raises(FoundryError, match=r"critic_rl-00003-of-00004\.parquet is missing"):
        prepare(data, home, "none")


def test_prompts_that_are_too_long_are_left_out_and_named(tmp_path, home):
    data = export(tmp_path, 10, long=(2, 7))
    assert not {2, 7} & set(numbers(prepare(data, home, "job")))
    named = [json.loads(line) for line in (tmp_path / "job" / LEFT_OUT).read_text().splitlines()]
    assert [each["row_id"] for each in named] == ["row2", "row7"]
    assert named[0]["tokens"] > 512 and named[0]["reason"] == "longer than prompt_length 512"


def test_rows_of_a_prompt_are_trained_on_or_evaluated(tmp_path, home):
    table = [row(n, {"bytes": PICTURE.data}, 3, f"plan/{n % 10}/1/{{}}/0") for n in range(40)]
    data = tmp_path / "critic_rl.parquet"
    pq.write_table(pa.Table.from_pylist(table), data)
    trained = prepare(data, home, "job", dev_share=0.3, max_steps=None)
    dev = pq.read_table(tmp_path / "job" / DEV_ROWS).to_pylist()
    prompts, held_out = ({n % 10 for n in numbers(rows)} for rows in (trained, dev))
    assert prompts and held_out and not prompts & held_out
    assert len(dev) == 4 * len(held_out)
    assert {r["extra_info"]["split"] for r in trained} == {"train"}
    assert {r["extra_info"]["split"] for r in dev} == {"dev"}
    assert dev[0]["images"] == trained[0]["images"]


def test_candidates_are_chosen_by_how_often_the_parent_is_right(tmp_path, home):
    """Nearest to half of the time, then in the order of the seed; they are trained on in another,
    since the others are the seed's first."""
    data, folder = export(tmp_path, 24), tmp_path / "chosen"
    order = numbers(prepare(data, home, "all"))
    _, *others, last = order
    shares = dict.fromkeys((f"row{n}" for n in others), 1.0) | {f"row{last}": 0.5}
    shares |= {f"row{others[-1]}": 0.0, f"row{others[-2]}": 0.25, f"row{others[-3]}": 0.75}
    chosen = prepare(data, home, "chosen", shares, candidates=3)  # the first has no share
    expected = [last, *others[-3:-1][::-1], *others[:5]]
    assert sorted(numbers(chosen)) == sorted(expected) and numbers(chosen) != expected
    assert {row["extra_info"]["split"] for row in chosen} == {"train"}
    candidates = pq.read_table(folder / CANDIDATES).to_pylist()
    assert numbers(candidates) == order
    assert {row["extra_info"]["split"] for row in candidates} == {"dev"}  # not trained on
    assert choice_figures(folder, shares) == {
        "candidates_left_out": 16,
        "candidates_equal_share": 20 / 24,
        "chosen_equal_share": 5 / 8,
    }
    assert choice_figures(tmp_path / "all", {}) == {}


def test_missing_exports_and_rows_are_named(tmp_path, home):
    with pytest.raises(FoundryError, match="materialize `exports`"):
        prepare(tmp_path / "critic_rl.parquet", home, "none")
    with pytest.raises(FoundryError, match="3 rows to train on, by batches of 4: run more"):
        prepare(export(tmp_path, 3), home, "few")
    with pytest.raises(FoundryError, match="all 2 rows are longer than prompt_length 512: raise"):
        prepare(export(tmp_path, 2, long=(0, 1)), home, "long")
    data = export(tmp_path, 6)
    with pytest.raises(FoundryError, match="by batches of 4, 2 candidates each: run more"):
        prepare(data, home, "candidates", candidates=2)
    with pytest.raises(FoundryError, match=r"6 rows to train on.*and 0 by dev_share 0.001: run"):
        prepare(data, home, "share", dev_share=0.001)


def test_rows_of_the_planner_have_any_number_of_pictures(tmp_path, home):
    home.images.put(PICTURE)
    rows = prepare(planner_export(tmp_path, (0, 1, 2, 0)), home, "job")
    pictures = {row["extra_info"]["index"]: len(row["images"]) for row in rows}
    assert pictures == {0: 0, 1: 1, 2: 2, 3: 0}
