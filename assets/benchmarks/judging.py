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


def judge_exactly(
    benchmark: ExactlyJudged, images: ImageStore, answers: Sequence[BenchmarkAnswerRow]
) -> JudgedAnswers:
    """Judge answers without a model.

    Raises:
        BadImageError: a picture of an answer is missing or damaged.
    """
    items = {item.item_id: item for item in benchmark.items}
    rows = []
    for answer in answers:
        values = benchmark.judge(items[answer.item_id], load_answer(images, answer))
        rows += [
            _row(answer, EXACT_JUDGE, name, Judged(value, None, 0))
            for name, value in values.items()
        ]
    return JudgedAnswers(rows)


async def judge_answers(
    home: Home,
    benchmark: Benchmark,
    answers: Sequence[BenchmarkAnswerRow],
    judge: Respondent,
    partition: str,
    limits: Limits,
    tries: int,
    progress: Progress,
) -> JudgedAnswers:
    """Ask a judge all questions about the answers of a shard.

    Args:
        partition: of the judgements, whose journal its calls are in.
        tries: how often it is asked until its answer can be read.

    Raises:
        FoundryError: the judge gave no answer to a call; finished calls are journaled.
        BadImageError: a picture of an answer is missing or damaged.
    """
    items, name = {item.item_id: item for item in benchmark.items}, qualified_name(judge)
    with QuestionCalls(home, ASSET, partition, judge, limits) as calls:
        asking = _Asking(benchmark, calls, tries)

        async def judge_one(answer: BenchmarkAnswerRow) -> list[JudgementRow]:
            content = await asyncio.to_thread(load_answer, home.images, answer)
            judged = await asking.ask_all(items[answer.item_id], content)
            return [_row(answer, name, call, each) for call, each in judged.items()]

        rows = await calls.map(judge_one, answers, limits.agents, progress)
        return JudgedAnswers([row for each in rows for row in each], calls.ledger())


def load_answer(images: ImageStore, row: BenchmarkAnswerRow) -> Answer:
    """The texts and pictures of an answer; BadImageError: one is missing or damaged."""
    return tuple(
        AnswerStep(text, images.get(sha256) if sha256 else None)
        for text, sha256 in zip(row.texts, row.images, strict=True)
    )


@dataclass(frozen=True)
class Judged:
    """What a judge said; `value` is None where it could not be read."""

    value: JsonValue
    answer: str | None
    tries: int
    error: str | None = None


@dataclass(frozen=True)
class _Asking:
    """Questions about answers, in rounds: some need the answers to earlier ones."""

    benchmark: Benchmark
    calls: QuestionCalls
    tries: int

    async def ask_all(self, item: Item, answer: Answer) -> Mapping[str, Judged]:
        judged: dict[str, Judged] = {}
        while calls := await asyncio.to_thread(self._open_calls, item, answer, judged):
            results = await gather_or_cancel(
                *(
                    ask(self.calls, item.item_id, call, self.benchmark.parse, self.tries)
                    for call in calls
                )
            )
            judged |= {call.name: each for call, each in zip(calls, results, strict=True)}
        return judged or {NOTHING_ASKED: Judged(True, None, 0)}

    def _open_calls(
        self, item: Item, answer: Answer, judged: Mapping[str, Judged]
    ) -> list[JudgeCall]:
        values = {name: each.value for name, each in judged.items()}
        return [c for c in self.benchmark.calls(item, answer, values) if c.name not in judged]


async def ask(
    calls: QuestionCalls,
    item_id: str,
    call: JudgeCall,
    parse: Callable[[str, str], JsonValue],
    tries: int,
) -> Judged:
    """Ask a question until its answer can be read, `tries` times at most.

    Raises CallFailedError: the judge gave no answer.
    """
    text: str | None = None
    for number in range(1, tries + 1):
        try:
            site = CallSite(item_id)
            question = TextQuestion(call.text, call.images, text)
            text = (await calls.ask(site, question)).answer.text
        except UnusableAnswerError as error:
            return Judged(None, text, number, summarize_error(error))
        value = parse(call.name, text)
        if value is not None:
            return Judged(value, text, number)
    return Judged(None, text, tries, "no answer of the form that was asked for")


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
