"""A generation's Response at any moment, as JSON; the field `interleave` is ours."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from schemas.trajectories import ModelCallRow

from ...events import (
    AttemptJudged,
    ImageGenerated,
    PlanReady,
    RunEvent,
    RunStarted,
    RunTerminated,
    TrajectoryFailed,
    TrajectoryFinished,
)
from ...generation.trajectory_view import AttemptView, StepView, TrajectoryView
from ...roles import PlanStep, RequestScope, Verdict
from ..accepted_values import ImageTool
from ..request_parsing import Json
from ..response_store import StoredResponse

_RESUME_HINT = "; send it again under the same Idempotency-Key to go on"

_AGENTS = ("planner", "critic")
# Status of a generation -> the API's.
_STATUS = {
    "queued": "queued",
    "in_progress": "in_progress",
    "complete": "completed",
    "exhausted": "completed",
    "stopped": "incomplete",
    "cancelled": "cancelled",
    "refused": "failed",
    "failed": "failed",
    "interrupted": "failed",
}


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


class ResponseBuilder:
    """The listener that keeps a Response up to date.

    Attributes:
        status: of the generation, as in the table `generations`, or `queued` or `in_progress`.
        error: why there is no sequence; empty: there is no error.
        wasted_draws: images that were generated ahead and not needed.
        usage: of its model calls.
        queue: where it waits, see `RequestManager.queue_place`.
    """

    def __init__(self, stored: StoredResponse) -> None:
        self.stored, self.state = stored, TrajectoryView(stored.request.text)
        self.status, self.error = "queued", ""
        self._versions: dict[str, str] = {}
        self.wasted_draws = 0
        self.image_tool = ImageTool.of(stored.fields)
        self.usage = Usage(len(stored.request.images))
        self.queue: Json | None = None

    def note(self, event: RunEvent) -> None:
        match event:
            case RunStarted(versions=versions):
                self._versions, self.status = versions, "in_progress"
            case RunTerminated(status=status, reason=reason, resumable=resumable):
                self.status, self.error = status, reason + (_RESUME_HINT if resumable else "")
            case PlanReady(call=call) | ImageGenerated(call=call) | AttemptJudged(call=call):
                self.usage.calls.append(call)
            case TrajectoryFinished(status=status, wasted_draws=wasted_draws):
                self.status, self.wasted_draws = status, wasted_draws
            case TrajectoryFailed(reason=reason, refused=refused):
                self.status, self.error = "refused" if refused else "failed", reason
        self.state.note(event)

    def response(self, with_images: bool = False) -> Json:
        """The Response so far; `with_images`: with the chosen images, in base64."""
        status = _STATUS[self.status]
        code = "invalid_prompt" if self.status == "refused" else "server_error"
        repeated = {name: value for name, value in self.stored.fields.items() if name != "input"}
        return {
            "tool_choice": "auto",
            "tools": [],
            **repeated,
            "id": self.stored.id,
            "created_at": self.stored.created_at,
            "error": {"code": code, "message": self.error} if status == "failed" else None,
            # None of the API's reasons fits: all attempts at a step were rejected.
            "incomplete_details": {"reason": None} if status == "incomplete" else None,
            "object": "response",
            "output": self._output(with_images),
            "parallel_tool_calls": False,
            "status": status,
            "completed_at": self._completed_at,
            "usage": self.usage.responses(),
            "interleave": self.interleave(),
        }

    def interleave(self) -> Json:
        """The field `interleave`: planned steps, attempts and verdicts; see `GenerationModel`."""
        plan = self.state.plan
        states = {each.step.step_number: each for each in self.state.steps}
        steps = plan.steps if plan else ()
        return {
            "generation_id": self.stored.request.generation_id,
            "status": self.status,
            "error": self.error or None,
            "queue": self.queue,
            "versions": self._versions,
            "options": self.stored.request.options.model_dump(),
            "completed_at": self._completed_at,
            "wasted_draws": self.wasted_draws,
            "text": self.stored.request.text,
            "input_images": self.stored.input_images,
            "simulation": _simulation(self.state.scope),
            "reasoning": plan.reasoning if plan else "",
            "usage": self.usage.by_role(),
            "steps": [_step(step, states.get(step.step_number)) for step in steps],
        }

    def message_item(self, step: StepView) -> Json:
        """The output item of a step's text; clients join all texts without a separator."""
        separator = "" if self._ends_with_text(step) else "\n\n"
        return self._message(str(step.step.step_number), step.text + separator)

    def closing_item(self) -> Json | None:
        """The last output item of a sequence that ends with an image."""
        text = closing_text(self.state)
        return self._message("end", text) if text else None

    def image_item(self, step: StepView, with_image: bool = False) -> Json:
        """The output item of a step's image."""
        if step.finished or self.state.ending:
            status = "completed" if step.chosen else "failed"
        else:
            status = "generating" if step.attempts else "in_progress"
        chosen = step.chosen
        return {
            "id": f"ig_{self.stored.request.generation_id}_{step.step.step_number}",
            "result": self.image_tool.encode(chosen.image) if with_image and chosen else None,
            "status": status,
            "type": "image_generation_call",
            "revised_prompt": chosen.prompt if chosen else None,
        }

    @property
    def _completed_at(self) -> float | None:
        """When its last model call ended."""
        completed = _STATUS[self.status] == "completed"
        return float(int(self.usage.last_call_ended_at)) if completed else None

    def _ends_with_text(self, step: StepView) -> bool:
        plan = self.state.plan
        return step.step.prompt is None and plan is not None and step.step == plan.steps[-1]

    def _message(self, name: str, text: str) -> Json:
        return {
            "id": f"msg_{self.stored.request.generation_id}_{name}",
            "content": [text_part(text)],
            "role": "assistant",
            "status": "completed",
            "type": "message",
        }

    def _output(self, with_images: bool) -> list[Json]:
        items: list[Json] = []
        for step in self.state.steps:
            if step.text:
                items.append(self.message_item(step))
            if step.step.prompt is not None:
                items.append(self.image_item(step, with_images))
        closing = self.closing_item()
        return [*items, closing] if closing else items


def text_part(text: str) -> Json:
    """Text as the content of a message."""
    return {"annotations": [], "text": text, "type": "output_text"}


def _simulation(scope: RequestScope | None) -> Json | None:
    """What a demo world says; None: an image model draws, or it is not known yet."""
    if scope is None:
        return None
    said = {name: list(getattr(scope, name)) for name in ("not_drawn", "remarks", "suggestions")}
    return {"notice": scope.notice, "refusal": scope.refusal, **said}


def _step(step: PlanStep, state: StepView | None) -> Json:
    state = state or StepView(step)
    chosen = state.chosen
    without_choice = False if state.finished and step.prompt is not None else None
    return {
        "number": step.step_number,
        "name": step.step_name,
        "text": state.text,
        "prompt": step.prompt,
        "started": state.finished or bool(state.attempts),
        "image": chosen.image.sha256 if chosen else None,
        "iteration": chosen.iteration if chosen else None,
        "accepted": chosen.accepted if chosen and chosen.verdict else without_choice,
        "attempts": [
            draw_fields(attempt) | verdict_fields(attempt.verdict) for attempt in state.attempts
        ],
    }


def draw_fields(attempt: AttemptView) -> Json:
    """An attempt's fields that are known once its image is generated."""
    return {
        "iteration": attempt.iteration,
        "prompt": attempt.prompt,
        "seed": attempt.seed,
        "image": attempt.image.sha256,
        "seconds": attempt.seconds,
    }


def verdict_fields(verdict: Verdict | None) -> Json:
    """The other fields of an attempt."""
    names = ("accepted", "reasoning", "refined_prompt")
    return {name: getattr(verdict, name, None) for name in names}


def closing_text(state: TrajectoryView) -> str:
    """What follows the last image of a sequence; empty: it ends with text, or with an error."""
    if not isinstance(state.ending, TrajectoryFinished) or not state.steps:
        return ""
    last = state.steps[-1]
    if last.step.prompt is None:
        return ""
    if last.chosen is None:
        return f"Stopped at step {last.step.step_number}: the critic rejected every attempt."
    images = len(state.images)
    done = "Done: 1 picture." if images == 1 else f"Done: {images} pictures."
    return " ".join([done, *map(_remark, filter(_is_rejected, state.steps))])


def _is_rejected(step: StepView) -> bool:
    chosen = step.chosen
    return bool(chosen and chosen.verdict and not chosen.verdict.accepted)


def _remark(step: StepView) -> str:
    return f"The critic rejected every attempt at step {step.step.step_number}; it shows one."


def _count(calls: Sequence[ModelCallRow]) -> Json:
    return {
        "calls": len(calls),
        "input_tokens": _sum([call.input_tokens for call in calls]),
        "output_tokens": _sum([call.output_tokens for call in calls]),
    }


def _sum(tokens: Sequence[int | None]) -> int | None:
    known = [each for each in tokens if each is not None]
    return sum(known) if known else None
