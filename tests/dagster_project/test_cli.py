"""What a user of the command line sees, above all when something is wrong."""

import json
import os
import signal
import subprocess
import threading

import pytest

from schemas.prompts import CATEGORIES, CategoryRow
from tests.helpers.command import INTERLEAVE, interleave


@pytest.fixture
def command(capsys, home):
    def run(*args, home=home):
        return interleave(capsys, *args, INTERLEAVE_HOME=str(home.root), COLUMNS="100")

    return run


@pytest.fixture
def filled(home):
    row = CategoryRow(
        pack="p",
        category="art",
        subcategory="music",
        title="Music",
        description="Notes",
        banks=["instruments"],
        heldout=False,
    )
    home.lake.write(CATEGORIES, [row])
    return home


def one_line(done):
    """The single line of an error, with exit status 1 and no traceback."""
    assert done.returncode == 1, done.stdout + done.stderr
    lines = done.stderr.strip().splitlines()
    assert len(lines) == 1, done.stderr
    return lines[0]


def test_the_installed_command_names_every_subcommand():
    done = subprocess.run([*INTERLEAVE, "--help"], capture_output=True, text=True, env=os.environ)
    assert done.returncode == 0
    assert all(word in done.stdout for word in ("run", "sql", "ui"))


def test_an_estimate_has_trajectories_and_grpo(command):
    done = command("run", "--profile", "sketch", "--estimate")
    assert done.returncode == 0, done.stderr
    shown = " ".join(done.stdout.split())
    assert "100 trajectories" in shown and "rewards" in shown
    assert "GRPO: 2 steps of 64 answers, about " in shown
    assert "50% of all answers are drawn and scored (assumed)" in shown


@pytest.mark.parametrize(
    ("format", "shown"),
    [("table", "music"), ("csv", "category,subcategory\nart,music"), ("json", '"subcategory"')],
)
def test_sql_prints_in_every_format(filled, format, shown, command):
    query = "select category, subcategory from categories"
    done = command("sql", query, "--format", format)
    assert done.returncode == 0, done.stderr
    assert shown in done.stdout.replace("\r\n", "\n")


def test_sql_json_is_json(filled, command):
    done = command("sql", "select count(*) as n from categories", "--format", "json")
    assert json.loads(done.stdout) == [{"n": 1}]


def test_a_wrong_query_is_one_line_with_the_tables(filled, command):
    line = one_line(command("sql", "select * from catgories"))
    assert "catgories" in line and "categories" in line


@pytest.mark.parametrize("query", ["select 1; select 2", "from categories; from categories;"])
def test_several_statements_are_refused_in_one_line(filled, query, command):
    line = one_line(command("sql", query))
    assert line == "error: 2 statements instead of one: run each by itself"


def test_semicolons_that_end_a_statement_or_are_text_are_no_second_one(filled, command):
    assert "a;b" in command("sql", "select 'a;b' as t; -- select 2;").stdout
    pivot = "pivot (select 1 as a, 2 as b) on a using sum(b);"
    assert json.loads(command("sql", pivot, "--format", "json").stdout) == [{"1": 2}]


ENDLESS = "select count(*) from range(1000000000000) a, range(1000000) b"


@pytest.mark.parametrize("query", [ENDLESS, f"explain analyze {ENDLESS}"])
def test_a_query_ends_at_its_time_limit(filled, query, command):
    line = one_line(command("sql", query, "--timeout", "0.2"))
    assert line == "error: the query was stopped after 0.2 s; --timeout sets another limit"


def test_a_query_that_is_interrupted_ends_without_a_traceback(filled, command):
    earlier = signal.signal(signal.SIGINT, signal.default_int_handler)
    interrupt = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
    interrupt.start()
    try:
        done = command("sql", ENDLESS, "--timeout", "20")
    finally:
        interrupt.join()
        signal.signal(signal.SIGINT, earlier)
    assert (done.returncode, done.stderr) == (130, "")


def test_an_unknown_profile_is_one_line_with_the_known_ones(command):
    line = one_line(command("run", "--profile", "skech"))
    assert "skech" in line and "sketch" in line


def test_an_unknown_key_of_a_profile_is_named_with_its_line(command, tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text(
        "name: mine\ndescription: d\npack: sketchbook\nsizes: {demo: 1}\n"
        "roles: {planner: sketch, generator: sketch, critic: sketch, scorer: sketch}\n"
        "loop:\n  t_max: 3\n  t_min: 1\n"
    )
    line = one_line(command("run", "--profile", str(path)))
    assert f"{path}:8: loop.t_min" in line


def test_a_broken_pack_is_named_with_file_and_line(command, tmp_path):
    pack = tmp_path / "pack"
    (pack / "banks").mkdir(parents=True)
    (pack / "taxonomy.yaml").write_text("title: Broken\ncategories:\n  art: {titel: Art}\n")
    (pack / "templates.yaml").write_text("templates: {}\n")
    path = tmp_path / "mine.yaml"
    path.write_text(
        f"name: mine\ndescription: d\npack: {pack}\nsizes: {{demo: 1}}\n"
        "roles: {planner: sketch, generator: sketch, critic: sketch, scorer: sketch}\n"
    )
    done = command("run", "--profile", str(path))
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert f"{pack / 'taxonomy.yaml'}:3" in done.stderr


def test_an_unknown_asset_and_an_unknown_size_are_one_line(command):
    line = one_line(command("run", "--select", "stories"))
    assert "there are: " in line and "taxonomy" in line
    assert "demo, full" in one_line(command("run", "--size", "huge"))


def test_a_model_that_is_not_there_cannot_be_served(command):
    line = one_line(command("agents", "serve", "critic"))
    assert "no checkpoint critic" in line and "none yet" in line


def test_a_home_that_is_a_file_is_one_line(command, tmp_path):
    path = tmp_path / "file"
    path.write_text("")
    assert "is a file" in one_line(command("run", "--home", path))
