"""What the model calls of a generation used: tokens and images, in total and by role."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from schemas.trajectories import ModelCallRow

from ..request_parsing import Json

_AGENTS = ("planner", "critic")


@dataclass
class Usage:
    """The calls so far. `input_images`: how many the request has."""

    input_images: int = 0
    calls: list[ModelCallRow] = field(default_factory=list)

    @property
    def last_call_ended_at(self) -> float:
        """Seconds since 1970; 0: there is no call."""
        return max((call.started_at.timestamp() + call.seconds for call in self.calls), default=0.0)

    def responses(self) -> Json | None:
        """The field `usage` of a Response: tokens of planner and critic; None: no call yet.

        A call whose backend counts no tokens adds none, see `by_role`.
        """
        if not self.calls:
            return None
        tokens_in, tokens_out, images = self._totals()
        return {
            "input_tokens": tokens_in,
            "input_tokens_details": {
                "cache_write_tokens": 0,
                "cached_tokens": 0,
                "images": self.input_images,
            },
            "output_tokens": tokens_out,
            "output_tokens_details": {"reasoning_tokens": 0, "images": images},
            "total_tokens": tokens_in + tokens_out,
        }

    def chat(self) -> Json | None:
        """The field `usage` of a chat completion, likewise."""
        if not self.calls:
            return None
        tokens_in, tokens_out, images = self._totals()
        return {
            "completion_tokens": tokens_out,
            "prompt_tokens": tokens_in,
            "total_tokens": tokens_in + tokens_out,
            "completion_tokens_details": {"reasoning_tokens": 0, "images": images},
            "prompt_tokens_details": {"cached_tokens": 0, "images": self.input_images},
        }

    def image(self) -> Json | None:
        """The field `usage` of the Images API, likewise; what tokens stand for is not counted."""
        if not self.calls:
            return None
        tokens_in, tokens_out, _ = self._totals()
        return {
            "input_tokens": tokens_in,
            "input_tokens_details": {"image_tokens": 0, "text_tokens": tokens_in},
            "output_tokens": tokens_out,
            "total_tokens": tokens_in + tokens_out,
        }

    def by_role(self) -> Json:
        """Calls and tokens of each role; null: its backend counts no tokens."""
        roles = dict.fromkeys(call.role for call in self.calls)
        return {role: _count([call for call in self.calls if call.role == role]) for role in roles}

    def _totals(self) -> tuple[int, int, int]:
        """Input and output tokens of the agents, and images that were generated."""
        agents = [call for call in self.calls if call.role in _AGENTS]
        images = sum(call.role == "generator" for call in self.calls)
        return (
            sum(call.input_tokens or 0 for call in agents),
            sum(call.output_tokens or 0 for call in agents),
            images,
        )


def _count(calls: Sequence[ModelCallRow]) -> Json:
    return {
        "calls": len(calls),
        "input_tokens": _sum([call.input_tokens for call in calls]),
        "output_tokens": _sum([call.output_tokens for call in calls]),
    }


def _sum(tokens: Sequence[int | None]) -> int | None:
    known = [each for each in tokens if each is not None]
    return sum(known) if known else None
