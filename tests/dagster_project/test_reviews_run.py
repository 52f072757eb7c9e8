"""People's reviews through Dagster: what becomes stale, what waits, and what the check shows."""

import secrets
from datetime import UTC, datetime

import dagster as dg
import pytest

from assets.core.foundry import FoundryResource
from dagster_project.run import run_lineage
from dagster_project.stage_runner import QUIET
from dagster_project.stages import ASSETS, CHECKS
from inference.review_log import add_review
from interleave_foundry import query
from schemas.curation import CRITIC_DPO, CRITIC_SFT
from schemas.trajectories import ATTEMPTS, ReviewRow
from tests.dagster_project.conftest import tiny_foundry
from tests.helpers.ticks import sensor_tick

pytestmark = pytest.mark.slow

SETS = {"steps", "critic_sft", "critic_rl", "critic_dpo", "planner_sft", "sequences", "exports"}


@pytest.fixture
def with_reviews(tmp_path, sampled):
    """The same lake, with a profile that uses reviews."""
    return lambda **reviews: tiny_foundry(tmp_path, sampled.root, curation={"reviews": reviews})


def disagree(home, attempt):
    """A verdict against the critic's."""
    fields = {name: attempt[name] for name in ReviewRow.model_fields if name in attempt}
    return add_review(
        home,
        ReviewRow(
            **fields | {"accepted": not attempt["accepted"]},
            review_id=secrets.token_hex(8),
            critic_accepted=attempt["accepted"],
            reviewer="ann",
            reviewed_at=datetime.now(UTC),
            kind="verdict",
            agrees=False,
        ),
    )


def attempts(home, where="true"):
    key = "trajectory_id, step_number, iteration"
    sql = f"select * from attempts join critic_sft using ({key}) where not attempts.accepted"
    names = query(f"select distinct {key} from ({sql}) where {where} order by all", home)
    chosen = set(names.itertuples(index=False, name=None))
    rows = home.lake.read(ATTEMPTS).to_pylist()
    return [r for r in rows if (r["trajectory_id"], r["step_number"], r["iteration"]) in chosen]


def last_metadata(instance, asset):
    event = instance.get_latest_materialization_event(dg.AssetKey(asset))
    return event.asset_materialization.metadata


def check(foundry, instance):
    """The check, executed by itself as from the UI."""
    key = dg.AssetCheckKey(dg.AssetKey("reviews"), "enough_reviewed")
    result = dg.materialize(
        [*ASSETS, *CHECKS],
        selection=dg.AssetSelection.checks(key),
        instance=instance,
        resources={"foundry": foundry},
        run_config=QUIET,
    )
    (evaluation,) = result.get_asset_check_evaluations()
    return evaluation


@pytest.mark.long
def test_reviews_make_the_training_sets_stale_where_they_are_used(sampled, with_reviews, instance):
    home = sampled.home
    unused = home.lake.content_hash(CRITIC_SFT)
    first, second = attempts(home)[:2]
    disagree(home, first)
    assert not run_lineage(sampled, instance, shards=1).materialized, "the profile uses none"

    foundry = with_reviews(use=True)
    done = run_lineage(foundry, instance, shards=1).materialized
    assert {"reviews", *SETS} <= set(done) and not any("[" in name for name in done)
    assert not run_lineage(foundry, instance, shards=1).materialized
    agreed = last_metadata(instance, "reviews")["people/agreement"].value
    assert "| critic and people | 1 | 0.000" in agreed

    disagree(home, second)
    assert {"reviews", *SETS} <= set(run_lineage(foundry, instance, shards=1).materialized)
    decided = query("select * from critic_sft where decided_by = 'person'", home)
    assert len(decided) and decided.accepted.all(), "those that the balance leaves"
    assert home.lake.rows(CRITIC_DPO) == 2
    assert (home.exports / "preferences" / "critic_dpo.json").is_file()

    run_lineage(sampled, instance, shards=1)
    assert home.lake.content_hash(CRITIC_SFT) == unused
    assert query("select count(*) from critic_dpo", home).iat[0, 0] == 0


def test_a_shard_is_held_back_until_enough_is_reviewed(sampled, with_reviews, instance):
    home, total = sampled.home, sampled.home.lake.rows(ATTEMPTS)
    reviewed = attempts(home)[:2]
    foundry = with_reviews(share=2 / total)
    disagree(home, reviewed[0])
    run_lineage(foundry, instance, shards=1)
    for table in ("steps", "critic_sft", "critic_rl", "planner_sft", "sequences"):
        assert query(f"select count(*) from {table}", home).iat[0, 0] == 0, table
    waiting = check(foundry, instance)
    assert not waiting.passed and waiting.severity == dg.AssetCheckSeverity.WARN
    assert "sketchbook-0000" in waiting.metadata["remedy"].value
    assert f"| {total} | 1 |" in waiting.metadata["held_back"].value

    disagree(home, reviewed[1])
    run_lineage(foundry, instance, shards=1)
    assert check(foundry, instance).passed
    assert query("select count(*) from critic_sft where decided_by is null", home).iat[0, 0] > 0
    assert query("select count(*) from critic_dpo", home).iat[0, 0] == 0


def test_scores_say_how_far_critic_and_scorer_agree(sampled, instance):
    (event,) = instance.fetch_materializations(dg.AssetKey("scores"), limit=1).records
    agreed = event.asset_materialization.metadata["people/agreement"].value
    attempts = sampled.home.lake.rows(ATTEMPTS)
    assert f"| critic and scorer | {attempts} | 0." in agreed
    assert "| critic and people | 0 | – | – | – |" in agreed


def test_the_sensor_follows_reviews_once_no_more_come(sampled, with_reviews, instance):
    def tick(foundry, cursor=None):
        found = sensor_tick("follow_reviews", foundry, instance, cursor)
        return found.run_requests, found.skip_message, found.cursor

    unused, foundry = FoundryResource(profile="sketch", root=sampled.root), with_reviews(use=True)
    assert tick(unused)[1] == "profile sketch has no section curation.reviews"
    assert tick(foundry)[1] == "no new reviews"
    first, second = attempts(sampled.home)[:2]
    disagree(sampled.home, first)
    _, waiting, cursor = tick(foundry)
    assert waiting == "new reviews; waiting until no more come"
    disagree(sampled.home, second)
    requests, _, cursor = tick(foundry, cursor)
    assert not requests
    (request,), _, _ = tick(foundry, cursor)
    assert request.asset_selection == [dg.AssetKey("reviews")]
    run_lineage(foundry, instance, shards=1)
    assert tick(foundry, cursor)[1] == "no new reviews"
    disagree(sampled.home, attempts(sampled.home)[2])
    watched = sensor_tick("watch_lake", foundry, instance)
    assert watched.skip_message == "as materialized", "people write reviews, too"
