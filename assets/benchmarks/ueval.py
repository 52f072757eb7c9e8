"""UEval: answers of text and images, checked criterion by criterion.

A judge gets one call a criterion: it is met, not met, or the judge is not sure. What is shown is
the benchmark's; the wording is ours. Three averages are in use, and each is given under a name of
its own:
`text_avg_rate` and `image_avg_rate` (the official summary, 0..1): means over items;
`average` (the official leaderboard, %): the mean over the tasks of mean(text, image);
`item_weighted_average` (the paper's, %): the mean of the two of the summary.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Literal, get_args

from pydantic import AliasChoices, BaseModel, BeforeValidator, ConfigDict, Field

from schemas.errors import FoundryError
from warehouse import EncodedImage

from . import files
from .benchmark import (
    Answer,
    AnswerStep,
    Benchmark,
    Item,
    ItemMetrics,
    JudgeCall,
    Metrics,
    Values,
    json_objects,
    mean,
    pictures,
    read_prompts,
    unique,
)

Task = Literal["space", "textbook", "diagram", "paper", "art", "life", "tech", "exercise"]
TASKS: tuple[Task, ...] = get_args(Task)
TEXT, IMAGE = "text_rate", "image_rate"
# Image criteria of these are judged together with the text of the answer.
_OPEN_TASKS = frozenset({"art", "life", "tech", "exercise"})


_PROMPTS = read_prompts("ueval")

Verdict = bool | Literal["not sure"]
_WORDS: dict[str, Verdict] = {
    **dict.fromkeys(("true", "yes", "y", "1"), True),
    **dict.fromkeys(("false", "no", "n", "0"), False),
    **dict.fromkeys(("not sure", "unsure", "unknown"), "not sure"),
}


def _without_empty(value: object) -> object:
    """Paths as a list, without empty ones, as the scorer takes them: one alone is text."""
    values = value if isinstance(value, list) else [value]
    return [path for path in values if path]


_Criteria = Annotated[tuple[str, ...], BeforeValidator(lambda value: value or ())]


class _UEvalItem(BaseModel):
    """A row of the Hub's `zlab-princeton/UEval`."""

    model_config = ConfigDict(frozen=True, extra="ignore", coerce_numbers_to_str=True)

    id: str = Field(min_length=1)
    task: Task
    prompt: str = Field(min_length=1)
    text_rubrics: _Criteria = ()
    image_rubrics: _Criteria = ()

    @property
    def calls(self) -> dict[str, dict[str, str]]:
        """Metric -> call -> its criterion."""
        kinds = {TEXT: ("text", self.text_rubrics), IMAGE: ("image", self.image_rubrics)}
        return {
            metric: {f"{kind}-{number}": each for number, each in enumerate(criteria, 1)}
            for metric, (kind, criteria) in kinds.items()
            if criteria
        }


class _AnswerRow(BaseModel):
    # The other names are those of the official generators' files.
    model_config = ConfigDict(extra="ignore", coerce_numbers_to_str=True)

    id: str
    text: str | None = Field(
        validation_alias=AliasChoices("text_answer", "gemini_text_ans", "emu_text")
    )
    images: Annotated[list[str], BeforeValidator(_without_empty)] = Field(
        validation_alias=AliasChoices("image_answer", "gemini_image_ans", "emu_image")
    )


class UEval(Benchmark):
    """Prompts of eight tasks, which are its groups.

    Args:
        source: a parquet, JSON or JSON-lines file, or a folder of them (such as a snapshot of the
            Hub).
    """

    name, headline = "ueval", "average"

    def __init__(self, source: Path) -> None:
        columns = [*_UEvalItem.model_fields]  # without the large reference answers
        paths = _files(source)
        rows = [row for path in paths for row in files.read_rows(path, _UEvalItem, columns)]
        own = (Item(row.id, row.task, row.prompt, official=row) for row in rows)
        self.items = unique(source, self.name, own)

    def calls(self, item: Item, answer: Answer, values: Values) -> list[JudgeCall]:
        """A call for every criterion, those of the text first."""
        text, images = _text(answer) or "(none)", pictures(answer)
        question, form = _block("Question", item.text), _PROMPTS["form"]
        is_open = item.group in _OPEN_TASKS
        parts = {
            TEXT: [_PROMPTS["text"], form, question, _block("Text", text)],
            IMAGE: [_PROMPTS["open_images" if is_open else "images"], form, question],
        }
        if is_open:
            parts[IMAGE].append(_block("Text of the answer", text))
        if not images:
            parts[IMAGE].append("Images: (none)")
        # The criterion comes last, so that all calls of an item share a prefix that can be cached.
        return [
            JudgeCall(
                name,
                "\n\n".join([*parts[metric], _block("Criterion", criterion)]),
                read_verdict,
                images if metric == IMAGE else (),
            )
            for metric, criteria in item.official.calls.items()
            for name, criterion in criteria.items()
        ]

    def metrics(self, item: Item, values: Values) -> Metrics:
        """Shares of criteria that are met, 0..1, of the kinds of which the item has any."""
        kinds = item.official.calls.items()
        return {metric: _rate(values, criteria) for metric, criteria in kinds}

    def aggregate(self, items: Sequence[ItemMetrics]) -> dict[str, float | None]:
        """All numbers, also `<task>/text`, `<task>/image` and `<task>/average`, in %."""
        text, image = mean(items, TEXT), mean(items, IMAGE)
        tasks = {
            task: _percentages(mean(items, TEXT, task), mean(items, IMAGE, task)) for task in TASKS
        }
        averages = [each["average"] for each in tasks.values() if each["average"] is not None]
        return {
            self.headline: sum(averages) / len(averages) if averages else None,
            "item_weighted_average": _percentages(text, image)["average"],
            "text_avg_rate": text,
            "image_avg_rate": image,
            **{f"{task}/{name}": v for task, each in tasks.items() for name, v in each.items()},
        }

    def write_answers(self, root: Path, system: str, answers: Iterable[tuple[str, Answer]]) -> Path:
        """`<root>/<system>.json` lists `{"id", "text_answer", "image_answer": [paths]}`.

        The scorer looks for relative paths from the folder that it is started in, so it is started
        in `root`. The file comes last, so that one that is there is complete.
        """
        folder = files.system_folder(root, system, "_images")
        rows = [self.write_answer(folder, self.by_id[name], answer) for name, answer in answers]
        path = root / f"{system}.json"
        files.write_json(path, rows)
        return path

    def write_answer(self, folder: Path, item: Item, answer: Answer) -> dict[str, object]:
        """Its row; the pictures are written."""
        images = [
            f"{folder.name}/{files.write_image(folder, f'{item.item_id}_{number}', image)}"
            for number, image in enumerate(pictures(answer), 1)
        ]
        return {"id": item.item_id, "text_answer": _text(answer), "image_answer": images}

    def answers_in(self, source: Path) -> Iterator[tuple[str, Answer]]:
        """Of an item twice the last: all the text with the first image, then the others."""
        rows = {row.id: row for row in files.read_answers(source, list[_AnswerRow])}
        for row in rows.values():
            images: list[EncodedImage | None] = [
                files.read_image(_found(source, path), row.id) for path in row.images
            ]
            first, *others = images or [None]
            yield row.id, (AnswerStep(row.text or "", first), *(AnswerStep("", i) for i in others))


def _files(source: Path) -> list[Path]:
    if source.is_file():
        return [source]
    for suffix in (".parquet", ".jsonl", ".json"):
        found = sorted(source.rglob(f"*{suffix}"))
        if len(found) > 1 and suffix != ".parquet":
            raise FoundryError(f"{source}: has {len(found)} {suffix} files; name the one of UEval")
        if found:
            return found
    raise FoundryError(f"{source}: has no .parquet, .jsonl or .json file of UEval; copy them there")


def read_verdict(text: str) -> Verdict | None:
    """The verdict; None unless the objects with one agree on one that is known."""
    found = {
        _verdict(value["criteria_met"])
        for value in json_objects(text)
        if isinstance(value, dict) and "criteria_met" in value
    }
    return found.pop() if len(found) == 1 else None


def _text(answer: Answer) -> str:
    """The texts of an answer, a paragraph each."""
    return "\n\n".join(step.text.strip() for step in answer if step.text.strip())


def _block(title: str, content: str) -> str:
    return f"{title}:\n{content}"


def _verdict(value: object) -> Verdict | None:
    if isinstance(value, bool):
        return value
    return _WORDS.get(value.strip().lower()) if isinstance(value, str) else None


def _rate(values: Values, calls: Mapping[str, str]) -> float | None:
    """The share of calls that say yes; None if any is missing: an answer is never guessed."""
    verdicts = [values.get(call) for call in calls]
    return None if None in verdicts else verdicts.count(True) / len(verdicts)


def _percentages(text: float | None, image: float | None) -> dict[str, float | None]:
    """Rates as percentages, and their mean; None unless both are there."""
    both = None if text is None or image is None else 100 * (text + image) / 2
    percent = [None if rate is None else 100 * rate for rate in (text, image)]
    return {"text": percent[0], "image": percent[1], "average": both}


def _found(source: Path, name: str) -> Path:
    """An image beside the file of answers, or below the current folder as the scorer has it."""
    beside = source.parent / name
    return beside if beside.is_file() or not Path(name).is_file() else Path(name)
