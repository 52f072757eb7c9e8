"""`interleave costs`: sums of the ledger, and the budget; what `--estimate` takes from there."""

import pytest
from typer.testing import CliRunner

from assets.core.foundry import FoundryResource
from assets.trajectories.estimate import loop_model_names
from dagster_project.cli.app import app
from inference.backends.providers.budget import SPENDING_FILE
from schemas.trajectories import MODEL_CALLS, SCORES
from tests.dagster_project.conftest import tiny_foundry
from tests.helpers.ledger import START, model_call
from tests.helpers.spending import spend


def costs(home, *options):
    done = CliRunner(env={"COLUMNS": "200"}).invoke(app, ["costs", "--home", home.root, *options])
    assert done.exit_code == 0, done.output
    return done.output


def rows(output):
    return {line.split()[0]: line.split()[1:] for line in output.splitlines() if line.strip()}


@pytest.fixture
def paid(home):
    calls = [
        model_call(1, error="HTTP 500", cost_usd=0.25, estimated_usd=0.25),
        model_call(2, started_at=START.replace(day=22), shard="a-0001"),
        model_call(3, model="free", cost_usd=None, output_tokens=None),
    ]
    home.lake.write(MODEL_CALLS, calls, "trajectories-a-0000")
    return home


def test_sums_by_model_day_and_shard(paid):
    found = rows(costs(paid))
    # GPU hours, which nothing has, are no column.
    assert found["openai/m-1"] == ["2", "0", "1", "0", "200", "20", "0.00", "0.75", "0.25"]
    assert found["openai/free"] == ["1", "0", "0", "0", "100+", "-", "0.00", "-", "-"]
    assert found["all"][-2:] == ["0.75+", "0.25"]
    assert list(rows(costs(paid, "--by", "day")))[1:-1] == ["2026-11-20", "2026-11-22"]
    assert rows(costs(paid, "--by", "shard", "--since", "2026-11-21"))["all"][0] == "1"


def test_the_budget_is_shown_where_there_is_one(paid, tmp_path):
    profile = tiny_foundry(tmp_path, budget={"usd": 10}).profile
    assert "budget: 0.00 of 10.00 USD spent" in costs(paid, "--profile", profile)
    spend(paid.local / SPENDING_FILE, 4.0, budget=10.0)
    assert "budget: 4.00 of 10.00 USD spent" in costs(paid, "--profile", profile)
    assert "budget" not in costs(paid)


def test_an_empty_home(home):
    assert "no calls and no trainings yet" in costs(home)


def estimate(home):
    arguments = ["run", "--estimate", "--size", "full", "--home", home.root]
    done = CliRunner(env={"COLUMNS": "200"}).invoke(app, arguments)
    assert done.exit_code == 0, done.output
    return done.output


def test_an_estimate_says_what_finished_shards_took(home):
    assert "measured here: not enough with these models and prices (20 prompts" in estimate(home)
    names = loop_model_names(FoundryResource(root=home.root))
    for n in range(6):
        shard, models = f"sketchbook-{n:04}", [name.split("/", 1) for name in sorted(names)]
        calls = [
            model_call(k, backend=backend, model=model, shard=shard, prompt_id=f"{shard}-{k // 4}")
            for k, (backend, model) in enumerate(models * 10)
        ]
        home.lake.write(MODEL_CALLS, calls, f"trajectories-{shard}")
        home.lake.write(SCORES, [], shard)
    output = " ".join(estimate(home).split())
    assert "measured here: 2.0000 USD a prompt, 15,000.00 to 15,000.00 USD" in output
    assert "(90% interval, from 60 prompts of 6 shards here)" in output
