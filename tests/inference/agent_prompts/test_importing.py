"""Agent prompts of other people's: from a module like the authors', or a folder of Jinja files.

The wording here is invented. With INTERLEAVE_RELEASED the authors' own checkout is read, too.
"""

import ast
import os
from pathlib import Path

import pytest

from dagster_project.cli.app import app
from inference.agent_prompts.templates import (
    critic_prompt,
    import_prompts,
    planner_turn,
    prompts_of,
    render,
    version_of,
)
from inference.roles import PlanRequest
from schemas import FoundryError
from tests.inference.scripted_world import tiny_image

MODULE = '''
raise RuntimeError("this is parsed, not executed")
NARRATIVE_PROMPT_JSON = """
Plan {{steps}} for "{text_input}", as {'execution_plan': [...]}.  {% endless %}
"""
GUIDANCE_GLOBAL_PROMPT_JSON = """Continue: "{text_input}"\\n"""
Iterative_T2I_PROMPT_QWEN = """
Goal "{original_instruction}", drawn from "{rewritten_prompt}"; {unknown}?
"""
'''


@pytest.fixture
def checkout(tmp_path):
    folder = tmp_path / "checkout"
    (folder / "UEval").mkdir(parents=True)
    (folder / "UEval" / "system.py").write_text(MODULE)
    return folder


def constants(folder):
    tree = ast.parse((folder / "UEval" / "system.py").read_text())
    nodes = [node for node in tree.body if isinstance(node, ast.Assign)]
    return {node.targets[0].id: node.value.value for node in nodes}


def check_as_the_authors_ask(checkout, out):
    """To the byte what their code asks, which replaces placeholders by texts."""
    text, interleaved, critic = map(str, import_prompts(checkout, out))
    theirs = constants(checkout)
    request = PlanRequest("How to draw a 'cat' both visually and textually")
    asked = theirs["NARRATIVE_PROMPT_JSON"].replace("{text_input}", "How to draw a 'cat'")
    assert planner_turn(request, text, interleaved).text == asked
    continued = PlanRequest("<image>Continue this.", (tiny_image("a"),))
    asked = theirs["GUIDANCE_GLOBAL_PROMPT_JSON"].replace("{text_input}", continued.text)
    assert planner_turn(continued, text, interleaved).text == asked
    asked = theirs["Iterative_T2I_PROMPT_QWEN"].replace("{original_instruction}", "Draw a cat.")
    asked = "<image><image>\n" + asked.replace("{rewritten_prompt}", "Draw a red cat.")
    assert critic_prompt("Draw a cat.", "Draw a red cat.", critic).text == asked


def test_prompts_of_the_authors_module_are_asked_as_their_code_asks_them(checkout, tmp_path):
    check_as_the_authors_ask(checkout, tmp_path / "prompts")


def test_prompts_of_the_authors_themselves(tmp_path):
    if not (checkout := os.environ.get("INTERLEAVE_RELEASED")):
        pytest.skip("INTERLEAVE_RELEASED names no checkout of the authors' repository")
    check_as_the_authors_ask(Path(checkout), tmp_path / "prompts")


def test_versions_follow_from_the_content(tmp_path):
    for folder, text in (("a", "Draw {{ request }}\n"), ("b", "Draw {{ request }}")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "own.jinja").write_text(text)
    names = [str(tmp_path / folder / "own.jinja") for folder in "ab"]
    assert [render(name, request="it").text for name in names] == ["Draw it\n", "Draw it"]
    first, second = map(version_of, names)
    assert first != second and first.startswith("own@")


def test_a_folder_of_jinja_files_is_copied(checkout, tmp_path):
    first = import_prompts(checkout, tmp_path / "one")
    again = import_prompts(tmp_path / "one", tmp_path / "two")
    assert [file.read_bytes() for file in first] == [file.read_bytes() for file in again]


def test_what_is_wrong_with_a_folder_is_named(tmp_path):
    names = [f"{name}.jinja" for name in ("planner-text", "planner-interleaved", "critic")]
    module = "UEval/system.py"
    for number, (files, text, reason) in enumerate(
        (
            (["critic.jinja"], "", "no agent prompt planner-text, planner-interleaved: name a"),
            ([module], "x = (", "is not a Python file"),
            ([module], "NARRATIVE_PROMPT_JSON = 'x'", "has no agent prompt planner-inter"),
            (names, "{{ question }}", "'question' is undefined"),
            (names, "{{ ''.__class__ }}", "is not a plain template: access to attribute"),
        )
    ):
        source = tmp_path / str(number)
        (source / "UEval").mkdir(parents=True)
        for file in files:
            (source / file).write_text(text)
        with pytest.raises(FoundryError, match=reason):
            import_prompts(source, source / "out")


def test_a_profile_may_name_the_folder(checkout, tmp_path):
    names, folder = ("planner_text", "planner_interleaved", "critic"), tmp_path / "out"
    not_there = prompts_of(str(folder), names)
    files = import_prompts(checkout, folder)
    assert prompts_of(str(folder), (*names, "scorer")) == not_there
    assert list(not_there.values()) == list(map(str, files))
    with pytest.raises(ValueError, match=r"has none of scorer\.jinja"):
        prompts_of(str(folder), ("scorer",))


def test_the_command_says_what_it_wrote(checkout, tmp_path, capsys):
    with pytest.raises(FoundryError, match=r"none.jinja cannot be read.*interleave prompts import"):
        version_of("none.jinja")
    app(["prompts", "import", str(checkout), "--out", str(tmp_path / "out")], standalone_mode=False)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == [
        str(tmp_path / "out" / f"{name}.jinja")
        for name in ("planner-text", "planner-interleaved", "critic")
    ]
