"""Judges answers: every question is asked through a journal, and asked again if unreadable."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import orjson
from pydantic import JsonValue

from inference.calls.ask import CallSite, QuestionCalls
from inference.calls.progress import Progress
from inference.calls.retry import summarize_error
from inference.calls.worker_pool import gather_or_cancel
from inference.questions import Respondent, TextQuestion
from inference.roles import UnusableAnswerError, qualified_name
from inference.settings import Limits
from schemas.benchmarks import BenchmarkAnswerRow, JudgementRow
from schemas.trajectories import ModelCallRow
from warehouse import Home, ImageStore

from .benchmark import NOTHING_ASKED, Answer, AnswerStep, Benchmark, ExactlyJudged, Item, JudgeCall

ASSET = "benchmark_judgements"
EXACT_JUDGE = "exact"  # in the column `judge`


@dataclass(frozen=True)
class JudgedAnswers:
    """Rows of a shard, and the calls that were ever made for them."""

    rows: list[JudgementRow]
    calls: list[ModelCallRow] = field(default_factory=list)


@dataclass(frozen=True)
class Judged:
    """What a judge said; `value` is None where it could not be read."""

    value: JsonValue
    answer: str | None
    tries: int
    error: str | None = None


def judge_exactly(
    benchmark: ExactlyJudged, images: ImageStore, answers: Sequence[BenchmarkAnswerRow]
) -> JudgedAnswers:
    """Judge answers without a model.

    Raises:
        BadImageError: a picture of an answer is missing or damaged.
    """
    items = {item.item_id: item for item in benchmark.items}
    rows = [
        _row(answer, EXACT_JUDGE, name, Judged(value, None, 0))
        for answer in answers
        for name, value in benchmark.judge(
            items[answer.item_id], load_answer(images, answer)
        ).items()
    ]
    return JudgedAnswers(rows)


@dataclass(frozen=True)
class ModelJudge:
    """A model that answers questions of benchmarks.

    Args:
        tries: how often it is asked until its answer can be read.
    """

    home: Home
    model: Respondent
    limits: Limits
    tries: int
    progress: Progress

    async def judge(
        self, benchmark: Benchmark, answers: Sequence[BenchmarkAnswerRow], partition: str
    ) -> JudgedAnswers:
        """Ask all questions about the answers of a shard.

        Args:
            partition: of the judgements, whose journal its calls are in.

        Raises:
            FoundryError: the judge gave no answer to a call; finished calls are journaled.
            BadImageError: a picture of an answer is missing or damaged.
        """
        items, name = {item.item_id: item for item in benchmark.items}, qualified_name(self.model)
        with QuestionCalls(self.home, ASSET, partition, self.model, self.limits) as calls:

            async def judge_one(answer: BenchmarkAnswerRow) -> list[JudgementRow]:
                content = await asyncio.to_thread(load_answer, self.home.images, answer)
                judged = await self._ask_all(calls, benchmark, items[answer.item_id], content)
                return [_row(answer, name, call, each) for call, each in judged.items()]

            rows = await calls.map(judge_one, answers, self.limits.agents, self.progress)
            return JudgedAnswers([row for each in rows for row in each], calls.ledger())

    async def _ask_all(
        self, calls: QuestionCalls, benchmark: Benchmark, item: Item, answer: Answer
    ) -> Mapping[str, Judged]:
        """In rounds: some questions need the answers to earlier ones."""
        judged: dict[str, Judged] = {}
        while True:
            values = {name: each.value for name, each in judged.items()}
            known = await asyncio.to_thread(benchmark.calls, item, answer, values)
            asked = [call for call in known if call.name not in judged]
            if not asked:
                return judged or {NOTHING_ASKED: Judged(True, None, 0)}
            results = await gather_or_cancel(
                *(self.ask(calls, item.item_id, call, benchmark.parse) for call in asked)
            )
            judged |= {call.name: each for call, each in zip(asked, results, strict=True)}

    async def ask(
        self,
        calls: QuestionCalls,
        item_id: str,
        call: JudgeCall,
        parse: Callable[[str, str], JsonValue],
    ) -> Judged:
        """Ask a question until its answer can be read; CallFailedError: there was no answer."""
        text: str | None = None
        for number in range(1, self.tries + 1):
            question = TextQuestion(call.text, call.images, text)
            try:
                text = (await calls.ask(CallSite(item_id), question)).answer.text
            except UnusableAnswerError as error:
                return Judged(None, text, number, summarize_error(error))
            value = parse(call.name, text)
            if value is not None:
                return Judged(value, text, number)
        return Judged(None, text, self.tries, "no answer of the form that was asked for")


def load_answer(images: ImageStore, row: BenchmarkAnswerRow) -> Answer:
    """The texts and pictures of an answer; BadImageError: one is missing or damaged."""
    return tuple(
        AnswerStep(text, images.get(sha256) if sha256 else None)
        for text, sha256 in zip(row.texts, row.images, strict=True)
    )


def _row(answer: BenchmarkAnswerRow, judge: str, call: str, judged: Judged) -> JudgementRow:
    return JudgementRow(
        benchmark=answer.benchmark,
        system=answer.system,
        judge=judge,
        shard=answer.shard,
        item_id=answer.item_id,
        call=call,
        value=None if judged.value is None else orjson.dumps(judged.value).decode(),
        answer=judged.answer,
        tries=judged.tries,
        error=judged.error,
    )
