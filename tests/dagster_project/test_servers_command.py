"""`interleave servers` lists what runs in a home, and stops it."""

import pytest
from typer.testing import CliRunner

from dagster_project.cli.app import app
from tests.inference.servers.conftest import only_server, wait_until
from tests.inference.servers.toy_model import draw
from warehouse import Home

pytestmark = pytest.mark.slow


def servers(home, *options):
    result = CliRunner().invoke(app, ["servers", "--home", home.root, *options])
    assert result.exit_code == 0, result.output
    return result.output


def test_a_server_is_listed_and_stopped(tmp_path):
    home = Home(tmp_path)
    assert "No servers are running" in servers(home)
    draw(home.root)
    folder = only_server(home)
    listed = servers(home)
    assert folder.state().url in listed and "ready" in listed and "CPU" in listed
    servers(home, "--stop", "toy")
    wait_until(lambda: not folder.is_supervised)
    assert "No servers are running" in servers(home)
