"""Reviews in the studio: attempts that a person has not judged yet, and what the person says."""

import asyncio
import secrets
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Annotated, Any, Literal, Self, TypeVar

from fastapi import APIRouter, Path, Query, Request, Response
from pydantic import BaseModel, Field, model_validator

from schemas import Table
from schemas.prompts import PROMPTS
from schemas.trajectories import (
    ATTEMPT_KEY,
    ATTEMPTS,
    BRANCH_ATTEMPTS,
    PLANS,
    REVIEWS,
    TRAJECTORIES,
    AttemptRow,
    ReviewKind,
    ReviewRow,
)
from warehouse import Home

from ...http.body_reader import BodyReader
from ...http.errors import APIError, RequestModel, bad_request, not_found
from ...review_log import USER_REQUESTS, add_review, current_reviews
from ..openapi import IMAGE_FILE, describe_body
from .router import Sha256, image_response

_NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,199}$"
_READERS = 4  # reads of the lake at the same time
_SHARDS_PER_PAGE = 100
_ITEMS_PER_PAGE = 20
_OF_ATTEMPT = (*ATTEMPT_KEY, "shard", "prompt_id", "image", "critic")  # columns of a review as well

T = TypeVar("T")
_Row = dict[str, Any]
AttemptKey = tuple[str, int, int]  # trajectory, step, iteration
ShardName = Annotated[str, Path(pattern=_NAME)]
Reviewer = Annotated[str, Query(min_length=1, max_length=100, pattern=r"\S")]


class ReviewedShard(BaseModel):
    """A shard, and how much of it was reviewed."""

    shard: str
    attempts: int = Field(description="Attempts that it has")
    reviewed: int = Field(description="Attempts on which somebody gave a verdict")
    own: int = Field(description="Attempts on which this reviewer gave a verdict")


class ReviewedShardList(BaseModel):
    """A page of shards, in the order of their names."""

    shards: list[ReviewedShard]
    next_offset: int | None = Field(description="Offset of the next page; null: there is none")


class ReviewItem(AttemptRow):
    """An attempt to review, with what its reviewer has to know of its request and its step."""

    request: str = Field(description="What was requested")
    step_name: str
    instruction: str | None = Field(description="What the step does; null: only its prompt says it")
    goal: str = Field(description="The plan's prompt of the step")
    before: str | None = Field(description="sha256 of the image before; null: none, a white canvas")
    earlier: AttemptRow | None = Field(description="The attempt before, of the step; null: none")


class ReviewQueue(BaseModel):
    """Attempts without a verdict of this reviewer, in a fixed order."""

    items: list[ReviewItem]
    remaining: int = Field(description="How many there are, these and later ones")
    after: str | None = Field(description="Position of the last of these; null: none follows it")


class ReviewRequest(RequestModel):
    """What a person says of an attempt."""

    shard: str = Field(pattern=_NAME)
    trajectory_id: str = Field(max_length=200)
    step_number: int
    iteration: int
    image: str = Field(description="sha256 of the image that was shown")
    reviewer: str = Field(min_length=1, max_length=100, pattern=r"\S")
    kind: ReviewKind
    agrees: bool | None = Field(None, description="verdict: with the critic")
    better: Literal["earlier", "this"] | None = Field(
        None, description="preference: the attempt before, or this one"
    )
    prompt: str | None = Field(
        None,
        max_length=8000,
        pattern=r"\S",
        description="prompt: what the next image should be made with",
    )

    @model_validator(mode="after")
    def _has_opinion(self) -> Self:
        field = {"verdict": "agrees", "preference": "better", "prompt": "prompt"}[self.kind]
        if getattr(self, field) is None:
            raise ValueError(f"a {self.kind} needs {field}")
        return self


def review_router(home: Home, bodies: BodyReader) -> APIRouter:
    """The routes. The lake is read in threads, few at a time; reviews are written one by one."""
    router = APIRouter(prefix="/studio/reviews", tags=["studio"])
    readers, writer = asyncio.Semaphore(_READERS), asyncio.Lock()

    async def read(work: Callable[..., T], *args: object) -> T:
        async with readers:
            return await asyncio.to_thread(work, home, *args)

    async def write(work: Callable[..., ReviewRow], *args: object) -> ReviewRow:
        async with writer:
            return await asyncio.to_thread(work, home, *args)

    @router.get("")
    async def shards(
        reviewer: Annotated[str, Query(max_length=100)] = "",
        offset: Annotated[int, Query(ge=0, le=1_000_000)] = 0,
    ) -> ReviewedShardList:
        """The shards of the lake, without users' requests."""
        return await read(_shards, reviewer.strip(), offset)

    @router.get("/{shard}")
    async def queue(
        shard: ShardName, reviewer: Reviewer, after: Annotated[str, Query(max_length=300)] = ""
    ) -> ReviewQueue:
        """Attempts of a shard on which the reviewer has given no verdict."""
        return await read(_queue, shard, reviewer.strip(), _position(after))

    @router.get("/{shard}/pictures/{sha256}", response_class=Response, responses=IMAGE_FILE)
    async def picture(shard: ShardName, sha256: Sha256) -> Response:
        """An image of the attempts of a shard, or of its branches."""
        return await read(_picture, shard, sha256)

    @router.post("", openapi_extra=describe_body(ReviewRequest))
    async def review(request: Request) -> ReviewRow:
        """Store a review; it is on disk when this returns."""
        sent, _ = await bodies.read_json(request, ReviewRequest)
        return await write(_store, sent)

    @router.delete("/{shard}/{review_id}")
    async def withdraw(shard: ShardName, review_id: ShardName, reviewer: Reviewer) -> ReviewRow:
        """Take back a review of this reviewer."""
        return await write(_withdraw, shard, review_id, reviewer.strip())

    return router


def _shards(home: Home, reviewer: str, offset: int) -> ReviewedShardList:
    names = [each for each in home.lake.partitions(ATTEMPTS) if _is_reviewable(each)]
    page = names[offset : offset + _SHARDS_PER_PAGE]
    end = offset + len(page)
    shards = [_reviewed_shard(home, shard, reviewer) for shard in page]
    return ReviewedShardList(shards=shards, next_offset=end if end < len(names) else None)


def _reviewed_shard(home: Home, shard: str, reviewer: str) -> ReviewedShard:
    verdicts = _verdicts(home, shard)
    return ReviewedShard(
        shard=shard,
        attempts=home.lake.rows(ATTEMPTS, shard),
        reviewed=len({key for key, _ in verdicts}),
        own=len({key for key, name in verdicts if name == reviewer}),
    )


def _verdicts(home: Home, shard: str) -> set[tuple[AttemptKey, str]]:
    """Attempts that have a verdict, each with the reviewer; of the images that they have now."""
    if not home.lake.exists(REVIEWS, shard):
        return set()
    columns = [*ATTEMPT_KEY, "image"]
    images = {
        _key(row): row["image"] for row in home.lake.read(ATTEMPTS, [shard], columns).to_pylist()
    }
    return {
        (_key(row), row["reviewer"])
        for row in current_reviews(home, shard).to_pylist()
        if row["kind"] == "verdict" and row["image"] == images.get(_key(row))
    }


def _queue(home: Home, shard: str, reviewer: str, after: AttemptKey | None) -> ReviewQueue:
    attempts = _attempts(home, shard)
    if not attempts:
        raise not_found(f"there are no attempts in a shard {shard}")
    judged = {key for key, name in _verdicts(home, shard) if name == reviewer}
    pending = [key for key in sorted(attempts) if key not in judged and (not after or key > after)]
    chosen = pending[:_ITEMS_PER_PAGE]
    more = len(pending) > len(chosen)
    return ReviewQueue(
        items=_items(home, shard, attempts, chosen),
        remaining=len(pending),
        after="/".join(map(str, chosen[-1])) if more else None,
    )


def _picture(home: Home, shard: str, sha256: str) -> Response:
    """An image of a shard that may be reviewed, or of its branches; every key may see those, and no
    others here."""
    columns = ["image", "source_image"]
    for table in (ATTEMPTS, BRANCH_ATTEMPTS) if _is_reviewable(shard) else ():
        rows = home.lake.read(table, [shard], columns)
        if any(sha256 in rows[name].to_pylist() for name in columns):
            return image_response(home.images, sha256)
    raise not_found("This shard has no such image.")


def _items(
    home: Home, shard: str, attempts: dict[AttemptKey, _Row], keys: Sequence[AttemptKey]
) -> list[ReviewItem]:
    requests = {row["prompt_id"]: row["text"] for row in _rows(home, PROMPTS, shard)}
    plans = {row["trajectory_id"]: row["plan_id"] for row in _rows(home, TRAJECTORIES, shard)}
    steps = {(row["plan_id"], row["step_number"]): row for row in _rows(home, PLANS, shard)}
    items = []
    for trajectory_id, step_number, iteration in keys:
        row = attempts[trajectory_id, step_number, iteration]
        step = steps.get((plans.get(trajectory_id), step_number), {})
        item = ReviewItem(
            **row,
            before=row["source_image"],
            request=requests.get(row["prompt_id"], ""),
            step_name=step.get("step_name", f"Step {step_number}"),
            instruction=step.get("instruction"),
            goal=step.get("prompt") or row["prompt"],
            earlier=attempts.get((trajectory_id, step_number, iteration - 1)),
        )
        items.append(item)
    return items


def _store(home: Home, sent: ReviewRequest) -> ReviewRow:
    attempts = _attempts(home, sent.shard)
    key = (sent.trajectory_id, sent.step_number, sent.iteration)
    attempt = attempts.get(key)
    if attempt is None:
        raise not_found("there is no such attempt")
    if attempt["image"] != sent.image:
        message = "this attempt has another image by now; reload the page"
        raise APIError(HTTPStatus.CONFLICT, message, "image_changed", "image")
    own = {
        "review_id": secrets.token_hex(12),
        "reviewer": sent.reviewer.strip(),
        "reviewed_at": datetime.now(UTC),
        "kind": sent.kind,
        "critic_accepted": attempt["accepted"],
    }
    shared = {name: attempt[name] for name in _OF_ATTEMPT} | own
    opinion = _opinion(sent, attempt, attempts.get((*key[:2], key[2] - 1)))
    return add_review(home, ReviewRow(**shared | opinion))


def _opinion(sent: ReviewRequest, attempt: _Row, earlier: _Row | None) -> _Row:
    """Columns that only reviews of one kind have."""
    if sent.kind == "verdict":
        return {"agrees": sent.agrees, "accepted": attempt["accepted"] == sent.agrees}
    if sent.kind == "prompt":
        return {"prompt": (sent.prompt or "").strip()}
    if earlier is None:
        raise bad_request("this attempt is the first of its step: there is no other one", "better")
    better = earlier if sent.better == "earlier" else attempt
    return {
        "iteration": earlier["iteration"],
        "image": earlier["image"],
        "critic": earlier["critic"],
        "critic_accepted": earlier["accepted"],
        "other_iteration": attempt["iteration"],
        "other_image": attempt["image"],
        "better_iteration": better["iteration"],
    }


def _withdraw(home: Home, shard: str, review_id: str, reviewer: str) -> ReviewRow:
    own = (row for row in current_reviews(home, shard).to_pylist() if row["reviewer"] == reviewer)
    found = next((row for row in own if row["review_id"] == review_id), None)
    if found is None:
        raise not_found("you have no such review, or have withdrawn or changed it since")
    changes = {"review_id": secrets.token_hex(12), "withdrawn": True}
    return add_review(home, ReviewRow(**found | changes))


def _is_reviewable(shard: str) -> bool:
    return not shard.startswith(USER_REQUESTS)


def _attempts(home: Home, shard: str) -> dict[AttemptKey, _Row]:
    """The attempts of a shard that may be reviewed; none of another."""
    rows = _rows(home, ATTEMPTS, shard) if _is_reviewable(shard) else []
    return {_key(row): row for row in rows}


def _rows(home: Home, table: Table, shard: str) -> list[_Row]:
    rows: list[_Row] = home.lake.read(table, [shard]).to_pylist()
    return rows


def _key(row: _Row) -> AttemptKey:
    return row["trajectory_id"], row["step_number"], row["iteration"]


def _position(text: str) -> AttemptKey | None:
    """An attempt's key from `trajectory/step/iteration`; None: empty."""
    if not text:
        return None
    trajectory_id, *numbers = text.rsplit("/", 2)
    if len(numbers) != 2 or not all(number.isdecimal() for number in numbers):
        raise bad_request("after is not the position of an attempt", "after")
    return trajectory_id, int(numbers[0]), int(numbers[1])
