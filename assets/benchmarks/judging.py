"""Judges answers: every question is asked through a journal, and asked again if unreadable."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

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

from ..core.profile import Profile
from .benchmark import NOTHING_ASKED, Answer, AnswerStep, Benchmark, Item, JudgeCall
from .settings import BenchmarkJudgeSettings, BenchmarksSettings
from .sketch import SketchBenchmark

ASSET = "benchmark_judgements"
EXACT_JUDGE = "exact"  # in the column `judge`


@dataclass(frozen=True)
class Judged:
    """What a judge said; `value` is None where it could not be read."""

    value: JsonValue
    answer: str | None = None
    tries: int = 0
    error: str | None = None


def judge_exactly(
    benchmark: SketchBenchmark, images: ImageStore, answers: Sequence[BenchmarkAnswerRow]
) -> list[JudgementRow]:
    """Judge answers without a model; BadImageError: a picture of one is missing or damaged."""
    rows: list[JudgementRow] = []
    for answer in answers:
        values = benchmark.judge(benchmark.by_id[answer.item_id], load_answer(images, answer))
        rows += _rows(answer, EXACT_JUDGE, {name: Judged(each) for name, each in values.items()})
    return rows


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
    ) -> tuple[list[JudgementRow], list[ModelCallRow]]:
        """Ask all questions about the answers of a shard; also the calls ever made for them.

        Args:
            partition: of the judgements, whose journal its calls are in.

        Raises:
            FoundryError: the judge gave no answer to a call; finished calls are journaled.
            BadImageError: a picture of an answer is missing or damaged.
        """
        with QuestionCalls(self.home, ASSET, partition, self.model, self.limits) as calls:

            async def judge_one(row: BenchmarkAnswerRow) -> list[JudgementRow]:
                answer = await asyncio.to_thread(load_answer, self.home.images, row)
                judged = await self._ask_all(calls, benchmark, benchmark.by_id[row.item_id], answer)
                return _rows(row, qualified_name(self.model), judged)

            rows = await calls.map(judge_one, answers, self.limits.agents, self.progress)
            return [row for each in rows for row in each], calls.ledger()

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
                return judged or {NOTHING_ASKED: Judged(True)}
            results = await gather_or_cancel(
                *(self.ask(calls, item.item_id, call) for call in asked)
            )
            judged |= {call.name: each for call, each in zip(asked, results, strict=True)}

    async def ask(self, calls: QuestionCalls, item_id: str, call: JudgeCall) -> Judged:
        """Ask a question until its answer can be read; CallFailedError: there was no answer."""
        text: str | None = None
        for number in range(1, self.tries + 1):
            question = TextQuestion(call.text, call.images, text)
            try:
                text = (await calls.ask(CallSite(item_id), question)).answer.text
            except UnusableAnswerError as error:
                return Judged(None, text, number, summarize_error(error))
            value = call.read(text)
            if value is not None:
                return Judged(value, text, number)
        return Judged(None, text, self.tries, "no answer of the form that was asked for")


def model_judge(
    profile: Profile, home: Home, judge: BenchmarkJudgeSettings, progress: Progress
) -> ModelJudge:
    """A named judge at the endpoints of a profile."""
    model = profile.respondent("benchmark_judge", home, judge.backend, judge.model)
    tries = (profile.benchmarks or BenchmarksSettings()).tries
    return ModelJudge(home, model, profile.limits, tries, progress)


def load_answer(images: ImageStore, row: BenchmarkAnswerRow) -> Answer:
    """The texts and pictures of an answer; BadImageError: one is missing or damaged."""
    return tuple(
        AnswerStep(text, images.get(sha256) if sha256 else None)
        for text, sha256 in zip(row.texts, row.images, strict=True)
    )


def _rows(
    answer: BenchmarkAnswerRow, judge: str, judged: Mapping[str, Judged]
) -> list[JudgementRow]:
    """A row per question, by its name."""
    shared = answer.model_dump(include={"benchmark", "system", "shard", "item_id"})
    rows = []
    for call, each in judged.items():
        value = None if each.value is None else orjson.dumps(each.value).decode()
        said = asdict(each) | {"value": value}
        rows.append(JudgementRow(**shared, judge=judge, call=call, **said))
    return rows
