"""OpenING's metrics, and readers of its official result files.

An item without a judgement is unscored: it counts in no mean, and each mean has the share of
unscored items beside it.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TypeVar

from pydantic import AliasChoices, BaseModel, Field, TypeAdapter, ValidationError

from schemas.errors import FoundryError, first_problem

from .judge import CRITERIA, MAX_SCORE, Verdict

Content = TypeVar("Content")
Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True)
class ScoredAnswer:
    """Absolute scores (criterion -> 0..10) of a system's answer; None: unscored."""

    item_id: str
    system: str
    scores: Mapping[str, int] | None

    @property
    def overall(self) -> float | None:
        """The mean of the criteria: the item's own number, for intervals and worst items."""
        return None if self.scores is None else sum(self.scores.values()) / len(self.scores)


@dataclass(frozen=True)
class ScoreMeans:
    """A system's mean of each criterion over `scored` answers; `unscored` is a share in 0..1."""

    means: Mapping[str, float]
    scored: int
    unscored: float

    @property
    def published(self) -> dict[str, float]:
        """The means to two decimals, as the official table shows them, and `Overall`.

        The official overall is the mean of the rounded means, rounded once more.
        """
        rounded = {name: round(mean, 2) for name, mean in self.means.items()}
        if not rounded:
            return {}
        return {**rounded, "Overall": round(sum(rounded.values()) / len(rounded), 2)}


def score_means(answers: Iterable[ScoredAnswer]) -> dict[str, ScoreMeans]:
    """System -> its means, in order of appearance; a system without any score has no means."""
    by_system: dict[str, list[ScoredAnswer]] = defaultdict(list)
    for answer in answers:
        by_system[answer.system].append(answer)
    return {system: _score_means(rows) for system, rows in by_system.items()}


def _score_means(answers: Sequence[ScoredAnswer]) -> ScoreMeans:
    scored = [answer.scores for answer in answers if answer.scores is not None]
    names = scored[0] if scored else ()
    means = {name: sum(scores[name] for scores in scored) / len(scored) for name in names}
    return ScoreMeans(means, len(scored), (len(answers) - len(scored)) / len(answers))


@dataclass(frozen=True)
class Duel:
    """Two systems' answers to an item and who won; None: unscored."""

    item_id: str
    system_a: str
    system_b: str
    verdict: Verdict | None

    @property
    def case(self) -> tuple[str, str, str]:
        """What was compared, whoever judged it."""
        return self.item_id, self.system_a, self.system_b


class Ties(StrEnum):
    """What a tie counts: the official script prints a table for each."""

    FORCED = "forced"  # a win of the side that it leans to
    LEFT_OUT = "left_out"  # the comparison does not count
    LOSS = "loss"  # the comparison counts, nobody wins
    HALF = "half"  # half a win for both


@dataclass(frozen=True)
class WinRate:
    """Wins as a share of the `duels` that count; `unscored`: share of those without a verdict."""

    rate: float
    duels: int
    unscored: float


def win_rates(duels: Sequence[Duel], ties: Ties = Ties.FORCED) -> dict[str, WinRate]:
    """System -> win rate, the best first; without those for which no comparison counts."""
    return _rates(duels, ties, lambda system, opponent: system)


def head_to_head(duels: Sequence[Duel], ties: Ties = Ties.FORCED) -> dict[tuple[str, str], WinRate]:
    """(system, opponent) -> win rate of the first, the best first.

    As in the official matrices, a tie that is left out of the overall rates counts here as a
    comparison that nobody won.
    """
    ties = Ties.LOSS if ties is Ties.LEFT_OUT else ties
    return _rates(duels, ties, lambda system, opponent: (system, opponent))


def _rates(duels: Sequence[Duel], ties: Ties, key: Callable[[str, str], Key]) -> dict[Key, WinRate]:
    points: dict[Key, list[float]] = defaultdict(list)
    asked: Counter[Key] = Counter()
    unscored: Counter[Key] = Counter()
    for duel in duels:
        systems = duel.system_a, duel.system_b
        for side, name in (("A", key(*systems)), ("B", key(*reversed(systems)))):
            asked[name] += 1
            unscored[name] += duel.verdict is None
            points[name] += _points(duel.verdict, side, ties)
    rates = {
        name: WinRate(sum(won) / len(won), len(won), unscored[name] / asked[name])
        for name, won in points.items()
        if won
    }
    return dict(sorted(rates.items(), key=lambda entry: entry[1].rate, reverse=True))


def _points(verdict: Verdict | None, side: str, ties: Ties) -> list[float]:
    """What a side gets for a comparison: one number, or none if the comparison does not count."""
    if verdict is None:
        return []
    if is_tie(verdict) and ties is not Ties.FORCED:
        return {Ties.LEFT_OUT: [], Ties.LOSS: [0.0], Ties.HALF: [0.5]}[ties]
    return [float(force_tie(verdict) == side)]


def is_tie(verdict: Verdict) -> bool:
    return verdict.startswith("Tie")


def force_tie(verdict: Verdict) -> str:
    """The side that won, or that a tie leans to: A or B."""
    return verdict.removeprefix("Tie(").removesuffix(")")


def agreement_labels(
    duels: Iterable[Duel], ties: Ties = Ties.FORCED
) -> dict[tuple[str, str, str], str | None]:
    """Case -> label, to be compared with another judge's; None: unscored.

    Ties forced (the published agreement), left out, or one label `Tie` (`Ties.HALF`, `Ties.LOSS`).
    """
    return {
        duel.case: _label(duel.verdict, ties)
        for duel in duels
        if not (ties is Ties.LEFT_OUT and duel.verdict is not None and is_tie(duel.verdict))
    }


def _label(verdict: Verdict | None, ties: Ties) -> str | None:
    if verdict is None:
        return None
    return "Tie" if is_tie(verdict) and ties is not Ties.FORCED else force_tie(verdict)


class _System(BaseModel):
    name: str
    id: str = ""


class _DuelRow(BaseModel):
    data_id: str
    system_a: _System = Field(alias="model_A")
    system_b: _System = Field(alias="model_B")
    winner: Verdict


class _Score(BaseModel):
    score: int | None = Field(alias="Score", ge=0, le=MAX_SCORE)


class _ScoreRow(BaseModel):
    # Scores of a folder of answers name the item `instance_id`, those of sampled pairs `data_id`.
    item_id: str = Field(validation_alias=AliasChoices("data_id", "instance_id"))
    model: _System
    score: dict[str, _Score] | None


def read_duels(path: Path, *, by_system_id: bool = False) -> list[Duel]:
    """An official file of verdicts, people's or a judge's; of a comparison twice, the last.

    Args:
        by_system_id: tell systems apart by id, as the official win rates do. In one official file
            two systems have the same id, so that two comparisons of 5,002 are lost that way.

    Raises:
        FoundryError: a missing or damaged file or an unknown verdict, in one line.
    """
    duels: dict[tuple[str, str, str], Duel] = {}
    for row in _rows(path, TypeAdapter(list[_DuelRow])):
        duel = Duel(row.data_id, row.system_a.name, row.system_b.name, row.winner)
        by_id = row.data_id, row.system_a.id, row.system_b.id
        duels[by_id if by_system_id else duel.case] = duel
    return list(duels.values())


def read_scores(path: Path) -> list[ScoredAnswer]:
    """An official file of absolute scores; an answer with a criterion missing is unscored.

    Answers that the file has twice are there twice, as the official means count them.

    Raises:
        FoundryError: a missing or damaged file, or a score outside 0..10, in one line.
    """
    return [
        ScoredAnswer(row.item_id, row.model.name, _complete(row.score))
        for row in _rows(path, TypeAdapter(list[_ScoreRow]))
    ]


def _complete(scores: Mapping[str, _Score] | None) -> dict[str, int] | None:
    found = {name: entry.score for name, entry in (scores or {}).items() if entry.score is not None}
    return found if found.keys() == CRITERIA.keys() else None


def _rows(path: Path, adapter: TypeAdapter[list[Content]]) -> list[Content]:
    try:
        return adapter.validate_json(path.read_bytes())
    except OSError as error:
        raise FoundryError(
            f"{path}: cannot be read ({error.strerror}); give a file of OpenING's Interleaved_Arena"
        ) from error
    except ValidationError as error:
        problem = first_problem(error, root="file")
        raise FoundryError(f"{path}: row {problem}; copy the official file again") from error
