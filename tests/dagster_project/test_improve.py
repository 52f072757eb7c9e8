"""Rounds of `interleave improve`: killed, resumed, stopped, blocked, and on a schedule.

Trainings take no time (they hand out the base model), and the agents that make a round's shards are
the simulated ones: a base model writes no plans.
"""

import asyncio
from pathlib import Path

import dagster as dg
import pytest

from assets.checkpoints import training
from assets.checkpoints.recipes import LINEAGE
from assets.core.foundry import FoundryResource
from assets.curation.sources import TrainingSources, round_rows
from assets.evaluation.systems import System, system_in_use
from assets.prompts.rounds import recorded_rounds, states
from assets.rounds.assets import findings
from assets.rounds.data import RoundSets
from assets.rounds.plan_retries import retry_plans
from dagster_project.definitions import definitions
from dagster_project.improve import improve
from dagster_project.instance import open_instance
from dagster_project.run import run_lineage
from inference.backends.factory import Backends
from inference.backends.sketch.backend import SketchCritic, SketchPlanner
from inference.calls.progress import NullProgress
from inference.roles import BackendError, UnusableAnswerError
from schemas import FoundryError
from schemas.curation import CRITIC_RL, CRITIC_SFT, PLANNER_SFT
from schemas.prompts import PROMPTS
from schemas.rounds import FAILURES
from schemas.training import CRITIC, PLANNER, SFT_CRITIC
from schemas.trajectories import ATTEMPTS, MODEL_CALLS, PLANS, TRAJECTORIES
from tests.dagster_project.conftest import copy_lake, trained_foundry
from tests.helpers.fake_launcher import FakeLauncher
from tests.helpers.ticks import schedule_tick
from training.registry import CheckpointRegistry

pytestmark = pytest.mark.long
SHARD = "sketchbook-0003"  # after the bank, of which two shards have no trajectories
SECTIONS = """
    banks: {sketchbook: 3}
    prompts: {quotas_by_failure: {}}
    rounds:
      shards: 1
      failure_weight: 3
      plan_retries: 1
      training: {planner_sft: {max_steps: 1}}
"""


@pytest.fixture(scope="module")
def launcher():
    launcher = FakeLauncher()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training, "run_job", launcher.run_job)
        yield launcher


@pytest.fixture(scope="module")
def foundry(trained_folder, tmp_path_factory):
    return trained_foundry(trained_folder, tmp_path_factory.mktemp("rounds") / "lake", SECTIONS)


@pytest.fixture(scope="module")
def instance(foundry):
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("DAGSTER_HOME", raising=False)
        patch.setattr(Backends, "agent", _simulated)
        with open_instance(foundry.home) as instance:
            yield instance


def _simulated(self, role, _reference, _home):
    return SketchPlanner() if role == "planner" else SketchCritic(self.sketch)


@pytest.fixture(scope="module")
def promoted(foundry, instance, launcher):
    """A lineage's promoted agents: the supervised critic, since reinforcement changes nothing."""
    run_lineage(foundry, instance, shards=1)
    in_use = system_in_use(foundry.home)
    assert in_use.critic.startswith(f"{SFT_CRITIC}@")
    return in_use


@pytest.fixture(scope="module")
def killed(promoted, foundry, instance):
    """A round whose first training failed: the rows of the lineage's sets and of its calls."""

    async def run_job(*_):
        raise FoundryError("out of memory")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training, "run_job", run_job)
        with pytest.raises(FoundryError, match="out of memory"):
            improve(foundry, instance, 1)
    copy_lake(Path(foundry.root), Path(foundry.root).with_name("killed"))
    return foundry.home.lake.content_hash(MODEL_CALLS, f"plans-{SHARD}")


@pytest.fixture(scope="module")
def finished(killed, foundry, instance):
    """The same round, taken up by the job, and what the command says then."""
    job = definitions(foundry).get_repository_def().get_job("improve_agents")
    assert job.execute_in_process(instance=instance).success
    lines = []
    return improve(foundry, instance, 3, lines.append), lines


def test_a_round_adds_train_prompts_and_records_who_makes_them(killed, promoted, foundry):
    (plan,) = recorded_rounds(foundry.home)
    assert plan.shards == (SHARD,) and states(foundry.home) == {1: "checked"}
    assert System(plan.planner, plan.critic) == promoted
    assert {prompt.split for prompt in foundry.prompts_of(SHARD)} == {"train"}
    assert plan.quotas.categories, "development items were evaluated"
    lake = foundry.home.lake
    assert set(lake.partitions(TRAJECTORIES)) == {"sketchbook-0000", SHARD}
    assert {f"sketchbook-000{number}" for number in range(4)} <= set(lake.partitions(PROMPTS))


def made(home, table):
    """What the round added to a set."""
    return round_rows(home, [1], table).to_pylist()


def test_its_sets_have_what_the_agents_got_wrong_and_older_rows(killed, foundry):
    said = {
        (row.trajectory_id, row.step_number, row.iteration): row.accepted
        for row in foundry.rows(ATTEMPTS, SHARD)
    }
    own = made(foundry.home, CRITIC_RL)
    assert {row["weight"] for row in own if row["origin"] == "failure"} == {3}
    for row in own:
        trajectory, step, iteration, _ = row["row_id"].rsplit("/", 3)
        is_wrong = row["evaluation"]["success"] != said[trajectory, int(step), int(iteration)]
        assert is_wrong == (row["origin"] == "failure")
    for table in (PLANNER_SFT, CRITIC_SFT, CRITIC_RL):
        trained_on = TrainingSources(foundry.home, foundry.settings.curation, 1).count(table)
        assert trained_on > len(made(foundry.home, table)) > 0, "older rows are among them"
        shards = {row.get("trajectory_id") for row in foundry.home.lake.read(table).to_pylist()}
        assert not shards & {key[0] for key in said}, "the lineage's own set has none of its rows"


def test_a_killed_round_goes_on_where_it_stopped(finished, killed, promoted, foundry, instance):
    (row,), lines = finished
    assert row.decision == "accepted" and not row.continues
    assert foundry.home.lake.content_hash(MODEL_CALLS, f"plans-{SHARD}") == killed, "none again"
    assert row.parent_planner == promoted.planner and row.planner != row.parent_planner
    assert row.critic != row.parent_critic == promoted.critic
    assert lines[-1].startswith("Stopped after round 1: final success on sketchbook-heldout-dev")
    success = [m for m in row.measures if m.metric == "final_success"]
    assert success and {m.difference for m in success} == {0}, "both are the base model"
    assert improve(foundry, instance, 3) == [row], "it is not repeated, and no other one begins"


def test_its_checkpoints_start_from_the_promoted_ones(finished, promoted, foundry):
    registry = CheckpointRegistry(foundry.home)
    assert registry.rows(PLANNER)[-1].parent == promoted.planner.replace("@", "/")
    critic = registry.rows(SFT_CRITIC)[-1]
    assert critic.parent == promoted.critic.replace("@", "/")
    assert registry.rows(CRITIC)[-1].parent == f"{SFT_CRITIC}/{critic.version}"
    recipe = LINEAGE[PLANNER](foundry)
    assert recipe.settings.max_steps == 1 and recipe.version == registry.promoted(PLANNER).version


def test_results_are_shown_in_dagster(finished, foundry, instance):
    event = instance.get_latest_materialization_event(dg.AssetKey("rounds"))
    assert event.asset_materialization.metadata["plot"].value.startswith("![")
    rows = foundry.rows(FAILURES)
    assert {row.kind for row in rows} == {"category", "wording", "skill"}
    assert all(row.low <= row.rate <= row.high for row in rows)
    counted = [row for row in rows if row.source == "trajectories" and row.kind == "category"]
    made = set(foundry.home.lake.partitions(TRAJECTORIES))
    train = [row for row in foundry.rows(PROMPTS) if row.split == "train" and row.shard in made]
    assert sum(row.count for row in counted) == len(train)


def test_the_schedule_requests_no_round_after_one_that_did_not_help(finished, foundry, instance):
    tick = schedule_tick("improve_weekly", foundry, instance)
    assert not tick.run_requests and "round 1 did not help" in tick.skip_message


@pytest.fixture
def copied(killed, foundry, tmp_path):
    """The lake of the killed round, to be damaged."""
    copy_lake(Path(foundry.root).with_name("killed"), tmp_path / "lake")
    return FoundryResource(profile=foundry.profile, root=str(tmp_path / "lake"))


def problems(foundry):
    return {name for name, finding in findings(foundry).items() if finding.problems}


def test_safeguards_find_what_is_wrong_with_the_data_of_a_round(copied):
    assert not problems(copied)
    heldout = next(row for row in copied.rows(PROMPTS) if row.split != "train" and row.terms)
    wrong = [
        (PROMPTS, {"split": "heldout"}, "heldout_free"),
        (PROMPTS, {"terms": heldout.terms}, "heldout_free"),
        (PLANS, {"prompt": "Draw a cat"}, "not_collapsed"),
        (ATTEMPTS, {"accepted": True}, "not_collapsed"),
    ]
    for table, changes, problem in wrong:
        rows = copied.rows(table, SHARD)
        changed = [row.model_copy(update=changes) for row in rows]
        copied.home.lake.write(table, changed, SHARD)
        assert problems(copied) == {problem}, changes
        copied.home.lake.write(table, rows, SHARD)


class LuckyPlanner(SketchPlanner):
    """Right in its third draw; the draws before have no plan."""

    model = "lucky"

    def __init__(self, draws=9):
        self.draws = draws  # that it may be asked for

    async def plan(self, request, draw=0):
        if not self.draws:
            raise BackendError("stopped")
        self.draws -= 1
        if draw < 3:
            raise UnusableAnswerError("no plan")
        return await super().plan(request)


@pytest.fixture
def wrong(copied):
    """Requests of the round whose plans are wrong."""
    plans = copied.rows(PLANS, SHARD)
    wrong = set(sorted({row.prompt_id for row in plans})[:3])
    spoiled = [
        row.model_copy(update={"prompt": "Draw a cat"}) if row.prompt_id in wrong else row
        for row in plans
    ]
    copied.home.lake.write(PLANS, spoiled, SHARD)
    return wrong


def retried(foundry, sampler, tries=3):
    (plan,) = recorded_rounds(foundry.home)
    return asyncio.run(retry_plans(foundry, plan, tries, NullProgress(), sampler))


def test_wrong_plans_are_sampled_again_until_one_is_right(copied, wrong):
    found = retried(copied, LuckyPlanner())
    assert (found.wrong, found.found, len(found.calls)) == (3, 3, 9)
    assert {row.prompt_id for row in found.rows} == wrong
    ledger = copied.rows(MODEL_CALLS, f"round_data-{SHARD}")
    assert [row.call_id for row in ledger] == [row.call_id for row in found.calls]
    assert retried(copied, LuckyPlanner(draws=0)).rows == found.rows, "no call is made again"
    assert not retried(copied, LuckyPlanner(draws=0), tries=2).rows


def test_a_killed_retry_repeats_no_finished_call(copied, wrong):
    with pytest.raises(BackendError, match="stopped"):
        retried(copied, LuckyPlanner(draws=5))
    assert retried(copied, LuckyPlanner(draws=4)).found == 3


def test_plans_found_by_retries_weigh_more(copied, wrong):
    (plan,) = recorded_rounds(copied.home)
    rows = retried(copied, LuckyPlanner()).rows
    counts = RoundSets(copied, plan, copied.settings.rounds, rows).build()["planner_sft"]
    assert counts["failure"] == 3 * 3
    own = made(copied.home, PLANNER_SFT)
    assert {row["prompt_id"] for row in own if row["origin"] == "failure"} == wrong
    assert len({row["row_id"] for row in own}) == len(own)
    assert "cat" not in str([row["messages"] for row in own if row["prompt_id"] in wrong])
    assert not problems(copied), "copies by weight are no duplicates"


def test_the_round_asks_its_own_checkpoint(copied, wrong):
    with open_instance(copied.home) as instance:
        run_lineage(copied, instance, shards=0, select=["round_data"])
        event = instance.get_latest_materialization_event(dg.AssetKey("round_data"))
    (plan,) = recorded_rounds(copied.home)
    calls = copied.rows(MODEL_CALLS, f"round_data-{SHARD}")
    assert {call.model for call in calls} == {f"{plan.planner}-sampled"}
    said = event.asset_materialization.metadata["plan_retries"].value
    assert said == "3 requests had no right plan; 0 of them have one after 3 more answers"


def test_retries_need_an_exact_grader(tmp_path):
    path = tmp_path / "other.yaml"
    path.write_text("base: sketch\nname: other\npack: interleave\nrounds: {plan_retries: 2}\n")
    other = FoundryResource(profile=str(path), root=str(tmp_path / "lake"))
    with pytest.raises(FoundryError, match=r"rounds.plan_retries .* pack interleave has no exact"):
        improve(other, None, 1)
