"""Reads responses that older homes stored: the Response as JSON, instead of a log of events.

Its field `interleave` says what happened at each step, from which the log follows; see
`dump_events` for its format. Model calls have only what it knows of them; the ledger has the rest.
"""

from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import Any

import orjson

from ..calls.hashing import stable_hash
from .request_parsing import Json, RequestEcho
from .responses.response_builder import RESUME_HINT

_REQUEST_FIELDS = (
    *("background", "created_at", "instructions", "metadata", "model", "previous_response_id"),
    "store",
)


def convert_response(response: Mapping[str, Any]) -> tuple[RequestEcho, str, bytes]:
    """A stored Response as the fields `request`, `status` and `events` of `StoredResponse`."""
    record = response["interleave"]
    fields = {name: response[name] for name in _REQUEST_FIELDS if name in response}
    request = RequestEcho(
        record["generation_id"], record["text"], record["given"], record["rules"], fields
    )
    events = _events(record, response.get("usage") or {})
    return request, record["status"], b"".join(orjson.dumps(event) + b"\n" for event in events)


def _events(record: Json, usage: Json) -> Iterator[Json]:
    if record["versions"]:
        yield {"event": "RunStarted", "versions": record["versions"]}
    if record["steps"]:
        steps = [_plan_step(step) for step in record["steps"]]
        plan = {"steps": steps, "reasoning": record["reasoning"]}
        # The tokens of all calls, of which only the sum was stored.
        tokens = {name: usage.get(name) for name in ("input_tokens", "output_tokens")}
        yield {"event": "PlanReady", "plan": plan, "call": _call(record, "planner", **tokens)}
    source = record["given"][-1] if record["given"] else None
    for step in record["steps"]:
        if step["begun"]:
            yield from _step_events(record, step, source)
            source = step["picture"] or source
    yield from _ending(record["status"], record["error"] or "", record["wasted_draws"])


def _step_events(record: Json, step: Json, source: str | None) -> Iterator[Json]:
    plan_step = _plan_step(step)
    yield {"event": "StepStarted", "step": plan_step}
    if step["prompt"] is None:
        yield {"event": "TextEmitted", "step": plan_step, "text": step["words"]}
        return
    judged: dict[int, Json] = {}
    # All candidates of a prompt were generated before the first was judged.
    candidates = record["rules"].get("candidates", 1)
    for _, group in groupby(step["attempts"], lambda each: each["iteration"] // candidates):
        attempts = {each["iteration"]: each for each in group}
        draws = {n: _draw(record, plan_step, each, source) for n, each in attempts.items()}
        yield from ({"event": "ImageGenerated", **draw} for draw in draws.values())
        for n, attempt in attempts.items():
            if attempt["accepted"] is not None:
                verdict = {key: attempt[key] for key in ("accepted", "refined_prompt", "reasoning")}
                call = _call(record, "critic", step["number"], n)
                judged[n] = {"draw": draws[n], "verdict": verdict, "call": call}
                yield {"event": "AttemptJudged", **judged[n]}
    if step["accepted"] is not None:
        chosen = judged.get(step["iteration"])
        kind = "StepAccepted" if chosen and step["accepted"] else "StepExhausted"
        yield {"event": kind, "step": plan_step, "chosen": chosen}


def _ending(status: str, error: str, wasted_draws: int) -> Iterator[Json]:
    if status in ("cancelled", "interrupted"):
        reason = error.removesuffix(RESUME_HINT)
        ending = {"status": status, "reason": reason, "resumable": reason != error}
        yield {"event": "RunTerminated", **ending}
    elif status in ("refused", "failed"):
        yield {"event": "TrajectoryFailed", "reason": error, "refused": status == "refused"}
    elif status not in ("queued", "in_progress"):
        yield {"event": "TrajectoryFinished", "status": status, "wasted_draws": wasted_draws}


def _plan_step(step: Json) -> Json:
    text, prompt = step["words"] or None, step["prompt"]
    return {
        "step_number": step["number"],
        "step_name": step["name"],
        "instruction": None if prompt is None else text,
        "prompt": prompt,
        "auxiliary_text": text if prompt is None else None,
    }


def _draw(record: Json, plan_step: Json, attempt: Json, source: str | None) -> Json:
    iteration, seconds = attempt["iteration"], attempt["seconds"]
    return {
        "step": plan_step,
        "iteration": iteration,
        "prompt": attempt["prompt"],
        "seed": attempt["seed"],
        "source": source,
        "image": attempt["picture"],
        "call": _call(record, "generator", plan_step["step_number"], iteration, seconds=seconds),
    }


def _call(
    record: Json, role: str, step: int | None = None, iteration: int | None = None, **known: Any
) -> Json:
    generation_id = record["generation_id"]
    backend, _, model = record["versions"].get(role, "").partition("/")
    return {
        "call_id": stable_hash("legacy", generation_id, role, step, iteration),
        "asset": "generations",
        "shard": generation_id,
        "prompt_id": stable_hash("request", record["text"], record["given"]),
        "step_number": step,
        "iteration": iteration,
        "role": role,
        "backend": backend,
        "model": model,
        "request_hash": "",
        "input_tokens": None,
        "output_tokens": None,
        "images": 0,
        "seconds": 0.0,
        "cost_usd": None,
        "cached": True,
        "retries": 0,
        "error": None,
        "started_at": "1970-01-01T00:00:00Z",
        **known,
    }
