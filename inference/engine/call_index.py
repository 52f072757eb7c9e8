"""The finished calls of a journal: those that a rerun must not make again."""

from typing import Any, NamedTuple

from pydantic import BaseModel, ValidationError

from schemas import FoundryError
from schemas.trajectories import ModelCallRow, Role
from warehouse import AnyJournal


class CallKey(NamedTuple):
    """Prompt, step, iteration and role of a call, and a hash of all that its answer depends on."""

    prompt_id: str
    step_number: int | None
    iteration: int | None
    role: Role
    request_hash: str


class JournaledCall(BaseModel, frozen=True):
    """A journal line: one finished model call.

    It succeeded (`answer`) or failed for good (`refused`: the answer was unusable). With neither
    it failed in a way that may pass, and a rerun makes it again.
    """

    call: ModelCallRow
    answer: dict[str, Any] | None
    refused: bool

    @property
    def key(self) -> CallKey:
        return CallKey(*(getattr(self.call, field) for field in CallKey._fields))


class CallIndex:
    """Journal lines by key. Lines of other settings have other keys and are never found."""

    def __init__(self) -> None:
        self._final: dict[CallKey, JournaledCall] = {}
        self._counts: dict[CallKey, int] = {}
        self._ledger: dict[str, ModelCallRow] = {}

    @classmethod
    def read(cls, journal: AnyJournal) -> "CallIndex":
        """Index a journal's lines.

        Raises:
            FoundryError: a line is not a model call as this version writes it.
        """
        index = cls()
        for number, record in enumerate(journal.records(), start=1):
            try:
                index.add(JournaledCall.model_validate(record))
            except ValidationError as error:
                raise FoundryError(
                    f"{journal.path}:{number}: not a model call as this version writes it; move "
                    "the file away to make its calls again"
                ) from error
        return index

    def add(self, line: JournaledCall) -> None:
        self._counts[line.key] = self.count(line.key) + 1
        self._ledger[line.call.call_id] = line.call
        if line.refused or line.answer is not None:
            self._final[line.key] = line

    def find(self, key: CallKey) -> JournaledCall | None:
        return self._final.get(key)

    def count(self, key: CallKey) -> int:
        """Lines of this call; more than 0 where `find` has nothing: it failed before."""
        return self._counts.get(key, 0)

    def ledger(self) -> list[ModelCallRow]:
        return list(self._ledger.values())
