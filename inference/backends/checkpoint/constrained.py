"""Answers that have the form of a plan or a verdict, whatever a model has learned.

Where the form leaves no choice its tokens are forced; between alternatives, such as `true` and
`false`, the likelier next token decides; free texts are the model's own, up to a length, without
what would end them. So an untrained model can be measured: what it gets wrong is its judgement.
"""

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from ...agent_prompts.formatting import PLAN_KEY, REFINE_KEY, SUCCESS_KEY
from .decoding import Sampler

if TYPE_CHECKING:
    import torch

FORM_TOKENS = 1536
"""Tokens of the longest answer of a form; fewer would cut a plan off."""
FormName = Literal["planner", "critic"]
# Yields the tokens that may come next, and is sent the one that was chosen.
Form = Generator[np.ndarray, int, None]
_MOST_STEPS = 6
_THOUGHT, _TEXT = 48, 24  # tokens of a free text, at most
_TEXTS = ("step_name", "instruction", "prompt", "auxiliary_text")
# Would end a JSON string or a tag, or is part of a character.
_FORBIDDEN = frozenset('"\\<>{}\ufffd')


@dataclass(frozen=True)
class Forms:
    """The forms in the tokens of a model. `free`: tokens that a free text may have."""

    encode: Callable[[str], list[int]]
    free: tuple[int, ...]

    @classmethod
    def of(cls, tokenizer: Any) -> "Forms":
        added = {*tokenizer.all_special_ids, *tokenizer.added_tokens_decoder}
        texts = {token: tokenizer.decode([token]) for token in range(len(tokenizer))}
        free = (t for t, text in texts.items() if t not in added and _is_free(text))

        def encode(text: str) -> list[int]:
            return list(tokenizer.encode(text, add_special_tokens=False))

        return cls(encode, tuple(free))

    def open(self, name: FormName) -> Form:
        """A new answer of a form."""
        return self._plan() if name == "planner" else self._verdict()

    def _verdict(self) -> Form:
        """See `formatting.critic_answer`."""
        yield from self._forced("<think>")
        yield from self._free(_THOUGHT, f'</think>\n<answer>{{"{SUCCESS_KEY}":')
        # With the space, which is part of the token in a text that nobody has cut.
        if (yield from self._either(" true", " false")) == " true":
            yield from self._forced(f', "{REFINE_KEY}": ""}}</answer>')
        else:
            yield from self._forced(f', "{REFINE_KEY}": "')
            yield from self._free(_TEXT, '"}</answer>')

    def _plan(self) -> Form:
        """See `formatting.planner_answer`."""
        yield from self._forced("<think>")
        yield from self._free(_THOUGHT, f'</think>\n<answer>{{"{PLAN_KEY}": [')
        for number in range(1, _MOST_STEPS + 1):
            yield from self._forced(f'{{"step_number": {number}, "{_TEXTS[0]}": "')
            for following in _TEXTS[1:]:
                yield from self._free(_TEXT, f'", "{following}": "')
            yield from self._free(_TEXT, '"}')
            if number < _MOST_STEPS and (yield from self._either(", ", "]")) == "]":
                break
        else:
            yield from self._forced("]")
        yield from self._forced("}</answer>")

    def _forced(self, text: str) -> Form:
        for token in self.encode(text):
            yield np.array([token])

    def _either(self, *texts: str) -> Generator[np.ndarray, int, str]:
        """One of several texts, chosen where their tokens part."""
        remaining = {text: self.encode(text) for text in texts}
        place = 0
        while any(len(tokens) > place for tokens in remaining.values()):
            chosen = yield np.array(sorted({tokens[place] for tokens in remaining.values()}))
            remaining = {text: t for text, t in remaining.items() if t[place] == chosen}
            place += 1
        return next(iter(remaining))

    def _free(self, most: int, following: str) -> Form:
        """One to so many tokens, until the model prefers the text that follows; then that."""
        first, *rest = self.encode(following)
        free = np.array(self.free)
        chosen = yield free
        for _ in range(most - 1):
            chosen = yield np.append(free, first)
            if chosen == first:
                break
        if chosen != first:
            yield np.array([first])
        for token in rest:
            yield np.array([token])


class FormSampler(Sampler):
    """Chooses the likeliest token that a row's form allows; after the form, the stop token."""

    def __init__(self, forms: Sequence[Form], stop: int) -> None:
        self._forms, self._stop = forms, stop
        # Tokens that may come next; None: the form has ended.
        self._allowed: list[np.ndarray | None] = [next(form) for form in forms]

    def choose(self, logits: "torch.Tensor") -> "torch.Tensor":
        import torch

        scores = logits.float().cpu().numpy()
        tokens = [self._choose(row, own) for row, own in enumerate(scores)]
        return torch.tensor(tokens, device=logits.device)

    def _choose(self, row: int, scores: np.ndarray) -> int:
        allowed = self._allowed[row]
        if allowed is None:
            return self._stop
        token = int(allowed[scores[allowed].argmax()])
        try:
            self._allowed[row] = self._forms[row].send(token)
        except StopIteration:
            self._allowed[row] = None
        return token


def _is_free(text: str) -> bool:
    return text.isprintable() and bool(text) and not _FORBIDDEN & set(text)
