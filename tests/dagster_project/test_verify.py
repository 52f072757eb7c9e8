"""`interleave verify`: no flipped bit stays unnoticed, and what can be made again is."""

import json
import random
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from dagster_project.cli.app import app
from dagster_project.run import run_lineage
from dagster_project.verify import all_checks
from inference.backends.checkpoint.manifest import RECORD
from inference.backends.providers.budget import Budget
from inference.service.response_store import ResponseStore
from schemas import TABLES, FoundryError
from schemas.trajectories import ATTEMPTS, MODEL_CALLS, PLANS, TRAJECTORIES
from warehouse import Home
from warehouse.compaction import compact
from warehouse.sql import run_query
from warehouse.verify import find_damage, write_sums
from warehouse.views import refresh_views

SHARD = "sketchbook-0000"


def add_checkpoint(home: Home) -> Path:
    folder = home.local / "checkpoints" / "critic_sft_checkpoint" / "abc"
    folder.mkdir(parents=True)
    (folder / "model.safetensors").write_bytes(random.Random(1).randbytes(20_000))
    (folder / "README.md").write_text("# A critic\n")
    (folder / RECORD).write_text(json.dumps({"files": ["model.safetensors", "README.md"]}))
    write_sums(folder)
    return folder


def add_databases(home: Home) -> None:
    ResponseStore(home).close()
    with Budget(home.local / "spending.sqlite", 1.0, 60.0)._file.transaction() as connection:
        connection.executemany(
            "INSERT INTO reserved VALUES (?, ?, ?)", [(f"call-{n}", 0.25, n) for n in range(1_000)]
        )


@pytest.fixture
def home(sampled) -> Home:
    """Everything that a home stores; images are copies, which may be damaged."""
    for image in Path(sampled.root).rglob("*.png"):
        content = image.read_bytes()
        image.unlink()
        image.write_bytes(content)
    add_checkpoint(sampled.home)
    add_databases(sampled.home)
    return sampled.home


CACHES = ("partitions.sqlite", "verified.sqlite", "image-packs.sqlite")


def invoke(home: Home, *arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["verify", "--home", home.root, *arguments])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.stdout


def damage(home: Home) -> list[str]:
    return [str(each) for each in find_damage(all_checks(home), threads=4)]


def flip(file: Path, bit: int) -> bytes:
    """Flip a bit of a file; returns what it was."""
    content = file.read_bytes()
    damaged = bytearray(content)
    damaged[bit // 8] ^= 1 << bit % 8
    file.write_bytes(damaged)
    return content


def flip_middle(file: Path) -> bytes:
    return flip(file, file.stat().st_size * 4)


def observable(file: Path) -> object:
    """What a reader gets from a file."""
    if file.suffix == ".parquet":
        return pq.read_table(file)
    if file.suffix in (".sqlite", ".db"):
        with closing(sqlite3.connect(file)) as connection:
            return list(connection.iterdump())
    return file.read_bytes()


def assert_every_flip_is_noticed(home: Home, flips: int) -> None:
    checks: dict[str, list] = {}
    for check in all_checks(home):
        # Dagster's files have no checksums of values; a wrong row of a cache is made again.
        if "/dagster/" not in check.file and Path(check.file).name not in CACHES:
            checks.setdefault(check.file, []).append(check)
    kinds: dict[str, list[str]] = {}
    for file, [first, *_] in checks.items():
        kinds.setdefault(first.kind, []).append(file)
    assert set(kinds) == {"table", "image", "journal", "export", "checkpoint", "database"}
    chance, noticed = random.Random(11), 0
    for number in range(flips):
        kind = sorted(kinds)[number % len(kinds)]
        file = Path(chance.choice(kinds[kind]))
        before = observable(file)
        content = flip(file, chance.randrange(file.stat().st_size * 8))
        if any(check.find() for check in checks[str(file)]):
            noticed += 1
        else:
            assert observable(file) == before, f"{file}, flip {number}"
        file.write_bytes(content)
    assert noticed > flips * 0.85, "only unused space of SQLite files has nothing to notice"


@pytest.mark.slow
def test_a_healthy_home_has_no_damage_and_what_is_packed_is_verified(home):
    code, output = invoke(home)
    assert (code, output.splitlines()[-1].endswith(": 0 damaged")) == (0, True)
    assert [*compact(home)] and damage(home) == []
    packed = [*Path(home.root, "images", "packs").glob("*.parquet")]
    for file in (*packed, *Path(home.root, "journals").glob("*/*.zst")):
        content = flip_middle(file)
        assert damage(home), file
        file.write_bytes(content)
    assert packed and damage(home) == []


@pytest.mark.slow
def test_flipped_bits_are_noticed(home):
    assert_every_flip_is_noticed(home, 120)


@pytest.mark.long
def test_no_flipped_bit_of_a_thousand_is_unnoticed(home):
    assert_every_flip_is_noticed(home, 1_000)


@pytest.mark.slow
def test_what_journals_and_tables_can_give_is_made_again(home, profile, instance):
    refresh_views(home)
    lake = Path(home.root, "lake")
    written = {table: home.lake.read(TABLES[table]) for table in ("plans", "attempts", "steps")}
    files = [
        lake / "plans" / SHARD / "part-0.parquet",
        lake / "attempts" / SHARD / "part-0.parquet",
        lake / "model_calls" / f"scores-{SHARD}" / "part-0.parquet",
        lake / "steps" / "all" / "part-0.parquet",
        lake / "plans" / "_schema" / "part-0.parquet",
        Path(home.root, "exports", "verl", "critic_rl.parquet"),
        Path(home.images.url(written["attempts"]["image"][0].as_py())),
        Path(home.root, "journals", "scores", f"{SHARD}.jsonl"),
    ]
    contents = [flip_middle(file) for file in files]
    code, output = invoke(home, "--profile", profile)
    assert code == 1 and all(f"{file}:" in output for file in files)
    assert len(output.splitlines()) == len(files) + 1

    code, output = invoke(home, "--profile", profile, "--repair", "--json")
    found = json.loads(output)
    assert (code, found["damage"], len(found["repaired"])) == (0, [], len(files))
    assert damage(home) == []
    assert all(home.lake.read(TABLES[name]).equals(rows) for name, rows in written.items())
    moved = [path for path in Path(home.root, "quarantine").rglob("*") if path.is_file()]
    assert len(moved) >= len(files) and contents[0] not in [p.read_bytes() for p in moved]


@pytest.mark.slow
def test_what_cannot_be_made_again_stays_and_is_listed(home, profile, instance):
    image = home.lake.read(ATTEMPTS, columns=["image"])["image"][0].as_py()
    weights = home.local / "checkpoints" / "critic_sft_checkpoint" / "abc" / "model.safetensors"
    database = home.local / "spending.sqlite"
    flip_middle(weights)
    database.write_bytes(b"not SQLite" * 100)
    Path(home.images.url(image)).unlink()
    code, output = invoke(home, "--profile", profile)
    assert code == 1 and "is missing, and attempts in sketchbook-0000 names it" in output
    code, output = invoke(home, "--profile", profile, "--repair")
    lines = output.splitlines()
    assert code == 1 and len(lines) == 3
    assert f"interleave run --select {weights.parent.parent.name}` trains it again" in lines[0]
    assert str(database) in lines[1] and "move it away" in lines[1]
    assert home.images.get(image)  # the sketch world draws for nothing


def test_a_repaired_image_replaces_the_damaged_file(home, foundry, instance):
    image = home.lake.read(ATTEMPTS, columns=["image"])["image"][0].as_py()
    file = Path(home.images.url(image))
    content = flip_middle(file)
    run_lineage(foundry, instance, 1, ["trajectories"], force=True)
    assert file.read_bytes() == content and home.images.get(image)


def test_sql_names_the_damaged_file(home):
    file = Path(home.lake.file(TRAJECTORIES, SHARD))
    assert run_query(home, "select count(*) from trajectories").num_rows == 1
    for where in (0.3, 0.98):
        content = flip(file, int(file.stat().st_size * where) * 8)
        with pytest.raises(FoundryError, match=f"{file} is damaged .*interleave verify --repair"):
            run_query(home, "select count(*) from trajectories")
        assert run_query(home, "select count(*) from plans").num_rows == 1
        file.write_bytes(content)
    shutil.rmtree(file.parent)
    assert run_query(home, "select * from trajectories").num_rows == 0
    (home.local / "verified.sqlite").unlink(missing_ok=True)
    (home.local / "verified.sqlite").mkdir()  # as in a home that cannot be written
    assert run_query(home, "select * from plans").num_rows == home.lake.rows(PLANS)


@pytest.mark.slow
def test_a_paid_image_is_listed_with_its_price_and_not_bought(home, profile, instance):
    attempt = home.lake.read(ATTEMPTS).to_pylist()[0]
    calls = home.lake.read(MODEL_CALLS, [f"trajectories-{SHARD}"]).to_pylist()
    priced = [row | {"cost_usd": 0.04 if row["role"] == "generator" else 0.01} for row in calls]
    rows = [MODEL_CALLS.row.model_validate(row) for row in priced]
    home.lake.write(MODEL_CALLS, rows, f"trajectories-{SHARD}")
    shutil.rmtree(home.exports)
    file = Path(home.images.url(attempt["image"]))
    damaged = flip_middle(file) and file.read_bytes()
    code, output = invoke(home, "--profile", profile, "--repair")
    [line, _] = output.splitlines()
    assert code == 1 and file.read_bytes() == damaged
    assert line.startswith(f"{file}: ") and "--select trajectories --force` generates it" in line
    assert line.endswith("(its calls cost 0.04 USD)")
