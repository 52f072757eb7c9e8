"""The calls a journal knows to be finished: what a rerun need not, and must not, make again."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from pydantic import ValidationError

from schemas import FoundryError
from schemas.trajectories import ModelCallRow, Role
from warehouse import AnyJournal


class CallKey(NamedTuple):
    """Which call of which prompt, and a hash of everything its answer may depend on."""

    prompt_id: str
    step_number: int | None
    iteration: int | None
    role: Role
    request_hash: str


@dataclass(frozen=True)
class JournaledCall:
    """A journal line: one finished model call.

    With an `answer` it succeeded; `refused` it was answered for good, unusably. With neither it
    failed in a way that may pass, and a rerun makes it again.
    """

    call: ModelCallRow
    answer: dict[str, Any] | None = None
    refused: bool = False

    @property
    def key(self) -> CallKey:
        call = self.call
        return CallKey(
            call.prompt_id, call.step_number, call.iteration, call.role, call.request_hash
        )

    @property
    def settled(self) -> bool:
        return self.refused or self.answer is not None

    def record(self) -> dict[str, Any]:
        call = self.call.model_dump(mode="json")
        return {"call": call, "answer": self.answer, "refused": self.refused}


class CallIndex:
    """Journal lines by key. Lines of other settings have other keys and are never met."""

    def __init__(self) -> None:
        self._settled: dict[CallKey, JournaledCall] = {}
        self._lines: dict[CallKey, int] = {}
        self._ledger: dict[str, ModelCallRow] = {}

    @classmethod
    def read(cls, journal: AnyJournal) -> "CallIndex":
        """Index a journal's lines.

        Raises:
            FoundryError: a line is not of this version's making.
        """
        finished = cls()
        for line in _parsed(journal):
            finished.add(line)
        return finished

    def add(self, line: JournaledCall) -> None:
        self._lines[line.key] = self.rounds(line.key) + 1
        self._ledger[line.call.call_id] = line.call
        if line.settled:
            self._settled[line.key] = line

    def find(self, key: CallKey) -> JournaledCall | None:
        return self._settled.get(key)

    def rounds(self, key: CallKey) -> int:
        """How often the call was journaled before; more than 0 without an answer: it failed."""
        return self._lines.get(key, 0)

    def ledger(self) -> list[ModelCallRow]:
        return list(self._ledger.values())


def _parsed(journal: AnyJournal) -> Iterator[JournaledCall]:
    for number, record in enumerate(journal.records(), start=1):
        try:
            call = ModelCallRow.model_validate(record["call"])
            yield JournaledCall(call, record["answer"], record["refused"])
        except (KeyError, ValidationError) as error:
            raise FoundryError(
                f"{journal.path}:{number}: not a model call as this version writes it; move the "
                "file away to make its calls anew"
            ) from error
