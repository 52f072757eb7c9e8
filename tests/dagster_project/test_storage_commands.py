"""`interleave compact` and `gc` on a home of a real run: everything goes on as before."""

from dagster_project.run import run_lineage
from inference.calls.call_index import CallIndex
from interleave_foundry import query
from schemas.trajectories import ATTEMPTS, SCORES
from tests.helpers.command import interleave

SHARD = "sketchbook-0000"
SHARD_ASSETS = ["plans", "trajectories", "scores"]


def calls(home) -> list[str]:
    """Ids of the calls in the journals of the shard."""
    journals = (home.journal(asset, SHARD) for asset in SHARD_ASSETS)
    return [row.call_id for journal in journals for row in CallIndex.read(journal).ledger()]


def test_a_packed_home_repeats_no_call_and_exports_the_same(sampled, instance, capsys):
    home, images = sampled.home, set(query("select image from attempts", sampled.home).image)
    before = calls(home)
    hashes = [home.lake.content_hash(table, SHARD) for table in (ATTEMPTS, SCORES)]
    card = (home.exports / "huggingface" / "card.json").read_bytes()

    planned = interleave(capsys, "compact", "--home", home.root, "--dry-run")
    assert f"{SHARD}: " in planned.stdout and "3 journals would be packed" in planned.stdout
    done = interleave(capsys, "compact", "--home", home.root)
    assert done.returncode == 0 and "3 journals packed" in done.stdout
    assert not images & {path[3:67] for path, _ in home.images.files()}
    assert "Nothing to do" in interleave(capsys, "compact", "--home", home.root).stdout

    assert not run_lineage(sampled, instance, shards=1).materialized
    select = [*SHARD_ASSETS, "exports"]
    run_lineage(sampled, instance, shards=1, select=select, force=True)
    assert calls(home) == before
    assert [home.lake.content_hash(table, SHARD) for table in (ATTEMPTS, SCORES)] == hashes
    assert (home.exports / "huggingface" / "card.json").read_bytes() == card
    assert not images & {path[3:67] for path, _ in home.images.files()}

    kept = interleave(capsys, "gc", "--home", home.root, "--grace", "2d")
    assert kept.returncode == 0 and "no garbage" in kept.stdout
    refused = interleave(capsys, "gc", "--home", home.root, "--grace", "1h")
    assert refused.returncode == 1 and "at least 2d" in refused.stderr
