"""What each agent is asked: the user message, the same for training and inference.

Prompts are Jinja files `<name>.v<version>.jinja`, rendered with `StrictUndefined`.
A template that made data is never edited: new wording is a new version, and every training row
stores the `name@version` of its prompt. A prompt of one's own is named by its path, which ends in
`.jinja`; its version is a hash of its content, and it is rendered to the byte.

Other people's prompts are imported as such files: from the authors' repository, whose wording is
not part of this project (its code is parsed and never executed), or from a folder of Jinja files.
"""

import ast
import hashlib
import re
from collections.abc import Iterable, Iterator, MutableMapping
from dataclasses import dataclass
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any

import jinja2
from jinja2 import nodes
from jinja2.sandbox import ImmutableSandboxedEnvironment, SecurityError

from schemas import FoundryError
from warehouse.atomic import atomic_write

from ..roles import PlanRequest

FOLDER = Path(__file__).parent
IMAGE = "<image>"
SUFFIX = ".jinja"

_FILE = re.compile(r"(?P<name>[\w-]+)\.v(?P<version>\d+)\.jinja")
# Tags that structure our texts; inside free text they would forge it.
_RESERVED_TAG = re.compile(
    r"<(/?(?:image|video|audio|think|answer|plan|critic|info|gthink|img_token))>", re.IGNORECASE
)
# How the training rows of continued plans list the steps so far.
_STEPS_SO_FAR = re.compile(r"^Steps so far:\n(?P<steps>.*)", re.MULTILINE | re.DOTALL)
_STEP = re.compile(r"^\d+\. ", re.MULTILINE)

_IMPORTED = ("planner-text", "planner-interleaved", "critic")
# Constants of the authors' module with the prompts of their inference.
_AUTHORS_NAMES = {
    "NARRATIVE_PROMPT_JSON": "planner-text",
    "GUIDANCE_GLOBAL_PROMPT_JSON": "planner-interleaved",
    "Iterative_T2I_PROMPT_QWEN": "critic",
}
_AUTHORS_MODULE = Path("UEval", "system.py")
# Their placeholders, and what they are replaced by; a suffix of requests is not for the planner.
_AUTHORS_PLACEHOLDERS = {
    "text_input": "request | replace(' both visually and textually', '')",
    "original_instruction": "original_instruction",
    "rewritten_prompt": "rewritten_prompt",
}
_AUTHORS_IMAGES = {"critic": "<image><image>\n"}  # their code puts them in front of the prompt
_SAMPLE = {"request": "", "steps_given": 0, "original_instruction": "", "rewritten_prompt": ""}


class _Environment(jinja2.Environment):
    def make_globals(self, d: MutableMapping[str, Any] | None) -> MutableMapping[str, Any]:
        """A plain dict: Jinja's `ChainMap` is copied for every text, which takes longer than the
        text itself."""
        return {**self.globals, **(d or {})}


_ENVIRONMENT = _Environment(
    loader=jinja2.FileSystemLoader(FOLDER), undefined=jinja2.StrictUndefined, auto_reload=False
)
# Files may be other people's: they get no access to Python.
_FILES = ImmutableSandboxedEnvironment(undefined=jinja2.StrictUndefined, keep_trailing_newline=True)


@dataclass(frozen=True)
class RenderedPrompt:
    """Text for the model, and the `name@version` of its template."""

    text: str
    version: str


def render(name: str, **values: object) -> RenderedPrompt:
    """Render the newest version of template `name`, exactly `name@version`, or a file.

    Raises:
        FoundryError: there is no such template, or a value it needs is missing.
    """
    template, version = _load(name)
    try:
        text = template.render(values)
        return RenderedPrompt(text if is_file(name) else text.strip(), version)
    except jinja2.UndefinedError as error:
        raise FoundryError(
            f"agent prompt {version}: {error.message}; pass it to render()"
        ) from error
    except SecurityError as error:
        raise FoundryError(f"agent prompt {name} is not a plain template: {error}") from error


def escape_tags(text: str) -> str:
    """`text` with reserved tags in square brackets: `<image>` becomes `[image]`."""
    return _RESERVED_TAG.sub(r"[\1]", text) if "<" in text else text


def insert_image_tags(text: str, count: int) -> str:
    """`text` with exactly `count` `<image>` tags.

    Its own come first, in order; missing ones are put in front, surplus ones are escaped.
    """
    parts = [escape_tags(part) for part in re.split(IMAGE, text, flags=re.IGNORECASE)]
    own = min(count, len(parts) - 1)
    head = IMAGE.join(parts[: own + 1])
    surplus = "".join(f"[image]{part}" for part in parts[own + 1 :])
    return IMAGE * (count - own) + head + surplus


def inserts_as_is(name: str, *texts: str) -> bool:
    """Whether a template inserts these values as they are, and at most asks if they are empty."""
    template, _ = _load(name)
    file = name if is_file(name) else template.filename or ""
    tree = _ENVIRONMENT.parse(Path(file).expanduser().read_text("utf-8"))
    statements = [*tree.find_all(nodes.Stmt)]
    outputs = [each for each in statements if isinstance(each, nodes.Output)]
    tests = [each.test for each in statements if isinstance(each, nodes.If)]
    plain = {id(node) for node in [*tests, *chain.from_iterable(each.nodes for each in outputs)]}
    names = [each for each in tree.find_all(nodes.Name) if each.name in texts]
    return len(outputs) + len(tests) == len(statements) and all(id(each) in plain for each in names)


def version_of(name: str) -> str:
    """`name@version` of the template that `render(name)` uses."""
    return _load(name)[1]


def is_file(name: str) -> bool:
    """Whether a prompt is a file of one's own, and not one of ours."""
    return name.endswith(SUFFIX)


def prompts_of(given: Any, names: Iterable[str]) -> Any:
    """Prompts by purpose, as a profile gives them; a folder stands for its files, of which
    `planner-text.jinja` is `planner_text`. All of a folder that is not there are named: using one
    says how to import them.

    Raises:
        ValueError: none of `names` is in the folder.
    """
    if not isinstance(given, str):
        return given
    folder = Path(given).expanduser()
    files = {name: folder / f"{name.replace('_', '-')}{SUFFIX}" for name in names}
    found = {name: str(f) for name, f in files.items() if f.is_file() or not folder.is_dir()}
    if not found:
        wanted = ", ".join(file.name for file in files.values())
        raise ValueError(f"folder {given} has none of {wanted}")
    return found


def stored_name(name: str) -> str:
    """How a checkpoint's manifest names a prompt: `name@version`, or the file beside it."""
    return Path(name).name if is_file(name) else version_of(name)


@cache
def _versions() -> dict[str, dict[int, str]]:
    """Template name -> version -> file name."""
    versions: dict[str, dict[int, str]] = {}
    for path in FOLDER.glob("*.jinja"):
        if match := _FILE.fullmatch(path.name):
            versions.setdefault(match["name"], {})[int(match["version"])] = path.name
    return versions


@cache
def _load(name: str) -> tuple[jinja2.Template, str]:
    if is_file(name):
        return _load_file(Path(name).expanduser())
    base, _, requested = name.partition("@")
    versions = _versions().get(base, {})
    version = int(requested) if requested.isdecimal() else max(versions, default=0)
    if version not in versions or requested not in ("", str(version)):
        known = ", ".join(sorted(f"{n}@{v}" for n, vs in _versions().items() for v in vs))
        raise FoundryError(f"no agent prompt '{name}'; there are: {known}, or give a .jinja file")
    return _ENVIRONMENT.get_template(versions[version]), f"{base}@{version}"


def _load_file(path: Path) -> tuple[jinja2.Template, str]:
    try:
        content = path.read_bytes()
        template = _FILES.from_string(content.decode())
    except (OSError, UnicodeDecodeError, jinja2.TemplateError) as error:
        raise FoundryError(
            f"agent prompt {path} cannot be read: {error}; `interleave prompts import FOLDER` "
            "writes those of a repository or folder"
        ) from error
    return template, f"{path.stem}@{hashlib.sha256(content).hexdigest()[:12]}"


def critic_prompt(instruction: str, rewritten: str, name: str = "critic") -> RenderedPrompt:
    """The question to the critic about an image before and one after the step.

    `instruction` and `rewritten`: see `Critic.judge`.
    """
    return render(
        name, original_instruction=escape_tags(instruction), rewritten_prompt=escape_tags(rewritten)
    )


def planner_prompt(
    request: str, name: str = "planner-text", steps_given: int = 0
) -> RenderedPrompt:
    """The question to the planner. `request` keeps its image tags: see `insert_image_tags`."""
    return render(name, request=request, steps_given=steps_given)


def planner_turn(request: PlanRequest, text_name: str, interleaved_name: str) -> RenderedPrompt:
    """The question to the planner about a user's request, with one image tag an image.

    A request with images or earlier steps takes the template `interleaved_name`.
    """
    listed = _STEPS_SO_FAR.search(request.text)
    steps_given = len(_STEP.findall(listed["steps"])) if listed else 0
    name = interleaved_name if request.images or steps_given else text_name
    return planner_prompt(insert_image_tags(request.text, len(request.images)), name, steps_given)


def import_prompts(source: Path, target: Path) -> list[Path]:
    """Write the agent prompts of a folder as `planner-text.jinja` and so on; returns the files.

    Args:
        source: a checkout of the authors' repository, or a folder with Jinja files of these names.
        target: folder, which is made; files that are there are replaced.

    Raises:
        FoundryError: there are none in the folder, or one is no valid template.
    """
    found = dict(_authors_prompts(source)) or dict(_jinja_files(source))
    if missing := [name for name in _IMPORTED if name not in found]:
        raise FoundryError(
            f"{source} has no agent prompt {', '.join(missing)}: name a checkout of the authors' "
            f"repository, or a folder with {', '.join(name + SUFFIX for name in _IMPORTED)}"
        )
    target.mkdir(parents=True, exist_ok=True)
    return [_write(target / f"{name}{SUFFIX}", found[name]) for name in _IMPORTED]


def _authors_prompts(source: Path) -> Iterator[tuple[str, str]]:
    module = source / _AUTHORS_MODULE
    if not module.is_file():
        return
    try:
        tree = ast.parse(module.read_bytes())
    except (SyntaxError, ValueError) as error:
        raise FoundryError(f"{module} is not a Python file: {error}") from error
    for node in tree.body:
        match node:
            case ast.Assign([ast.Name(name)], ast.Constant(str(text))) if name in _AUTHORS_NAMES:
                prompt = _AUTHORS_NAMES[name]
                yield prompt, _AUTHORS_IMAGES.get(prompt, "") + _as_template(text)


def _as_template(text: str) -> str:
    """Everything literally but the placeholders `{name}`, which their code replaces by text."""
    names = "|".join(_AUTHORS_PLACEHOLDERS)
    pieces = re.split(rf"{{({names})}}", text)
    literal = [f"{{% raw %}}{piece}{{% endraw %}}" if piece else "" for piece in pieces[::2]]
    values = [f"{{{{ {_AUTHORS_PLACEHOLDERS[name]} }}}}" for name in pieces[1::2]]
    return "".join(a + b for a, b in zip(literal, [*values, ""], strict=True))


def _jinja_files(source: Path) -> Iterator[tuple[str, str]]:
    for name in _IMPORTED:
        if (file := source / f"{name}{SUFFIX}").is_file():
            yield name, file.read_text("utf-8")


def _write(path: Path, template: str) -> Path:
    atomic_write(path, template)
    render(str(path), **_SAMPLE)
    return path
