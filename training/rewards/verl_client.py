"""The reward function that verl loads by path; a client of the training run's reward service.

A standalone file for the trainer's environment: it needs only the standard library and aiohttp,
which comes with Ray. An exception would fail the rollout's group in verl, which also expects the
same keys for every sample: any error gives the same numbers, with `masked` 1.

Of verl 0.9 it uses `solution_str`, decoded without special tokens, `ground_truth` and `extra_info`
of the Parquet row, and `extra_info["global_steps"]`, which the rollout server adds: the number of
updates before the weights that wrote the answer. `extra_info["split"]` is `dev` in rows that are
not trained on.

An agent loop that plays episodes asks `next_turn` between the policy's answers, and itself for the
reward of all of them.
"""

import asyncio
import json
import logging
from base64 import b64decode
from pathlib import Path
from typing import Any

import aiohttp

_LOG = logging.getLogger(__name__)
_TIMEOUT_SECONDS = 3600.0  # longer than a long queue; the service limits each drawing
_TRIES = 3
_STATE = ("origin_prompt", "rewritten_prompt", "origin_image")
_TRUTH = ("success", "semantics", "quality")


async def compute_score(
    data_source: str,
    solution_str: str,
    ground_truth: dict[str, Any],
    extra_info: dict[str, Any] | None = None,
    address: str = "",
    **_: Any,
) -> dict[str, float]:
    """The reward of one answer and its parts, as numbers; `masked` 1: leave it out of its group.

    Args:
        address: file with URL and token of the reward service.
    """
    return await reward_episode([solution_str], ground_truth, extra_info or {}, address)


async def reward_episode(
    answers: list[str], ground_truth: dict[str, Any], extra_info: dict[str, Any], address: str
) -> dict[str, float]:
    """As `compute_score`, for all answers of an episode, the first one to the row."""
    try:
        request = _request(answers, ground_truth, extra_info)
        return _numbers(await _post_with_retries("/reward", request, address))
    except Exception as error:
        _LOG.warning("no reward, the rollout is masked: %s: %s", type(error).__name__, error)
        return _numbers({"status": "masked"})


async def next_turn(
    answers: list[str], ground_truth: dict[str, Any], extra_info: dict[str, Any], address: str
) -> tuple[str, list[bytes]]:
    """The next question of an episode, with encoded images for its `<image>`; empty: it is over,
    or an error, which masks it, since its reward lacks an answer then."""
    try:
        request = _request(answers, ground_truth, extra_info)
        turn = await _post_with_retries("/turn", request, address)
        return turn["prompt"], [b64decode(image) for image in turn["images"]]
    except Exception as error:
        _LOG.warning("an episode ends: %s: %s", type(error).__name__, error)
        return "", []


def _request(
    answers: list[str], ground_truth: dict[str, Any], extra_info: dict[str, Any]
) -> dict[str, Any]:
    dev = extra_info.get("split") == "dev"
    return {
        "step": int(extra_info.get("global_steps") or 0) + (not dev),
        "dev": dev,
        "row_id": extra_info["row_id"],
        "response": answers[0],
        "state": _state(ground_truth, extra_info, answers[1:]),
    }


def _state(
    ground_truth: dict[str, Any], extra_info: dict[str, Any], later: list[str]
) -> dict[str, Any]:
    """Of a row for the planner, which has the request, or for the critic."""
    if "request" in ground_truth:
        request, images = ground_truth["request"], list(extra_info["images"])
        return {"request": request, "images": images, "later": later}
    truth = {name: float(ground_truth[name]) for name in _TRUTH}
    evaluation = truth | {"success": bool(ground_truth["success"])}
    shown = {name: extra_info[name] for name in _STATE}
    return {**shown, "evaluation": evaluation, "later": later}


async def _post_with_retries(path: str, request: dict[str, Any], address: str) -> dict[str, Any]:
    server = json.loads(Path(address).read_bytes())
    for _ in range(_TRIES - 1):
        try:
            return await _post(path, request, server)
        except aiohttp.ClientConnectorError:  # it did not arrive, so that no rollout counts twice
            await asyncio.sleep(1)
    return await _post(path, request, server)


async def _post(path: str, request: dict[str, Any], server: dict[str, str]) -> dict[str, Any]:
    headers = {"Authorization": f"Bearer {server['token']}"}
    timeout = aiohttp.ClientTimeout(total=_TIMEOUT_SECONDS)
    async with (
        aiohttp.ClientSession(timeout=timeout, headers=headers) as session,
        session.post(server["url"] + path, json=request) as response,
    ):
        if response.status != 200:
            raise ValueError(f"HTTP {response.status}: {(await response.text())[:200]}")
        answer: dict[str, Any] = await response.json()
        return answer


def _numbers(answer: dict[str, Any]) -> dict[str, float]:
    return {
        "score": float(answer.get("reward") or 0),
        "masked": float(answer["status"] == "masked"),
        "malformed": float(answer["status"] == "malformed"),
        "format_reward": float(answer.get("format") or 0),
        "accuracy_reward": float(answer.get("accuracy") or 0),
        "step_reward": float(answer.get("step_reward") or 0),
        "reward_seconds": float(answer.get("seconds") or 0),
    }
