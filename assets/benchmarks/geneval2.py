"""GenEval 2: prompts of counted, coloured and related objects (arXiv 2512.16853).

A judge answers the official questions about a picture in one word each, without seeing the prompt.
Numbers are those of the official method TIFA: whether an answer is right. Soft-TIFA, the paper's
own, weighs answers by the probability that one model, Qwen3-VL-8B-Instruct, gives their first
token, which a chat API does not tell: these are other numbers. The wording around a question is
ours.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from statistics import fmean
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, JsonValue, model_validator

from warehouse import EncodedImage

from . import files
from .benchmark import (
    NOTHING_ASKED,
    Answer,
    AnswerStep,
    Item,
    ItemMetrics,
    JudgeCall,
    Metrics,
    SingleImageBenchmark,
    Values,
    mean,
    pooled,
    read_prompts,
    unique,
)

TIFA, COMPLETE = "tifa", "complete"
SKILLS = ("object", "attribute", "count", "position", "verb")
_PATHS = "images.json"  # prompt -> file of its picture
_NUMBERS = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
_DIGITS = {str(number): word for number, word in enumerate(_NUMBERS, 1)}
_PROMPTS = read_prompts("geneval2")


class _Prompt(BaseModel):
    """A line of the official file: questions with their right answers, and what each one tests."""

    model_config = ConfigDict(frozen=True)

    prompt: str = Field(min_length=1)
    atom_count: int = Field(ge=1)
    vqa_list: tuple[tuple[str, str], ...] = Field(min_length=1)
    skills: tuple[Literal[SKILLS], ...]  # type: ignore[valid-type]

    @model_validator(mode="after")
    def _check_skills(self) -> Self:
        if len(self.skills) != len(self.vqa_list):
            raise ValueError("skills: must be as many as questions")
        return self


class GenEval2(SingleImageBenchmark):
    """800 prompts in eight groups, by how many atoms (objects, attributes, ...) they have.

    Args:
        source: a copy of the official repository.
    """

    name, headline = "geneval2", TIFA

    def __init__(self, source: Path) -> None:
        path = files.find_file(source, [""], ["geneval2_data.jsonl"], "GenEval 2")
        rows = files.read_rows(path, _Prompt)
        items = (
            Item(str(number), f"atoms-{row.atom_count}", row.prompt, official=row)
            for number, row in enumerate(rows, 1)
        )
        self.items = unique(path, self.name, items)
        self._questions = {
            skill: {item.item_id: item.official.skills.count(skill) for item in self.items}
            for skill in SKILLS
        }

    def image_calls(self, item: Item, image: EncodedImage) -> list[JudgeCall]:
        calls = []
        for number, (question, _) in enumerate(item.official.vqa_list, 1):
            is_count = question.startswith("How many")
            text = f"{_PROMPTS['count' if is_count else 'yes_or_no']}\n\n{question}"
            read = _read_count if is_count else _read_yes_or_no
            calls.append(JudgeCall(f"atom-{number}", text, read, (image,)))
        return calls

    def metrics(self, item: Item, values: Values) -> Metrics:
        """Shares of right answers (0..1), of all and by skill; `complete`: 1 if all are right.

        `complete` is the official geometric mean of answers that are right (1) or wrong (0).
        """
        official: _Prompt = item.official
        skills = official.skills
        tested = [skill for skill in SKILLS if skill in skills]
        given = [values.get(f"atom-{number}") for number in range(1, len(skills) + 1)]
        if NOTHING_ASKED not in values and None in given:
            return dict.fromkeys((TIFA, COMPLETE, *tested))
        answers = (answer.lower() for _, answer in official.vqa_list)
        right = [value == answer for value, answer in zip(given, answers, strict=True)]
        shares = {TIFA: fmean(right), COMPLETE: float(all(right))}
        for name in tested:
            own = zip(skills, right, strict=True)
            shares[name] = fmean(is_right for skill, is_right in own if skill == name)
        return shares

    def aggregate(self, items: Sequence[ItemMetrics]) -> dict[str, float | None]:
        """In %: means over prompts, of skills over all their questions, and `complete` by atoms."""
        numbers = {name: mean(items, name) for name in (TIFA, COMPLETE)}
        numbers |= {skill: pooled(items, skill, self._questions[skill]) for skill in SKILLS}
        groups = dict.fromkeys(item.group for item in self.items)
        numbers |= {f"{group}/{COMPLETE}": mean(items, COMPLETE, group) for group in groups}
        return {name: None if value is None else 100 * value for name, value in numbers.items()}

    def write_answers(self, root: Path, system: str, answers: Iterable[tuple[str, Answer]]) -> Path:
        """Pictures, and the official file of their names, to be scored from that folder."""
        folder = super().write_answers(root, system, answers)
        names = {item.text: f"{item.item_id}.png" for item in self.items}
        drawn = {text: name for text, name in names.items() if (folder / name).is_file()}
        files.write_json(folder / _PATHS, drawn)
        return folder

    def answers_in(self, source: Path) -> Iterator[tuple[str, Answer]]:
        """Of the official file of names, or the folder with it."""
        path = source / _PATHS if source.is_dir() else source
        ids = {item.text: item.item_id for item in self.items}
        for prompt, name in files.read_answers(path, dict[str, str]).items():
            item_id = ids.get(prompt, repr(prompt))
            yield item_id, (AnswerStep("", files.read_image(path.parent / name, item_id)),)


def _word(text: str) -> str:
    """The only word of an answer, in lower case; empty: there are several."""
    words = re.findall(r"\w+", text.lower())
    return words[0] if len(words) == 1 else ""


def _read_count(text: str) -> JsonValue:
    """A number as a word, where there is one for it here; None: several words."""
    word = _word(text)
    return _DIGITS.get(word, word) or None


def _read_yes_or_no(text: str) -> JsonValue:
    word = _word(text)
    return word if word in ("yes", "no") else None
