"""The container image and the compose file: what they name exists, nothing in them is secret."""

import contextlib
import json
import os
import re
import shutil
import subprocess
import time
import tomllib
from pathlib import Path

import httpx
import pytest
import typer
import yaml

from assets.core.profile import load_profile
from dagster_project.cli.app import app
from tests.helpers.ports import free_port

ROOT = Path(__file__).parents[1]
DOCKERFILE = (ROOT / "Dockerfile").read_text()
COMPOSE = yaml.safe_load((ROOT / "compose.yaml").read_text())
OURS = {name: service for name, service in COMPOSE["services"].items() if "build" in service}
SECRET = re.compile("PASSWORD|SECRET|KEY|TOKEN")


def instructions(name):
    """The arguments of every such instruction of the Dockerfile."""
    joined = DOCKERFILE.replace("\\\n", " ")
    return [
        line.split(maxsplit=1)[1] for line in joined.splitlines() if line.startswith(f"{name} ")
    ]


def test_what_is_copied_exists_and_is_all_that_is_imported():
    allowed = {
        line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line[:1] == "!"
    }
    assert all((ROOT / name).exists() for name in allowed)
    for arguments in instructions("COPY"):
        *sources, _ = [each for each in arguments.split() if not each.startswith("--")]
        assert all((ROOT / each.lstrip("/")).exists() for each in sources if "/opt" not in each)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    packages = project["tool"]["setuptools"]["packages"]["find"]["include"]
    modules = project["tool"]["setuptools"]["py-modules"]
    assert {name.removesuffix("*") for name in packages} | {f"{n}.py" for n in modules} <= allowed


def test_the_image_is_not_root_and_has_no_secrets():
    assert instructions("USER")[-1] == "interleave" and "--uid 10001" in DOCKERFILE
    assert not [each for each in instructions("ARG") + instructions("ENV") if SECRET.search(each)]
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    assert ignored[0] == "**" and "**/.env*" in ignored


@pytest.mark.parametrize(
    "arguments",
    [json.loads(instructions("CMD")[-1]), *(service["command"] for service in OURS.values())],
)
def test_the_commands_exist_with_their_options(arguments):
    name, *options = arguments
    command = typer.main.get_command(app).commands[name]
    assert command.make_context(name, options).params["host"] == "0.0.0.0"


def test_variables_are_those_that_are_read():
    sources = [
        file.read_text()
        for package in (
            "assets",
            "dagster_project",
            "inference",
            "profiles",
            "training",
            "warehouse",
        )
        for file in (ROOT / package).rglob("*")
        if file.suffix in (".py", ".yaml")
    ]
    names = {name for service in OURS.values() for name in service["environment"]}
    names |= set(re.findall(r"INTERLEAVE_\w+", " ".join(instructions("ENV"))))
    for name in (each for each in names if each.startswith("INTERLEAVE_")):
        assert any(name in source for source in sources), name


def test_secrets_have_to_be_given():
    for service in COMPOSE["services"].values():
        for name, value in service["environment"].items():
            if SECRET.search(name) and name != "AWS_ACCESS_KEY_ID":
                assert re.fullmatch(r"\$\{INTERLEAVE_\w+:\?choose .*\}", value), name


def test_the_profile_fits_the_services():
    for service in OURS.values():
        name = re.search(r":-(\w+)\}", service["environment"]["INTERLEAVE_PROFILE"])[1]
        database, server = load_profile(name).cluster.postgres, COMPOSE["services"]["postgres"]
        assert database.password in service["environment"]
        assert database.user == server["environment"]["POSTGRES_USER"]
        assert (database.host, database.port) == ("postgres", 5432)
        assert service["environment"]["AWS_ENDPOINT_URL"] == "http://s3:8333"


@pytest.fixture(scope="module")
def docker():
    """A function that runs a command of Docker and returns its output."""
    if (
        not shutil.which("docker")
        or subprocess.run(["docker", "info"], capture_output=True).returncode
    ):
        pytest.skip("no Docker engine runs here")

    def run(*arguments, **variables):
        environment = {**os.environ, **variables}
        done = subprocess.run(
            ["docker", *arguments], cwd=ROOT, env=environment, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr[-3000:]
        return done.stdout.strip()

    return run


@pytest.mark.long
def test_the_image_answers_with_a_read_only_file_system_and_ends_on_sigterm(docker):
    docker("build", "-t", "interleave-foundry:cpu", ".")
    port = free_port()
    options = [
        "--read-only",
        "--tmpfs",
        "/tmp",
        "--cap-drop",
        "ALL",
        "-p",
        f"127.0.0.1:{port}:8030",
    ]
    keys = ["-e", "INTERLEAVE_SERVICE_KEYS=a-key"]
    container = docker("run", "-d", *options, *keys, "interleave-foundry:cpu")
    try:
        transport = httpx.HTTPTransport(retries=10)
        with httpx.Client(transport=transport, base_url=f"http://127.0.0.1:{port}") as client:
            wait_ready(client)
            key = {"Authorization": "Bearer a-key"}
            answer = client.post("/v1/responses", json={"input": "a red house"}, headers=key)
            assert answer.json()["status"] == "completed"
        docker("stop", "-t", "60", container)
        assert docker("inspect", "-f", "{{.State.ExitCode}}", container) == "0"
    finally:
        docker("rm", "-f", container)


@pytest.mark.long
def test_compose_starts_all_services(docker):
    names = ("INTERLEAVE_POSTGRES_PASSWORD", "INTERLEAVE_S3_SECRET", "INTERLEAVE_SERVICE_KEYS")
    secrets = dict.fromkeys(names, "a-secret")
    project = ["compose", "-p", "interleave-test"]
    try:
        docker(*project, "up", "--build", "--wait", **secrets)
        select = ["--select", "taxonomy,vocabulary"]
        docker(*project, "exec", "-T", "ui", "interleave", "run", *select, **secrets)
    finally:
        docker(*project, "down", "--volumes", **secrets)


def wait_ready(client):
    for _ in range(120):
        with contextlib.suppress(httpx.TransportError):
            if client.get("/ready").status_code == 200:
                return
        time.sleep(0.5)
    raise AssertionError("the service is not ready after a minute")
