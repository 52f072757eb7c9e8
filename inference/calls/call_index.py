"""The finished calls of a journal: those that a rerun must not make again."""

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from pydantic import BaseModel, ValidationError

from schemas import FoundryError
from schemas.trajectories import ModelCallRow, Role
from warehouse import AnyJournal

from .hashing import stable_hash


class CallKey(NamedTuple):
    """Prompt, step, iteration and role of a call, and a hash of all that its answer depends on."""

    prompt_id: str
    step_number: int | None
    iteration: int | None
    role: Role
    request_hash: str


def call_id(asset: str, shard: str, key: CallKey, earlier: int) -> str:
    """Id of a call. `shard`: that of its journal; `earlier`: calls with this key before it."""
    return stable_hash(asset, shard, *key, earlier)


class JournaledCall(BaseModel, frozen=True):
    """A journal line: one finished model call, or a request that is about to be sent.

    It succeeded (`answer`) or failed for good (`refused`: the answer was unusable). With neither
    it failed in a way that may pass, and a rerun makes it again. A line that is not `finished` is
    followed by one that is, unless the process was killed: then it is the call's row in the ledger,
    if `resumable` until the call is made again.
    """

    call: ModelCallRow
    answer: dict[str, Any] | None
    refused: bool
    finished: bool = True
    resumable: bool = False

    @property
    def key(self) -> CallKey:
        return CallKey(*(getattr(self.call, field) for field in CallKey._fields))


@dataclass
class CallIndex:
    """Journal lines by key. Lines of other settings have other keys and are never found."""

    final: dict[CallKey, JournaledCall] = field(default_factory=dict)
    counts: Counter[CallKey] = field(default_factory=Counter)  # of calls, failed ones too
    _ledger: dict[str, ModelCallRow] = field(default_factory=dict)
    _sent: dict[CallKey, JournaledCall] = field(default_factory=dict)

    @classmethod
    def read(cls, journal: AnyJournal, prompts: Collection[str] | None = None) -> "CallIndex":
        """Index a journal, or its calls for some prompts.

        Raises FoundryError: a line is not as this version writes it.
        """
        index = cls()
        for number, record in enumerate(journal.records(), start=1):
            try:
                line = JournaledCall.model_validate(record)
                if prompts is None or line.call.prompt_id in prompts:
                    index.add(line)
            except ValidationError as error:
                raise FoundryError(
                    f"{journal.path}:{number}: not a model call as this version writes it; move "
                    "the file away to make its calls again"
                ) from error
        index._end_cut_off()
        return index

    def add(self, line: JournaledCall) -> None:
        sent = self._sent.pop(line.key, None)
        if sent and sent.call.call_id != line.call.call_id:
            self._end(sent)  # its process was killed, and the call made again
        if not line.finished:
            self._sent[line.key] = line
            return
        self._end(line)
        if line.refused or line.answer is not None:
            self.final[line.key] = line

    def _end_cut_off(self) -> None:
        """Take the requests whose process was killed into the ledger."""
        for line in self._sent.values():
            self._end(line)
        self._sent.clear()

    def _end(self, line: JournaledCall) -> None:
        self.counts[line.key] += line.finished or not line.resumable
        self._ledger[line.call.call_id] = line.call

    def ledger(self) -> list[ModelCallRow]:
        return list(self._ledger.values())
