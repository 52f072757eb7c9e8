"""Agent prompts of other people's: from a module like the authors', or a folder of Jinja files.

The wording here is invented. What is asked with them: `checkpoint/test_released_agents.py`.
"""

import ast

import pytest

from dagster_project.cli.app import app
from inference.agent_prompts.templates import import_prompts, prompts_of, render, version_of
from schemas import FoundryError

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
