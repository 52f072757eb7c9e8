"""Requests in files and queries: what is read, and what is quarantined with which reason."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from assets.generations.batches import batch_names, read_batch
from assets.generations.settings import GenerationsSettings
from inference.settings import LoopSettings
from schemas import FoundryError
from schemas.prompts import CATEGORIES, CategoryRow
from warehouse import EncodedImage

DEFAULTS = LoopSettings(t_max=4, seed=9)
ROWS = [
    {"id": "a", "text": "A red house", "seed": 3},
    {"id": 7, "text": 'A cat, "and" a tree', "t_max": 2, "critic": "sft"},
    {"text": "Ein Schneemann ☃"},
]


@pytest.fixture
def batch_of(home):
    """Reads the first batch of a file, or of other settings."""

    def read(path=None, name="requests-0000", **more):
        settings = GenerationsSettings(requests=path and str(path), **more)
        return read_batch(settings, home, DEFAULTS, name)

    return read


@pytest.fixture
def lines(tmp_path):
    """Writes a file of JSON lines."""

    def write(*rows):
        path = tmp_path / "requests.jsonl"
        path.write_text("\n".join(r if isinstance(r, str) else json.dumps(r) for r in rows))
        return path

    return write


def test_every_format_gives_the_same_requests(tmp_path, batch_of):
    (tmp_path / "w.csv").write_text(
        "\ufefftext,id,seed,t_max,critic\n"
        'A red house,a,3,,\n"A cat, ""and"" a tree",7,,2,sft\nEin Schneemann ☃,,,,\n',
        "utf-8",
    )
    (tmp_path / "w.jsonl").write_text("\n\n".join(map(json.dumps, ROWS)))
    columns = dict.fromkeys(column for row in ROWS for column in row)
    rows = [{**columns, **row, "id": str(row.get("id") or "")} for row in ROWS]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "w.parquet")
    for name in ("w.csv", "w.jsonl", "w.parquet"):
        batch = batch_of(tmp_path / name)
        assert not batch.quarantine
        found = [
            (r.key, r.text, r.options.seed, r.options.t_max, r.agents.critic)
            for r in batch.requests
        ]
        assert found == [
            ("a", "A red house", 3, 4, None),
            ("7", 'A cat, "and" a tree', 9, 2, "sft"),
            (None, "Ein Schneemann ☃", 9, 4, None),
        ]
        assert {r.channel for r in batch.requests} == {"asset"}


def test_requests_may_come_from_a_query(home, batch_of):
    row = {"pack": "p", "category": "art", "title": "T", "description": "D", "banks": []}
    stored = [CategoryRow(**row, subcategory=name, heldout=False) for name in ("music", "dance")]
    home.lake.write(CATEGORIES, stored)
    query = (
        "select subcategory as id, 'A house of ' || subcategory as text from categories order by 1"
    )
    batch = batch_of(query=query)
    assert [r.text for r in batch.requests] == ["A house of dance", "A house of music"]


def test_images_are_relative_paths_or_hashes_in_the_lake(home, tmp_path, lines, batch_of):
    image = EncodedImage.of(Image.new("RGB", (8, 8), "red"))
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "red.png").write_bytes(image.data)
    home.images.put(image)
    names = ["in/red.png", image.sha256, str(tmp_path / "in" / "red.png")]
    batch = batch_of(lines({"text": "On from <image>", "images": names}))
    assert batch.requests[0].images == (image,) * 3
    path = tmp_path / "w.csv"
    path.write_text(f'text,images\none,in/red.png; {image.sha256}\ntwo,"[""in/red.png""]"\n')
    assert [len(r.images) for r in batch_of(path).requests] == [2, 1]


def test_invalid_rows_are_quarantined_and_the_others_run(tmp_path, lines, batch_of):
    invalid = [
        ("{", "row 2: is not JSON"),
        ("[1]", "row 2: is no JSON object"),
        ({"id": "x"}, "row 2: text: Field required"),
        ({"text": "  "}, "row 2: the request is empty"),
        ({"text": 5.5, "images": 3}, "row 2: images: Input should be a valid list"),
        ({"text": "x", "images": "[1"}, "row 2: images: Value error"),
        ({"text": "x", "images": ["no.png"]}, "row 2: images: "),
        ({"text": "x", "images": ["0" * 64]}, "is missing"),
        ({"text": "x", "images": ["requests.jsonl"]}, "requests.jsonl is no"),
        ({"text": "on from <image>"}, "row 2: the text has 1 <image>, and no images are given"),
        ({"text": "x", "t_max": 0}, "row 2: t_max: Input should be greater than or equal to 1"),
        ({"text": "x", "tmax": 3}, "row 2: tmax: Extra inputs are not permitted"),
        ({"text": "x", "critic": "mild"}, "row 2: critic: String should match"),
        ({"id": "good", "text": "x"}, "row 2: id: given twice, first in row 1"),
    ]
    for row, reason in invalid:
        path = lines({"id": "good", "text": "A red house"}, row, {"text": "A tree"})
        batch = batch_of(path)
        assert [r.text for r in batch.requests] == ["A red house", "A tree"]
        (found,) = batch.quarantine
        assert found.reason.startswith(f"{path}: row 2: ") and reason in found.reason
        assert (found.stage, found.shard) == ("generations", "requests-0000")
    csv = tmp_path / "w.csv"
    csv.write_text("text,id\nA red house,a\nA cat, a tree,b\n")
    assert "row 2: has more cells" in batch_of(csv).quarantine[0].reason


def test_equal_rows_are_one_request(lines, batch_of):
    batch = batch_of(lines({"text": "A tree"}, {"text": "A tree"}, {"text": "A tree", "seed": 1}))
    assert len(batch.requests) == 2 and "in row 1" in batch.quarantine[0].reason


def test_duplicates_are_found_across_batches(lines, batch_of):
    path = lines({"id": 1, "text": "a"}, {"text": "b"}, {"id": "1", "text": "c"}, {"text": "d"})
    batch = batch_of(path, "requests-0001", batch_size=2)
    assert [r.text for r in batch.requests] == ["d"] and len(batch.quarantine) == 1


def test_ids_follow_from_content_and_options(lines, batch_of, home):
    def ids(*rows, defaults=DEFAULTS):
        settings = GenerationsSettings(requests=str(lines(*rows)))
        return [
            r.generation_id for r in read_batch(settings, home, defaults, "requests-0000").requests
        ]

    first, second = ids({"text": "a"}, {"text": "b"})
    assert ids({"text": "b"}, {"text": "new"}, {"text": "a"})[::2] == [second, first]
    assert ids({"text": "a", "seed": 1}) != [first] != ids({"text": "a"}, defaults=LoopSettings())


def test_a_growing_file_gets_new_batches(lines, home):
    for count, names in [
        (0, []),
        (1, ["batch-0000"]),
        (5, ["batch-0000", "batch-0001", "batch-0002"]),
    ]:
        path = lines(*({"text": f"tree {n}"} for n in range(count)))
        settings = GenerationsSettings(requests=str(path), name="batch", batch_size=2)
        assert batch_names(settings, home) == names


def test_an_unreadable_file_is_an_error(tmp_path, batch_of):
    files = [
        ("gone.jsonl", None, "gone.jsonl cannot be opened"),
        ("w.xlsx", b"x", "is of no known format"),
        ("w.jsonl", b'{"text": "\xff"}', "is not UTF-8 text"),
        ("w.parquet", b"nothing", "is not Parquet"),
        ("w.csv", b'text\n"open', "is not CSV"),
        ("w.jsonl", b"{", "no valid row; "),
        ("w.jsonl", b"", "no requests for batch requests-0000"),
    ]
    for name, data, complaint in files:
        if data is not None:
            (tmp_path / name).write_bytes(data)
        with pytest.raises(FoundryError, match=complaint):
            batch_of(tmp_path / name)


def test_the_section_names_exactly_one_source():
    with pytest.raises(ValueError, match="either `requests` or `query`"):
        GenerationsSettings()
    with pytest.raises(ValueError, match="either `requests` or `query`"):
        GenerationsSettings(requests="a.csv", query="select 1")
