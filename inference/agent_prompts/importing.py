"""Agent prompts of other people: from the authors' repository, or from a folder of Jinja files.

The wording of the authors' prompts is not part of this project: it is read from a user's own
checkout, whose code is parsed and never executed.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from schemas import FoundryError
from warehouse.atomic import atomic_write

from .templates import SUFFIX, render

NAMES = ("planner-text", "planner-interleaved", "critic")

# Constants of the authors' module with the prompts of their inference.
_CONSTANTS = {
    "NARRATIVE_PROMPT_JSON": "planner-text",
    "GUIDANCE_GLOBAL_PROMPT_JSON": "planner-interleaved",
    "Iterative_T2I_PROMPT_QWEN": "critic",
}
_MODULE = Path("UEval", "system.py")
# Their placeholders, and what they are replaced by; a suffix of requests is not for the planner.
_PLACEHOLDERS = {
    "text_input": "request | replace(' both visually and textually', '')",
    "original_instruction": "original_instruction",
    "rewritten_prompt": "rewritten_prompt",
}
_IMAGES = {"critic": "<image><image>\n"}  # their code puts them in front of the prompt
_VALUES = {"request": "", "steps_given": 0, "original_instruction": "", "rewritten_prompt": ""}


def import_prompts(source: Path, target: Path) -> list[Path]:
    """Write the agent prompts of a folder as `planner-text.jinja` and so on; returns the files.

    Args:
        source: a checkout of the authors' repository, or a folder with Jinja files of these names.
        target: folder, which is made; files that are there are replaced.

    Raises:
        FoundryError: there are none in the folder, or one is no valid template.
    """
    found = dict(_authors_prompts(source)) or dict(_jinja_files(source))
    if missing := [name for name in NAMES if name not in found]:
        raise FoundryError(
            f"{source} has no agent prompt {', '.join(missing)}: name a checkout of the authors' "
            f"repository, or a folder with {', '.join(name + SUFFIX for name in NAMES)}"
        )
    target.mkdir(parents=True, exist_ok=True)
    return [_write(target / f"{name}{SUFFIX}", found[name]) for name in NAMES]


def _authors_prompts(source: Path) -> Iterator[tuple[str, str]]:
    module = source / _MODULE
    if not module.is_file():
        return
    try:
        tree = ast.parse(module.read_bytes())
    except (SyntaxError, ValueError) as error:
        raise FoundryError(f"{module} is not a Python file: {error}") from error
    for node in tree.body:
        match node:
            case ast.Assign([ast.Name(name)], ast.Constant(str(text))) if name in _CONSTANTS:
                prompt = _CONSTANTS[name]
                yield prompt, _IMAGES.get(prompt, "") + _as_template(text)


def _as_template(text: str) -> str:
    """Everything literally but the placeholders `{name}`, which their code replaces by text."""
    names = "|".join(_PLACEHOLDERS)
    pieces = re.split(rf"{{({names})}}", text)
    literal = [f"{{% raw %}}{piece}{{% endraw %}}" if piece else "" for piece in pieces[::2]]
    values = [f"{{{{ {_PLACEHOLDERS[name]} }}}}" for name in pieces[1::2]]
    return "".join(a + b for a, b in zip(literal, [*values, ""], strict=True))


def _jinja_files(source: Path) -> Iterator[tuple[str, str]]:
    for name in NAMES:
        if (file := source / f"{name}{SUFFIX}").is_file():
            yield name, file.read_text("utf-8")


def _write(path: Path, template: str) -> Path:
    atomic_write(path, template)
    render(str(path), **_VALUES)
    return path
