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
            assert after["interleave"].pop("simulation") is None  # a field that they did not have
            assert after == before
            events = client.responses.retrieve(response_id, stream=True, extra_headers=OWN_EVENTS)
            assert [event.type for event in events] == types
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


def _id(word):
    return next(name for name, row in ROWS.items() if word in row["text"])
