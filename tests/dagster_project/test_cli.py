"""What a user of the command line sees, above all when something is wrong."""

import json
import os
import signal
import subprocess
import threading

import pytest

from schemas import VIEWS
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
    assert "critic_rl: 2 steps of 64 answers, about " in shown
    assert "50% of all answers are drawn and scored (assumed)" in shown


def test_sql_lists_the_views_with_examples_that_run(filled, command):
    shown = command("sql", "--views")
    assert shown.returncode == 0
    assert all(f"{name}: {view.description}" in shown.stdout for name, view in VIEWS.items())
    example = VIEWS["acceptance"].example
    assert example.splitlines()[0] in shown.stdout
    assert command("sql", example).returncode == 0
    assert "write a query, or --views" in command("sql").stderr


def test_sql_prints_in_every_format(filled, command):
    shown = {"table": "music", "csv": "category,subcategory\nart,music", "json": '"subcategory"'}
    for name, expected in shown.items():
        done = command("sql", "select category, subcategory from categories", "--format", name)
        assert done.returncode == 0, done.stderr
        assert expected in done.stdout.replace("\r\n", "\n"), name


def test_a_wrong_query_is_one_line_with_the_tables(filled, command):
    line = one_line(command("sql", "select * from catgories"))
    assert "catgories" in line and "categories" in line


def test_several_statements_are_refused_in_one_line(filled, command):
    for query in ("select 1; select 2", "from categories; from categories;"):
        line = one_line(command("sql", query))
        assert line == "error: 2 statements instead of one: run each by itself"
    assert "a;b" in command("sql", "select 'a;b' as t; -- select 2;").stdout
    pivot = "pivot (select 1 as a, 2 as b) on a using sum(b);"
    assert json.loads(command("sql", pivot, "--format", "json").stdout) == [{"1": 2}]


ENDLESS = "select count(*) from range(1000000000000) a, range(1000000) b"


def test_a_query_ends_at_its_time_limit(filled, command):
    for query in (ENDLESS, f"explain analyze {ENDLESS}"):
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


SKETCH = (
    "name: mine\ndescription: d\npack: {}\nsizes: {{demo: 1}}\n"
    "roles: {{planner: sketch, generator: sketch, critic: sketch, scorer: sketch}}\n"
)


def test_a_wrong_argument_is_one_line_that_says_what_there_is(command, tmp_path):
    mine, file = tmp_path / "mine.yaml", tmp_path / "file"
    mine.write_text(SKETCH.format("sketchbook") + "loop:\n  t_max: 3\n  t_min: 1\n")
    file.write_text("")
    mistakes = {
        ("run", "--profile", "skech"): ("skech", "sketch"),
        ("run", "--profile", str(mine)): (f"{mine}:8: loop.t_min",),
        ("run", "--select", "stories"): ("there are: ", "taxonomy"),
        ("run", "--size", "huge"): ("demo, full",),
        ("agents", "serve", "critic"): ("no checkpoint critic", "none yet"),
        ("run", "--home", str(file)): ("is a file",),
    }
    for arguments, expected in mistakes.items():
        line = one_line(command(*arguments))
        assert all(part in line for part in expected), line


def test_a_broken_pack_is_named_with_file_and_line(command, tmp_path):
    pack = tmp_path / "pack"
    (pack / "banks").mkdir(parents=True)
    (pack / "taxonomy.yaml").write_text("title: Broken\ncategories:\n  art: {titel: Art}\n")
    (pack / "templates.yaml").write_text("templates: {}\n")
    path = tmp_path / "mine.yaml"
    path.write_text(SKETCH.format(pack))
    done = command("run", "--profile", str(path))
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert f"{pack / 'taxonomy.yaml'}:3" in done.stderr
