"""What the service keeps of requests, through kills and from several threads."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from inference.service.response_store import ResponseStore, StoredResponse
from schemas import StorageError
from warehouse import Home

DIES = """
import os, sys
from inference.service.response_store import ResponseStore, StoredResponse
from warehouse import Home
library = ResponseStore(Home(sys.argv[1]))
library.begin(StoredResponse("done", "", "a cat", "in_progress", {"status": "in_progress"}, 1.0))
library.settle("done", {"status": "completed"})
library.begin(StoredResponse("cut", "", "a dog", "in_progress", {"status": "in_progress"}, 2.0, "key", "b"))
os.kill(os.getpid(), 9)
"""


@pytest.fixture
def library(home):
    library = ResponseStore(home)
    yield library
    library.close()


def kept(name, text="a cat", owner="", **more):
    return StoredResponse(name, owner, text, "in_progress", {"status": "in_progress"}, **more)


def test_what_was_begun_and_settled_survives_a_kill(tmp_path):
    done = subprocess.run([sys.executable, "-c", DIES, str(tmp_path)], env=os.environ)
    assert done.returncode == -9
    library = ResponseStore(Home(tmp_path))
    assert library.get("done", "").status == "completed"
    (cut,) = library.unsettled()
    assert (cut.id, cut.key, cut.body, cut.created_at) == ("cut", "key", "b", 2.0)


def test_owners_see_their_own_only(library):
    library.begin(kept("mine", owner="me", key="k"))
    library.begin(kept("yours", owner="you", key="k"))
    assert library.get("mine", "you") is None and library.get("mine", "me").id == "mine"
    assert library.keyed("you", "k").id == "yours"
    assert [each.id for each in library.search("me")] == ["mine"]
    assert not library.delete("mine", "you") and library.delete("mine", "me")
    assert library.get("mine", "me") is None


def test_words_are_found_whatever_their_case(library):
    for number, text in enumerate(["Grow a FLOWER", "a flower in a Straße", "100% of a_b"]):
        library.begin(kept(str(number), text, created_at=float(number)))
    found = {words: [each.id for each in library.search("", words)] for words in
             ("flower", "STRASSE flower", "%", "a_b", "a%b", "tree")}  # fmt: skip
    assert found == {"flower": ["1", "0"], "STRASSE flower": ["1"], "%": ["2"], "a_b": ["2"],
                     "a%b": [], "tree": []}  # fmt: skip
    assert [each.id for each in library.search("", limit=1, offset=1)] == ["1"]


def test_a_request_taken_up_again_is_the_same_row(library):
    library.begin(kept("one", key="k"))
    library.settle("one", {"status": "incomplete"}, resumable=True)
    again = library.keyed("", "k")
    assert again.resumable and again.status == "incomplete"
    library.begin(again)
    assert [each.id for each in library.unsettled()] == ["one"]
    assert len(library.search("")) == 1


def test_threads_share_it(library):
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda n: library.begin(kept(str(n))), range(200)))
        list(pool.map(lambda n: library.settle(str(n), {"status": "completed"}), range(200)))
    assert len(library.search("", limit=500)) == 200 and not library.unsettled()


def test_a_file_that_is_no_database_is_explained(home):
    path = home.local / "service" / "library.sqlite"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"not a database" * 100)
    with pytest.raises(StorageError, match=r"library\.sqlite is damaged"):
        ResponseStore(home)
