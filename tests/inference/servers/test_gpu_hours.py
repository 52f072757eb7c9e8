"""GPU hours of servers: by day, and of real ones that stop, are killed and are started again."""

import os
import signal
from datetime import UTC, date, datetime

import pytest
from typer.testing import CliRunner

from assets.core.profile import load_profile
from dagster_project.cli.app import app
from inference.servers import hosts
from inference.servers.settings import CommandServer, ServerSpec
from inference.servers.supervisor import recorded_gpu_hours, server_hours
from schemas.views import SERVER_HOURS
from tests.inference.servers import toy_model
from tests.inference.servers.conftest import forget_uses, home, only_server, wait_until
from tests.inference.servers.toy_model import draw
from warehouse.costs import cost_report

__all__ = ["home"]  # a fixture

HALF = {"kind": "command", "model": "toy", "command": ["toy"], "gpus": [0, 1, 2], "memory": 0.5}


def spec(home, **changes):
    settings = CommandServer.model_validate(HALF | changes)
    return ServerSpec(name="toy", model="toy", root=home.root, settings=settings)


def test_a_run_over_midnight_has_a_row_a_day(home):
    start, end = datetime(2026, 11, 20, 22, tzinfo=UTC), datetime(2026, 11, 22, 1, tzinfo=UTC)
    rows = server_hours(spec(home, gpu_hour_usd=2), "run", start, end)
    assert [row.day for row in rows] == [date(2026, 11, day) for day in (20, 21, 22)]
    assert [row.gpu_hours for row in rows] == [3, 36, 1.5]
    assert [row.cost_usd for row in rows] == [6, 72, 3]
    assert rows[-1].ended_at == end


def test_what_runs_on_the_cpu_and_a_lake_that_cannot_be_written(home, tmp_path, caplog):
    with recorded_gpu_hours(spec(home, gpus=[])):
        pass
    assert cost_report(home).total.gpu_hours is None
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "lake").write_text("in the way")
    with recorded_gpu_hours(spec(home).model_copy(update={"root": str(tmp_path / "other")})):
        pass
    assert "GPU hours of server toy are not recorded" in caplog.text


def test_a_profiles_servers_cost_what_its_trainings_do(tmp_path):
    text = """
base: sketch
training: {gpu_hour_usd: 2.5}
servers:
  agents: {kind: agents, model: me/model, gpus: [0]}
  images: {kind: images, model: sketch, gpus: [1], gpu_hour_usd: 1}
"""
    file = tmp_path / "priced.yaml"
    file.write_text(text)
    servers = load_profile(str(file)).servers
    assert (servers["agents"].gpu_hour_usd, servers["images"].gpu_hour_usd) == (2.5, 1)


@pytest.mark.slow
def test_each_run_of_a_server_counts_once_however_it_ends(home, monkeypatch):
    """Two runs: the first one's supervisor is killed, the second one stops. The second one starts
    slowly; what the first one's supervisor wrote meanwhile says nothing about it."""
    monkeypatch.setattr(hosts, "SUPERVISOR", toy_model.QUICK_SUPERVISOR)
    monkeypatch.setenv("SLOW_START_SECONDS", "0.5")
    options = {"gpus": [0], "memory": 0.5, "gpu_hour_usd": 3600}
    first = draw(home.root, **options)
    folder = only_server(home)
    wait_until(lambda: stored(home))
    os.kill(folder.state().pid, signal.SIGKILL)
    wait_until(lambda: not folder.is_supervised)
    killed = stored(home)
    assert draw(home.root, **options) != first
    forget_uses()
    wait_until(lambda: not folder.is_supervised)

    runs = stored(home)
    assert len(killed) == 1 and len(runs) == 2 and killed[0] in runs
    for run in runs:
        seconds = (run["ended_at"] - run["started_at"]).total_seconds()
        assert seconds > 0 and run["gpu_hours"] == pytest.approx(0.5 * seconds / 3600)
    report = cost_report(home)
    assert report.total.gpu_hours == pytest.approx(sum(run["gpu_hours"] for run in runs))
    assert report.total.cost_usd == pytest.approx(3600 * report.total.gpu_hours)
    [group] = report.tables["model"].groups
    assert (group.name, group.calls, group.unpriced) == ("toy", None, 0)
    shown = CliRunner().invoke(app, ["costs", "--home", home.root, "--by", "asset"]).output
    assert "servers" in shown and "GPU hours" in shown


def stored(home):
    return home.lake.read(SERVER_HOURS).to_pylist()
