"""Responses of older homes, which stored them as they were sent instead of as events.

`responses_of_version_1.json` has the rows and images of a file that the last such version wrote,
and the types of the events that it streamed for each.
"""

import base64
import json
import sqlite3
from pathlib import Path

import pytest

from inference.service.response_store import ResponseStore
from tests.inference.service.running_service import OWN_EVENTS, decode_image, running_service
from warehouse import EncodedImage

FIXTURE = json.loads(Path(__file__).with_name("responses_of_version_1.json").read_text())
ROWS = {row["id"]: row for row in FIXTURE["rows"]}
TABLE = """
    CREATE TABLE responses (
        id TEXT PRIMARY KEY,
        owner TEXT NOT NULL,
        created_at REAL NOT NULL,
        text TEXT NOT NULL,
        words TEXT NOT NULL,
        status TEXT NOT NULL,
        response BLOB NOT NULL,
        key TEXT,
        body TEXT,
        resumable INTEGER NOT NULL,
        settled INTEGER NOT NULL
    );
    CREATE INDEX newest ON responses (owner, created_at);
    CREATE UNIQUE INDEX keyed ON responses (owner, key) WHERE key IS NOT NULL;
"""


@pytest.fixture
def old_home(home):
    path = home.local / "service" / "library.sqlite"
    path.parent.mkdir(parents=True)
    with sqlite3.connect(path) as connection:
        connection.executescript(TABLE)
        for row in FIXTURE["rows"]:
            values = row | {"response": json.dumps(row["response"]).encode()}
            places = ", ".join(f":{name}" for name in values)
            connection.execute(
                f"INSERT INTO responses ({', '.join(values)}) VALUES ({places})", values
            )
    for data in FIXTURE["images"].values():
        home.images.put(EncodedImage(base64.b64decode(data)))
    return home


def test_responses_are_returned_as_before(old_home):
    with running_service(old_home) as service:
        client = service.client()
        for response_id, types in FIXTURE["event_types"].items():
            before = ROWS[response_id]["response"]
            response = client.responses.retrieve(response_id)
            after = response.model_dump(mode="json", exclude_unset=True)
            chosen = [step["picture"] for step in before["interleave"]["steps"]]
            assert pop_images(after) == list(filter(None, chosen))
            pop_new_fields(after)
            assert after == before
            events = client.responses.retrieve(response_id, stream=True, extra_headers=OWN_EVENTS)
            assert [event.type for event in events if not is_closing(event)] == types
        stories = service.get("/studio/stories").json()["stories"]
        assert {story["id"] for story in stories} == set(ROWS)
        assert "add a RED hat" in service.get(f"/studio/stories/{_id('complete')}.md").text


def test_an_interrupted_request_can_be_resumed(old_home):
    store = ResponseStore(old_home)
    interrupted = store.get(_id("interrupted"), "")
    assert interrupted.resumable and interrupted.status == "interrupted"
    assert store.by_key("", interrupted.key) == interrupted
    store.close()
    assert ResponseStore(old_home).get(interrupted.id, "") == interrupted  # converted once


def pop_images(response: dict) -> list[str]:
    """Remove the images of a response; their sha256."""
    hashes = []
    for item in response["output"]:
        if data := item.get("result"):
            hashes.append(decode_image(data).sha256)
            item["result"] = None
    return hashes


def pop_new_fields(response: dict) -> None:
    """Remove what such a service did not send."""
    assert response["interleave"].pop("simulation") is None
    assert response["interleave"].pop("queue") is None
    assert response["interleave"].pop("completed_at") is None
    assert response.pop("completed_at") is None  # it was not stored
    images = sum(len(step["attempts"]) for step in response["interleave"]["steps"])
    assert (response["usage"] or {"total_tokens": 0})["total_tokens"] == 0
    if response["usage"]:
        assert response["usage"]["output_tokens_details"]["images"] == images
    response["usage"] = None
    assert response["interleave"].pop("usage") is not None
    output = response["output"]
    if output and output[-1]["id"].endswith("_end"):
        output.pop()
    for item in output:
        item.pop("revised_prompt", None)
        for part in item.get("content", ()):
            part["text"] = part["text"].removesuffix("\n\n")


def is_closing(event) -> bool:
    """Whether an event is one of the closing message."""
    item_id = getattr(event, "item_id", None) or getattr(getattr(event, "item", None), "id", "")
    return item_id.endswith("_end")


def _id(word):
    return next(name for name, row in ROWS.items() if word in row["text"])
