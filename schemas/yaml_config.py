"""YAML documents (packs, profiles) into pydantic models, with errors that name file, line, key.

packs/interleave/taxonomy.yaml:14: categories.science.subcategories.biology.banks: Input should
be a valid list
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError
from yaml.constructor import SafeConstructor

from .errors import DocumentError

Model = TypeVar("Model", bound=BaseModel)
KeyPath = tuple[str | int, ...]
# libyaml, if available, reads the same safe subset of YAML ten times faster.
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class ConfigModel(BaseModel):
    """A section of a document: immutable, and unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def load_document(path: Path, model: type[Model]) -> Model:
    """Read and validate one YAML file.

    Raises:
        DocumentError: unreadable, not YAML, a duplicate key, or invalid for the model; every
            problem has a line `file:line: key: message`.
    """
    try:
        return model.model_validate(read_yaml(path))
    except ValidationError as error:
        problems = error.errors(include_url=False)
        lines = (locate_problem(path, each["loc"], each["msg"]) for each in problems)
        raise DocumentError("\n".join(lines)) from error


def read_yaml(path: Path) -> Any:
    """A document's content; an empty one is a mapping without keys.

    Raises:
        DocumentError: unreadable, not YAML, or a duplicate key.
    """
    root = _compose(path)
    _reject_duplicate_keys(path, root)
    with _readable(path):
        content = SafeConstructor().construct_document(root) if root else None
    return content or {}


def read_documents(path: Path) -> list[Any]:
    """Every document of a YAML file; DocumentError: unreadable, or not YAML."""
    with _readable(path):
        return list(yaml.load_all(path.read_text("utf-8"), Loader=_LOADER))


def locate_problem(path: Path, key: KeyPath, message: str) -> str:
    """One line `file:line: dotted.key: message` for a file that can be read."""
    dotted = ".".join(map(str, key)) or "document"
    return f"{path}:{_line_of(_compose(path), key)}: {dotted}: {message}"


def _reject_duplicate_keys(path: Path, node: yaml.Node | None, key: tuple[str, ...] = ()) -> None:
    """Reject duplicate keys, of which YAML silently ignores the first."""
    first: dict[str, int] = {}
    for name, line, value in _children(node):
        if name in first:
            again = f"given twice, first on line {first[name]}"
            raise DocumentError(f"{path}:{line}: {'.'.join((*key, name))}: {again}")
        first[name] = line
        _reject_duplicate_keys(path, value, (*key, name))


def _compose(path: Path) -> yaml.Node | None:
    with _readable(path):
        return yaml.compose(path.read_text("utf-8"), Loader=_LOADER)


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise DocumentError(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise DocumentError(f"{path}: is not UTF-8 text (byte {error.start})") from error
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise DocumentError(f"{path}:{line}: not valid YAML: {error.problem}") from error
    except yaml.YAMLError as error:  # a character that YAML does not allow
        raise DocumentError(f"{path}: not valid YAML: {str(error).splitlines()[0]}") from error


def _line_of(node: yaml.Node | None, key: KeyPath) -> int:
    """Line of the deepest part of `key` that exists; 1 for an empty document."""
    line = node.start_mark.line + 1 if node else 1
    for part in key:
        children = {name: (line, child) for name, line, child in _children(node)}
        if str(part) not in children:
            return line
        line, node = children[str(part)]
    return line


def _children(node: yaml.Node | None) -> Iterator[tuple[str, int, yaml.Node]]:
    """Key (of a sequence: index), line and value of each part of a node."""
    if isinstance(node, yaml.MappingNode):
        for name, value in node.value:
            yield name.value, name.start_mark.line + 1, value
    if isinstance(node, yaml.SequenceNode):
        for index, value in enumerate(node.value):
            yield str(index), value.start_mark.line + 1, value
