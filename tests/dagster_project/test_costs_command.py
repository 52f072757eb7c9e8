"""`interleave costs`: sums of the ledger, and the budget."""

import pytest
from typer.testing import CliRunner

from dagster_project.cli.app import app
from inference.backends.providers.spending import SPENDING_FILE
from schemas.trajectories import MODEL_CALLS
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
    assert found["openai/m-1"] == ["2", "0", "1", "0", "200", "20", "0.00", "-", "0.75", "0.25"]
    assert found["openai/free"] == ["1", "0", "0", "0", "100+", "-", "0.00", "-", "-", "-"]
    assert found["all"][-2:] == ["0.75+", "0.25"]
    assert list(rows(costs(paid, "--by", "day")))[1:-1] == ["2026-11-20", "2026-11-22"]
    assert rows(costs(paid, "--by", "shard", "--since", "2026-11-21"))["all"][0] == "1"


def test_the_budget_is_shown_where_there_is_one(paid, tmp_path):
    profile = tmp_path / "mine.yaml"
    profile.write_text("base: sketch\nname: mine\nbudget: {usd: 10}\n")
    assert "budget: 0.00 of 10.00 USD spent" in costs(paid, "--profile", str(profile))
    spend(paid.local / SPENDING_FILE, 4.0, budget=10.0)
    assert "budget: 4.00 of 10.00 USD spent" in costs(paid, "--profile", str(profile))
    assert "budget" not in costs(paid)


def test_an_empty_home(home):
    assert "no calls and no trainings yet" in costs(home)
