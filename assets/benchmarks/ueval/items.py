"""UEval's items: prompts of eight tasks, each with criteria for its text and its images."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from pydantic import AliasChoices, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from schemas.errors import FoundryError, first_problem

Task = Literal["space", "textbook", "diagram", "paper", "art", "life", "tech", "exercise"]
TASKS: tuple[Task, ...] = get_args(Task)
# Image criteria of these are judged together with the text of the answer.
OPEN_TASKS = frozenset({"art", "life", "tech", "exercise"})

_SUFFIXES = (".parquet", ".jsonl", ".json")


def _criterion(value: object) -> object:
    # The older layout has {"criterion", "tags", "type"}.
    return value.get("criterion") if isinstance(value, dict) else value


_Criteria = tuple[Annotated[str, BeforeValidator(_criterion)], ...]


class UEvalItem(BaseModel):
    """A row of the Hub's `zlab-princeton/UEval`, or of the older `primerL/UEval`."""

    model_config = ConfigDict(frozen=True, extra="ignore", coerce_numbers_to_str=True)

    id: str = Field(min_length=1)
    task: Annotated[
        Task, BeforeValidator(lambda task: task.strip().lower() if isinstance(task, str) else task)
    ] = Field(validation_alias=AliasChoices("task", "task_type"))
    prompt: str = Field(min_length=1)
    text_rubrics: Annotated[_Criteria, BeforeValidator(lambda value: value or ())] = ()
    image_rubrics: Annotated[_Criteria, BeforeValidator(lambda value: value or ())] = ()

    @property
    def is_open(self) -> bool:
        """Whether the text of the answer is shown where its images are judged."""
        return self.task in OPEN_TASKS


def load(source: Path) -> list[UEvalItem]:
    """The items in the files' order.

    Args:
        source: a parquet, JSON or JSON-lines file, or a folder of them (such as a snapshot of the
            Hub).

    Raises:
        FoundryError: no such file, a damaged one, an unknown task or an item twice.
    """
    items: dict[str, UEvalItem] = {}
    for path in _files(source):
        for number, row in enumerate(_rows(path), 1):
            item = _item(path, number, row)
            if item.id in items:
                raise FoundryError(f"{path}: item {item.id} is there twice; remove one")
            items[item.id] = item
    if not items:
        raise FoundryError(f"{source}: has no items of UEval; copy the official files again")
    return list(items.values())


def _files(source: Path) -> list[Path]:
    if source.is_file():
        return [source]
    for suffix in _SUFFIXES:
        found = sorted(source.rglob(f"*{suffix}"))
        if len(found) > 1 and suffix != ".parquet":
            raise FoundryError(f"{source}: has {len(found)} {suffix} files; name the one of UEval")
        if found:
            return found
    raise FoundryError(f"{source}: has no .parquet, .jsonl or .json file of UEval; copy them there")


def _rows(path: Path) -> Iterable[Any]:
    try:
        if path.suffix == ".parquet":
            return _parquet_rows(path)
        text = path.read_text(encoding="utf-8")
        if path.suffix == ".jsonl":
            return [json.loads(line) for line in text.split("\n") if line.strip()]
        rows = json.loads(text)
    except (OSError, ValueError) as error:
        raise FoundryError(f"{path}: cannot be read ({error}); copy it again") from error
    if not isinstance(rows, list):
        raise FoundryError(f"{path}: is no list of items; give UEval's items")
    return rows


def _parquet_rows(path: Path) -> list[dict[str, Any]]:
    """Rows without the reference answers, whose images are most of the file."""
    import pyarrow.parquet as pq

    file = pq.ParquetFile(path)
    wanted = {*UEvalItem.model_fields, "task_type"}
    columns = [name for name in file.schema_arrow.names if name in wanted]
    rows: list[dict[str, Any]] = file.read(columns=columns).to_pylist()
    return rows


def _item(path: Path, number: int, row: object) -> UEvalItem:
    try:
        return UEvalItem.model_validate(row)
    except ValidationError as error:
        problem = first_problem(error, root="item")
        raise FoundryError(f"{path}: row {number}: {problem}; copy the file again") from error
